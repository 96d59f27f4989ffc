"""The next actions of a StatefulSet's controller: which pods are created and deleted, by ordinal. Pure.

As the real one: in order and one at a time, unless ``podManagementPolicy: Parallel`` says otherwise; updates go from
the highest number down to ``partition``. Not here: ControllerRevisions (a pod recreated below the partition is of the
newest template), ``maxUnavailable``, ``minReadySeconds``, and claims that go with their pods.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from purser.kube.resources import Raw
from purser.lab.controllers.workloads.owned import is_active, is_ready

REVISION_LABEL = "controller-revision-hash"


@dataclass(frozen=True)
class StatefulPlan:
    """Numbers of the pods to make, and pods to delete."""

    creations: tuple[int, ...] = ()
    deletions: tuple[Raw, ...] = ()


def plan(spec: Raw, revision: str, pods: Mapping[int, Raw], going: Collection[int]) -> StatefulPlan:
    """``pods`` are there, by number; ``going`` are the numbers of those that were asked to go."""
    first = int((spec.get("ordinals") or {}).get("start") or 0)
    wanted = range(first, first + int(spec.get("replicas", 1)))
    in_order = spec.get("podManagementPolicy") != "Parallel"
    creations: list[int] = []
    deletions: list[Raw] = []
    for number in wanted:
        pod = pods.get(number)
        if pod is None:
            creations.append(number)
        elif number not in going and not is_active(pod):
            deletions.append(pod)  # It ended: another takes its name.
        elif number not in going and is_ready(pod):
            continue
        if in_order:
            return StatefulPlan(tuple(creations), tuple(deletions))
    surplus = sorted((number for number in pods if number not in wanted), reverse=True)
    if surplus and in_order:
        return StatefulPlan((), () if going else (pods[surplus[0]],))
    deletions += [pods[number] for number in surplus if number not in going]
    if not creations and not deletions and not going:
        deletions += _outdated_pods(spec, revision, pods, wanted)
    return StatefulPlan(tuple(creations), tuple(deletions))


def _outdated_pods(spec: Raw, revision: str, pods: Mapping[int, Raw], wanted: Sequence[int]) -> Sequence[Raw]:
    """The next pod of an older template to be recreated."""
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return ()
    partition = int((strategy.get("rollingUpdate") or {}).get("partition") or 0)
    for number in reversed(wanted):
        pod = pods[number]
        if number < partition:
            return ()
        if revision_of(pod) != revision:
            return (pod,)
        if not is_ready(pod):
            return ()
    return ()


def revision_of(pod: Raw) -> str:
    """Which template a pod was made of."""
    return str((pod["metadata"].get("labels") or {}).get(REVISION_LABEL, ""))
