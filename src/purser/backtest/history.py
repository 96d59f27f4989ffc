"""What is known of a cluster's past: nodes with their GPUs, pods with what they asked for, and when."""

import math
from collections import Counter

import msgspec

from purser.core.fleet.facts import FleetNodeFacts
from purser.core.placement.shape import PodShape

MAX_WINDOW_DAYS = 366
"""From the first to the last moment of a history."""

MAX_WINDOW_S = MAX_WINDOW_DAYS * 86400


class NothingToReplay(ValueError):
    """A source without what a history needs; the message says what is missing."""


class HistoryNode(msgspec.Struct, frozen=True):
    """A node, as it is without pods that hold GPUs. Times are seconds since the epoch."""

    facts: FleetNodeFacts
    since_s: float = -math.inf
    """When it came."""
    until_s: float = math.inf
    """When it went."""
    away: tuple[tuple[float, float], ...] = ()
    """When it was not there in between: from and until, the earliest first."""

    def there(self, begin_s: float, end_s: float) -> tuple[tuple[float, float], ...]:
        """When it was there of this time: from and until, the earliest first."""
        starts = (self.since_s, *(until_s for _, until_s in self.away))
        ends = (*(from_s for from_s, _ in self.away), self.until_s)
        spans = ((max(start, begin_s), min(end, end_s)) for start, end in zip(starts, ends, strict=True))
        return tuple((start, end) for start, end in spans if start < end)


class HistoryPod(msgspec.Struct, frozen=True):
    """A pod that asks for GPUs. Times are seconds since the epoch."""

    name: str
    """``namespace/name``; several pods may have had it, one after the other."""
    shape: PodShape
    created_s: float
    node: str = ""
    """Where it ran; empty: it waits until the history's end."""
    bound_s: float = math.inf
    ended_s: float = math.inf
    """Infinite: it runs until the history's end."""
    priority: int = 0


class Omission(msgspec.Struct, frozen=True):
    """What a source has and a history has not, or not as it was."""

    what: str
    count: int
    example: str


class History(msgspec.Struct, frozen=True):
    """What a source tells."""

    source: str
    """What people call it."""
    begin_s: float
    end_s: float
    nodes: tuple[HistoryNode, ...]
    pods: tuple[HistoryPod, ...]
    left_out: tuple[Omission, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences on single objects."""
    policy: str = ""
    """That was in force, where the source says so."""


HALF_SECOND_S = 0.5
MAX_FIRST_TRY_DELAY_S = 1.0
"""A first attempt to place a pod within this time of its creation is when it was created."""


def comparable_time(whole_s: float, exact_s: float) -> float:
    """A time of whole seconds that is compared with an exact one: the middle of its second, where it is on the mean.

    Kubernetes stamps objects, and kubelet its events, by whole seconds, which it cuts off: beside kube-scheduler's
    events and decision logs all of them would be half a second early.
    """
    is_exact = math.isfinite(exact_s) and exact_s != math.floor(exact_s)
    is_whole = math.isfinite(whole_s) and whole_s == math.floor(whole_s)
    return whole_s + HALF_SECOND_S if is_whole and is_exact else whole_s


def creation(stamp_s: float, first_s: float) -> float:
    """When a pod was created, of its object's time and of the first attempt to place it."""
    created_s = comparable_time(stamp_s, first_s)
    return first_s if abs(first_s - created_s) <= MAX_FIRST_TRY_DELAY_S else min(created_s, first_s)


class Omissions:
    """Counts what is left out, with the first example of each."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, str] = {}

    def add(self, what: str, example: str) -> None:
        """One more."""
        self._counts[what] += 1
        self._examples.setdefault(what, example[:300])

    @property
    def found(self) -> tuple[Omission, ...]:
        """All, as they were first met."""
        return tuple(Omission(what, count, self._examples[what]) for what, count in self._counts.items())


def history_of(
    source: str,
    begin_s: float,
    end_s: float,
    nodes: list[HistoryNode],
    pods: list[HistoryPod],
    omissions: Omissions,
    notes: list[str],
) -> History:
    """A history of what a source found, without what cannot be replayed. Raises `NothingToReplay`."""
    if not begin_s < end_s:
        raise NothingToReplay(
            "the history has no time span to replay, because it has fewer than two different timestamps"
        )
    if (days := (end_s - begin_s) / 86400) > MAX_WINDOW_DAYS:
        raise NothingToReplay(
            f"the history spans {days:.0f} days, more than the maximum of {MAX_WINDOW_DAYS}: use a shorter part of it"
        )
    there = [each for each in nodes if each.facts.gpus and each.there(begin_s, end_s)]
    if not there:
        raise NothingToReplay("the history has no node with GPUs in the period to replay")
    names = {each.facts.name for each in there}
    kept = [kept for pod in pods if (kept := _clip_to_window(pod, begin_s, end_s, names, omissions)) is not None]
    if not kept:
        raise NothingToReplay("the history does not record enough about any pod with GPUs in the period to replay")
    if (priorities := len({pod.priority for pod in kept})) > 1:
        notes = [
            *notes,
            f"pods have {priorities} different priorities, but the replay schedules them in order of creation",
        ]
    kept.sort(key=lambda pod: (pod.created_s, pod.name))
    there.sort(key=lambda node: node.facts.name)
    return History(source, begin_s, end_s, tuple(there), tuple(kept), omissions.found, tuple(notes))


def _clip_to_window(
    pod: HistoryPod, begin_s: float, end_s: float, nodes: set[str], omissions: Omissions
) -> HistoryPod | None:
    if min(pod.ended_s, end_s) <= begin_s or pod.created_s >= end_s:
        return None
    if math.isinf(pod.bound_s) and not math.isinf(pod.ended_s):
        omissions.add("pods that were left out because they were deleted while they waited", pod.name)
        return None
    if not math.isinf(pod.bound_s) and pod.node not in nodes:
        omissions.add("pods on unknown nodes, which were left out", f"{pod.name} on {pod.node}")
        return None
    created_s, bound_s = min(pod.created_s, pod.bound_s), pod.bound_s
    ended_s = pod.ended_s if math.isinf(bound_s) else max(pod.ended_s, bound_s)
    if pod.created_s > pod.bound_s or ended_s > pod.ended_s:
        omissions.add("pods with contradictory times, which were corrected as little as possible", pod.name)
    if bound_s >= end_s:
        bound_s, ended_s = math.inf, math.inf
    return msgspec.structs.replace(pod, created_s=created_s, bound_s=bound_s, ended_s=ended_s)
