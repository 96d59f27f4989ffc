"""When GPUs really became free: by the pods that waited for them.

kubelet says when it begins to stop a pod's containers, and nobody when they are gone, which takes up to the pod's grace
period; other sources know ends by scrapes, or by whole seconds. But who waited for the room was bound as soon as it was
there, and of that the time is known best.
"""

import math
import statistics
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate

import msgspec

from purser.backtest.history import MAX_FIRST_TRY_DELAY_S, HistoryPod

MAX_HANDOVER_S = 45.0
"""From a pod's end to the next one's beginning: the default grace period, and kube-scheduler's longest back-off."""


class _NodePods:
    """The pods of a node."""

    def __init__(self, pods: Sequence[tuple[float, float, float, int]]) -> None:
        """Each with when it was bound, when it ended, what it holds, and its number."""
        self.ends = sorted((ended_s, number) for _, ended_s, _, number in pods if math.isfinite(ended_s))
        bound = sorted((bound_s, milli) for bound_s, _, milli, _ in pods)
        ended = sorted((ended_s, milli) for _, ended_s, milli, _ in pods)
        self._times = [[time_s for time_s, _ in each] for each in (bound, ended)]
        self._sums = [[0.0, *accumulate(milli for _, milli in each)] for each in (bound, ended)]

    def amount_held_before(self, time_s: float) -> float:
        """What pods hold just before."""
        came, went = (sums[bisect_left(times, time_s)] for times, sums in zip(self._times, self._sums, strict=True))
        return came - went


def decision_latency(pods: Sequence[HistoryPod], begin_s: float) -> float:
    """From a pod's creation until it was bound, of those that had a place at once, in the middle: deciding takes time,
    in which the GPUs are taken already."""
    waited = (pod.bound_s - pod.created_s for pod in pods if pod.created_s >= begin_s)
    return statistics.median([each for each in waited if each <= MAX_FIRST_TRY_DELAY_S] or [0.0])


def with_handovers(
    pods: Sequence[HistoryPod], milli: Sequence[float], capacity_milli: Mapping[str, float], latency_s: float = 0.0
) -> list[HistoryPod]:
    """The pods, each ended when the one that waited for its room, and had none before, was decided on: ``latency_s``
    before it was bound.

    Of those in whose room nobody was seen to come the end is later by as much as it was of these in the middle.
    ``milli``: what each holds, in thousandths of a GPU; ``capacity_milli``: what each node has.
    """
    on: defaultdict[str, list[tuple[float, float, float, int]]] = defaultdict(list)
    for number, (pod, holds) in enumerate(zip(pods, milli, strict=True)):
        if math.isfinite(pod.bound_s):
            on[pod.node].append((pod.bound_s, pod.ended_s, holds, number))
    nodes = {name: _NodePods(each) for name, each in on.items()}
    released: dict[int, float] = {}
    waited = [
        n
        for n, pod in enumerate(pods)
        if math.isfinite(pod.bound_s) and pod.bound_s - pod.created_s > MAX_FIRST_TRY_DELAY_S
    ]
    for number in sorted(waited, key=lambda each: pods[each].bound_s):
        bound_s, node = pods[number].bound_s, nodes[pods[number].node]
        place = bisect_right(node.ends, (bound_s + MAX_FIRST_TRY_DELAY_S, len(pods))) - 1
        if place < 0 or node.ends[place][1] == number:
            continue
        ended_s, leaver = node.ends[place]
        had_room = node.amount_held_before(ended_s) + milli[number] <= capacity_milli[pods[number].node]
        if bound_s - ended_s <= MAX_HANDOVER_S and not had_room:
            released.setdefault(leaver, bound_s - latency_s)
    if not released:
        return list(pods)
    usual_s = max(0.0, statistics.median(at_s - pods[number].ended_s for number, at_s in released.items()))
    return [_ended(pod, released.get(number, pod.ended_s + usual_s)) for number, pod in enumerate(pods)]


def _ended(pod: HistoryPod, at_s: float) -> HistoryPod:
    return msgspec.structs.replace(pod, ended_s=max(at_s, pod.bound_s))
