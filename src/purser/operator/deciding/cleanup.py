"""What has to go when the last ClusterPolicy goes: objects, labels and annotations of nodes, cordons of Purser's."""

from collections.abc import Collection, Iterator, Mapping

import msgspec

from purser.core.names import NODE_FACTS_ANNOTATION
from purser.operator.gates import NO_POLICY, driver_removals, is_marked, removal_patch
from purser.operator.maintenance import is_cordoned_by_purser
from purser.operator.manifests import removals
from purser.operator.mig import holds as mig_holds
from purser.operator.model import Delete, DriverRemoval, NodeView, ObjectKey, PatchNode, Snapshot, merged
from purser.operator.names import (
    CORDONED_BY_ANNOTATION,
    MIG_STEP_ANNOTATION,
    OPERAND_LABEL,
    POOL_LABEL,
)
from purser.operator.order import Operand
from purser.operator.policy.active import choose
from purser.operator.wording import natural

DISCOVERY = "gpu-discovery"
"""Operand label of Purser's discovery."""


def cleanup(snapshot: Snapshot) -> tuple[PatchNode | Delete, ...]:
    """What remains to be done until nothing of the operator is left; nothing, if that is so or only time is missing:
    where a driver is in use, it stays with its label until it is not."""
    found = driver_removals(snapshot, choose(snapshot.policies))
    in_use = bool(snapshot.isolated) or any(each.stays for each in found.values())
    kept = drivers_objects(snapshot) if in_use else frozenset()
    unwanted = (key for key in snapshot.objects if key not in kept)
    return (*_nodes(snapshot, found), *removals(snapshot, unwanted, NO_POLICY))


def drivers_objects(snapshot: Snapshot) -> frozenset[ObjectKey]:
    """Live DaemonSets of drivers, and what their pods need."""
    objects = snapshot.objects.items()
    return frozenset(
        key for key, obj in objects if (obj["metadata"].get("labels") or {}).get(OPERAND_LABEL) == Operand.DRIVER
    )


def is_clean(snapshot: Snapshot) -> bool:
    """Whether nothing is left: no object, no pod that could still write (one of a dead node cannot), no label."""
    alive = snapshot.alive
    return (
        not snapshot.isolated
        and not snapshot.objects
        and not cleanup(snapshot)
        and not any(pod.node in alive for pod in snapshot.pods)
    )


def _for_now(patch: PatchNode, node: NodeView, operands: Collection[str], removal: DriverRemoval | None) -> PatchNode:
    """The same, without what has to wait: a driver that is in use, and the cordon of a node whose GPUs the MIG
    manager may be cutting this moment. Its request goes at once, so that it stops."""
    labels, annotations, unschedulable = dict(patch.labels), dict(patch.annotations), patch.unschedulable
    if removal is not None and removal.stays:
        for label in (Operand.DRIVER.deploy_label, POOL_LABEL):
            labels.pop(label, None)
    if mig_holds(node) and Operand.MIG_MANAGER in operands:
        unschedulable = None
        annotations.pop(MIG_STEP_ANNOTATION, None)
        if is_cordoned_by_purser(node):  # otherwise the mark is void, and a cordon that comes is not Purser's
            annotations.pop(CORDONED_BY_ANNOTATION, None)
    return msgspec.structs.replace(patch, labels=labels, annotations=annotations, unschedulable=unschedulable)


def _nodes(snapshot: Snapshot, found: Mapping[str, DriverRemoval]) -> Iterator[PatchNode]:
    """Discovery would write its facts anew, so that they stay as long as it runs there. Who is on a node that is away
    writes nothing any more."""
    operands: dict[str, set[str]] = {}
    for pod in snapshot.pods:
        operands.setdefault(pod.node, set()).add(pod.operand)
    for node in sorted(snapshot.nodes, key=lambda node: natural(node.name)):
        there = operands.get(node.name, set()) if node.ready else set()
        patches = []
        if is_marked(node):
            gone = removal_patch(node, has_rivals=bool(snapshot.rivals))
            patches.append(_for_now(gone, node, there, found.get(node.name)))
        if DISCOVERY not in there:
            patches.append(PatchNode(node=node.name, annotations={NODE_FACTS_ANNOTATION: None}, why=NO_POLICY))
        patch = merged(node, patches)
        if patch is not None:
            yield msgspec.structs.replace(patch, resource_version=snapshot.versions.get(node.name, ""))
