"""What is said of a Deployment, ReplicaSet, StatefulSet, DaemonSet or Job: how its pods are, and why it has none."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from purser.adapters.workloads import ReadWorkload
from purser.core.decoding import brief
from purser.kube.objects import Pod
from purser.kube.pods import is_terminal
from purser.kube.resources import key_of
from purser.kube.workloads import Workload, is_of, wanted_field, wanted_pods
from purser.scheduler.explaining.explanation import Explanation

MAX_MESSAGE = 1000
"""Characters of what a controller says."""

_INFORMATIVE_CONDITIONS = {
    ("ReplicaFailure", "True"),
    ("Progressing", "False"),
    ("Suspended", "True"),
    ("FailureTarget", "True"),
    ("Failed", "True"),
}
"""Conditions, with their status, that say why there are not as many pods as wanted."""


class WorkloadExplanation(msgspec.Struct, frozen=True):
    """How a workload's pods are."""

    kind: str
    namespace: str
    name: str
    waiting: int = 0
    """Pods without a node."""
    placed: int = 0
    """Pods on nodes that have not ended."""
    ended: int = 0
    wanted: int | None = None
    """How many it is to have; None: not known, or a Job."""
    nodes: tuple[str, ...] = ()
    """Where its pods are, each once."""
    objections: tuple[str, ...] = ()
    """What it says itself of pods that it does not have."""
    pod: Explanation | None = None
    """Of its pods that wait the one that was created first; or else one that does not run on its node, or failed."""
    notes: tuple[str, ...] = ()
    """What of the cluster could not be read."""


def pods_of(kind: str, namespace: str, name: str, pods: Iterable[Pod]) -> list[Pod]:
    """A workload's pods, the oldest first."""
    found = (pod for pod in pods if pod.metadata.namespace == namespace and is_of(pod, kind, name))
    return sorted(found, key=lambda pod: (pod.metadata.creation_timestamp, key_of(pod)))


def waiting_pods(pods: Iterable[Pod]) -> list[Pod]:
    """Those that have no node yet, and are not being deleted."""
    waiting = (pod for pod in pods if not pod.spec.node_name and not is_terminal(pod))
    return [pod for pod in waiting if not pod.metadata.deletion_timestamp]


def workload_explanation(
    kind: str,
    namespace: str,
    name: str,
    read: ReadWorkload,
    pods: Sequence[Pod],
    first: Explanation | None,
    notes: tuple[str, ...],
) -> WorkloadExplanation:
    """``pods``: the workload's; ``first``: what is said of one of them."""
    found = read.found
    ended = [pod for pod in pods if is_terminal(pod)]
    waiting = waiting_pods(pods)
    placed = [pod for pod in pods if pod.spec.node_name and not is_terminal(pod)]
    wanted = None if found is None else wanted_pods(found, kind)
    lacks = not waiting and not placed if wanted is None else len(waiting) + len(placed) < wanted
    return WorkloadExplanation(
        kind,
        namespace,
        name,
        waiting=len(waiting),
        placed=len(placed),
        ended=len(ended),
        wanted=wanted,
        nodes=tuple(sorted({pod.spec.node_name for pod in placed})),
        objections=() if found is None else tuple(_objections(kind, found, wanted, read.last_failure if lacks else "")),
        pod=first,
        notes=notes,
    )


def _objections(kind: str, found: Workload, wanted: int | None, last_failure: str) -> Iterator[str]:
    if wanted == 0:
        yield f"the workload needs no pods: {wanted_field(kind)} is 0"
    if found.spec.paused:
        yield "the workload is paused: spec.paused is true"
    said = [each for each in found.status.conditions if (each.type, each.status) in _INFORMATIVE_CONDITIONS]
    if found.spec.suspend:
        yield "the workload is suspended: spec.suspend is true"
    for each in said:
        if each.type != "Suspended":
            yield f"its condition {each.type} reports: {brief(each.message or each.reason, MAX_MESSAGE)}"
    if last_failure and not any(last_failure in each.message for each in said):
        yield f"its last FailedCreate event reports: {brief(last_failure, MAX_MESSAGE)}"
