"""Pods that end, and where each of them would go instead."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import msgspec

from purser.core.grant.quota import Demand
from purser.core.names import KUBELET_ANNOTATION
from purser.core.wording import natural_sort_key, some
from purser.kube.objects import Pod
from purser.kube.resources import key_of
from purser.scheduler.explaining.changes import ChangeKind, SuggestedChange, Suggestion
from purser.scheduler.explaining.ending import fewest_pods_for_quota, fewest_pods_to_end
from purser.scheduler.explaining.trial import Trial


def ended_pods(trial: Trial, demand: Demand | None) -> Iterator[Suggestion]:
    """The fewest that are found, see `purser.scheduler.explaining.ending`. ``demand``: what a quota has to leave."""
    room = fewest_pods_to_end(trial.cluster, trial.pod, trial.refused)
    quota = None if demand is None else fewest_pods_for_quota(trial.cluster, trial.refused, demand)
    found = min((each for each in (room, quota) if each), key=len, default=None)
    if found is None:
        return
    names = tuple(map(key_of, found))
    with trial.cluster.without(found):
        moves = _destinations(trial, found, trial.fits(trial.pod))
        notes = [_replacement_note(moves.get(name, ""), pod) for name, pod in zip(names, found, strict=True)]
        if len(names) == 1:
            text = f"pod {names[0]} is deleted{notes[0]}"
        else:
            text = f"pods {some([f'{name}{note}' for name, note in zip(names, notes, strict=True)])} are deleted"
        change = SuggestedChange(pods=names, moves=moves)
        yield from trial.suggest_if_it_fits(ChangeKind.END, text, change, trial.pod)


def _replacement_note(node: str, pod: Pod) -> str:
    if not node:
        return ""
    return f" (its replacement fits {'elsewhere on the node' if node == pod.spec.node_name else f'on {node}'})"


def _destinations(trial: Trial, pods: Sequence[Pod], fits: Sequence[str]) -> dict[str, str]:
    """By key: which node takes a pod that ends, beside the pod that it ends for. Nothing is said where that pod may go
    to one of several nodes."""
    places: dict[str, str] = {}
    if len(fits) != 1:
        return places
    with ExitStack() as placed:
        placed.enter_context(trial.cluster.with_pod(trial.pod, fits[0], trial.refused.request))
        for pod in pods:
            waiting = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))
            judged = trial.cluster.judge(waiting)
            there = [name for name in judged.fits if name != fits[0] or not _is_aligned(trial, name)]
            if there:
                places[key_of(pod)] = where = min(there, key=natural_sort_key)
                placed.enter_context(trial.cluster.with_pod(waiting, where, judged.request))
    return places


def _is_aligned(trial: Trial, name: str) -> bool:
    """Whether what its kubelet does with the pod that comes is not known here."""
    node = trial.cluster.node_object(name)
    return node is not None and KUBELET_ANNOTATION in node.metadata.annotations
