"""What has to go when the last ClusterPolicy goes: objects, labels and annotations of nodes, cordons of Purser's."""

from collections.abc import Collection, Iterator, Mapping

import msgspec

from purser.core.names import NODE_FACTS_ANNOTATION
from purser.operator.kernel.active_policy import choose
from purser.operator.kernel.driver_removal import departures
from purser.operator.kernel.facts import users_word
from purser.operator.kernel.objects import removals
from purser.operator.merging import merged
from purser.operator.mig import holds as mig_holds
from purser.operator.model import Delete, Departure, NodeView, ObjectKey, PatchNode, Snapshot
from purser.operator.names import (
    CORDONED_BY_ANNOTATION,
    DRIVER_MANAGER_LABELS,
    GROUP,
    MIG_STEP_ANNOTATION,
    OPERAND_LABEL,
    OWNED_NODE_ANNOTATIONS,
    OWNED_NODE_LABELS,
    PAUSED_FOR_MIG,
    PAUSED_FOR_UPGRADE,
    POOL_LABEL,
    PREINSTALLED,
)
from purser.operator.nodework.cordons import is_cordoned_by_purser
from purser.operator.order import Operand
from purser.operator.wording import natural

DISCOVERY = "gpu-discovery"
"""Operand label of Purser's discovery."""

WHY = "no ClusterPolicy is left"


def cleanup(snapshot: Snapshot) -> tuple[PatchNode | Delete, ...]:
    """What remains to be done until nothing of the operator is left; nothing, if that is so or only time is missing:
    where a driver is in use, it stays with its label until it is not."""
    found = departures(snapshot, choose(snapshot.policies))
    in_use = bool(snapshot.left_out) or any(each.stays for each in found.values())
    kept = drivers_objects(snapshot) if in_use else frozenset()
    unwanted = (key for key in snapshot.objects if key not in kept)
    return (*_nodes(snapshot, found), *removals(snapshot, unwanted, WHY))


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
        not snapshot.left_out
        and not snapshot.objects
        and not cleanup(snapshot)
        and not any(pod.node in alive for pod in snapshot.pods)
    )


def stripped(node: NodeView, *, has_rivals: bool = False) -> PatchNode:
    """Takes away what the operator wrote on a node, its cordons included. What discovery wrote is another matter.

    ``has_rivals``: another operator is at work there. Labels and annotations of nvidia.com may be its own by now. A
    pause is not: nobody else would end it.
    """
    labels = [label for label in OWNED_NODE_LABELS if label in node.labels]
    labels += [each.deploy_label for each in Operand if each.deploy_label in node.labels and not _is_users(node, each)]
    labels += [label for label in DRIVER_MANAGER_LABELS if node.labels.get(label) == ""]
    annotations = [
        each for each in OWNED_NODE_ANNOTATIONS if each in node.annotations and each != NODE_FACTS_ANNOTATION
    ]
    return PatchNode(
        node=node.name,
        labels={each: None for each in labels if not has_rivals or _is_pursers(each) or _is_pause(node.labels[each])},
        annotations={each: None for each in annotations if not has_rivals or _is_pursers(each)},
        unschedulable=False if is_cordoned_by_purser(node) else None,
        why=WHY,
    )


def _is_users(node: NodeView, operand: Operand) -> bool:
    """Whether people wrote an operand's label. That a node has a driver of its own NVIDIA's driver manager writes."""
    return users_word(node, operand) not in ("", PREINSTALLED)


def _for_now(patch: PatchNode, node: NodeView, operands: Collection[str], departure: Departure | None) -> PatchNode:
    """The same, without what has to wait: a driver that is in use, and the cordon of a node whose GPUs the MIG
    manager may be cutting this moment. Its request goes at once, so that it stops."""
    labels, annotations, unschedulable = dict(patch.labels), dict(patch.annotations), patch.unschedulable
    if departure is not None and departure.stays:
        for label in (Operand.DRIVER.deploy_label, POOL_LABEL):
            labels.pop(label, None)
    if mig_holds(node) and Operand.MIG_MANAGER in operands:
        unschedulable = None
        annotations.pop(MIG_STEP_ANNOTATION, None)
        if is_cordoned_by_purser(node):  # otherwise the mark is void, and a cordon that comes is not Purser's
            annotations.pop(CORDONED_BY_ANNOTATION, None)
    return msgspec.structs.replace(patch, labels=labels, annotations=annotations, unschedulable=unschedulable)


def _nodes(snapshot: Snapshot, found: Mapping[str, Departure]) -> Iterator[PatchNode]:
    """Discovery would write its facts anew, so that they stay as long as it runs there. Who is on a node that is away
    writes nothing any more."""
    operands: dict[str, set[str]] = {}
    for pod in snapshot.pods:
        operands.setdefault(pod.node, set()).add(pod.operand)
    for node in sorted(snapshot.nodes, key=lambda node: natural(node.name)):
        there = operands.get(node.name, set()) if node.ready else set()
        patches = []
        if _is_marked(node):
            gone = stripped(node, has_rivals=bool(snapshot.rivals))
            patches.append(_for_now(gone, node, there, found.get(node.name)))
        if DISCOVERY not in there:
            patches.append(PatchNode(node=node.name, annotations={NODE_FACTS_ANNOTATION: None}, why=WHY))
        patch = merged(node, patches)
        if patch is not None:
            yield msgspec.structs.replace(patch, resource_version=snapshot.versions.get(node.name, ""))


def _is_marked(node: NodeView) -> bool:
    """Whether Purser's operator had it: labels of nvidia.com alone may be another operator's."""
    own = (*OWNED_NODE_LABELS, *(each for each in OWNED_NODE_ANNOTATIONS if each != NODE_FACTS_ANNOTATION))
    return any(key in node.labels or key in node.annotations for key in own if _is_pursers(key))


def _is_pursers(key: str) -> bool:
    """A label or annotation that nobody else writes."""
    return key.startswith(f"{GROUP}/")


def _is_pause(value: str) -> bool:
    return value in (PAUSED_FOR_UPGRADE, PAUSED_FOR_MIG)
