"""What a DaemonSet's pods and nodes call for, as the real controller decides it: pure, for one DaemonSet at a time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from purser.kube.resources import Raw
from purser.lab.controllers.workloads.owned import is_ready, phase

HASH_LABEL = "controller-revision-hash"


class NodeFit(Enum):
    """How a node fits a template."""

    RUNS = "runs"
    STAYS = "stays"
    """A pod that is there stays, a new one does not come: a taint NoSchedule."""
    NO = "no"


@dataclass(frozen=True)
class DaemonPlan:
    """What to do now."""

    creations: tuple[str, ...]
    """Nodes."""
    deletions: tuple[Raw, ...]
    status: dict[str, int]


def plan(
    daemon_set: Raw, revision: str, fits: Mapping[str, NodeFit], pods: Sequence[Raw], going: Sequence[Raw] = ()
) -> DaemonPlan:
    """``pods`` are its pods, ``going`` those that were asked to go: while one is there, its node gets no other."""
    occupied = {target(pod) for pod in going}
    failed = [pod for pod in pods if phase(pod) == "Failed"]
    kept: dict[str, Raw] = {}
    deletions = list(failed)
    for pod in sorted(pods, key=_age):
        if phase(pod) == "Failed":
            continue
        node = target(pod)
        if fits.get(node, NodeFit.NO) is NodeFit.NO or node in kept:
            deletions.append(pod)
        else:
            kept[node] = pod
    wanted = [node for node in sorted(fits) if fits[node] is NodeFit.RUNS]
    full = occupied | kept.keys() | {target(pod) for pod in failed}
    deletions += _outdated_to_delete(daemon_set, revision, wanted, kept)
    creations = tuple(node for node in wanted if node not in full)
    return DaemonPlan(creations, tuple(deletions), _status(revision, fits, wanted, kept, occupied))


def target(pod: Raw) -> str:
    """The node that a DaemonSet's pod is for, be it bound or not."""
    if name := pod["spec"].get("nodeName"):
        return str(name)
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return str(required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])


def _outdated_to_delete(daemon_set: Raw, revision: str, wanted: Sequence[str], kept: Mapping[str, Raw]) -> list[Raw]:
    """Old pods that make room for new ones now: those that are not ready at once, others as far as the bound goes."""
    strategy = daemon_set["spec"].get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete":
        return []
    old = [pod for pod in kept.values() if _revision(pod) != revision]
    bound = _bound((strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1), len(wanted))
    unavailable = sum(not (node in kept and is_ready(kept[node])) for node in wanted)
    ready = sorted((pod for pod in old if is_ready(pod)), key=_age)
    return [*(pod for pod in old if not is_ready(pod)), *ready[: max(0, bound - unavailable)]]


def _bound(given: int | str, wanted: int) -> int:
    """At least one, as the real controller takes it: otherwise nothing would ever be updated."""
    if isinstance(given, int):
        return max(1, given)
    return max(1, math.ceil(wanted * int(given.removesuffix("%")) / 100))


def _status(
    revision: str, fits: Mapping[str, NodeFit], wanted: Sequence[str], kept: Mapping[str, Raw], occupied: set[str]
) -> dict[str, int]:
    here = [kept[node] for node in wanted if node in kept]
    ready = sum(map(is_ready, here))
    return {
        "desiredNumberScheduled": len(wanted),
        "currentNumberScheduled": sum(node in kept or node in occupied for node in wanted),
        "updatedNumberScheduled": sum(_revision(pod) == revision for pod in here),
        "numberMisscheduled": len({*kept, *occupied} - {node for node in fits if fits[node] is NodeFit.RUNS}),
        "numberReady": ready,
        "numberAvailable": ready,
        "numberUnavailable": len(wanted) - ready,
    }


def _revision(pod: Raw) -> str:
    return str((pod["metadata"].get("labels") or {}).get(HASH_LABEL, ""))


def _age(pod: Raw) -> tuple[str, str]:
    return str(pod["metadata"].get("creationTimestamp", "")), str(pod["metadata"]["name"])
