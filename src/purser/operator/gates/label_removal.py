"""What the operator wrote on a node is taken away again: because its GPUs are gone, or no policy is left."""

from purser.core.names import NODE_FACTS_ANNOTATION
from purser.operator.gates.facts import contradicts_nfd, user_override
from purser.operator.maintenance import is_cordoned_by_purser
from purser.operator.model import NodeView, PatchNode
from purser.operator.names import (
    DRIVER_MANAGER_LABELS,
    GPU_PRESENT_LABEL,
    GROUP,
    OWNED_NODE_ANNOTATIONS,
    OWNED_NODE_LABELS,
    PAUSED_FOR_MIG,
    PAUSED_FOR_UPGRADE,
    PREINSTALLED,
    RUNTIME_LABEL,
)
from purser.operator.order import Operand

NO_POLICY = "no ClusterPolicy is left"


def gone_patch(node: NodeView) -> PatchNode:
    """What a node keeps whose GPUs are gone: the word that it has none, and that Purser said so."""
    patch = removal_patch(node)
    labels = {**patch.labels, GPU_PRESENT_LABEL: "false"}
    labels.pop(RUNTIME_LABEL, None)
    old: dict[str, str | None] = {NODE_FACTS_ANNOTATION: None} if contradicts_nfd(node) else {}
    return PatchNode(
        node=node.name,
        labels=labels,
        annotations={**patch.annotations, **old},
        unschedulable=patch.unschedulable,
        why="GPUs are gone",
    )


def removal_patch(node: NodeView, *, has_rivals: bool = False) -> PatchNode:
    """Takes away what the operator wrote on a node, its cordons included. What discovery wrote is another matter.

    ``has_rivals``: another operator is at work there. Labels and annotations of nvidia.com may be its own by now. A
    pause is not: nobody else would end it.
    """
    labels = [label for label in OWNED_NODE_LABELS if label in node.labels]
    labels += [
        each.deploy_label for each in Operand if each.deploy_label in node.labels and not _is_user_override(node, each)
    ]
    labels += [label for label in DRIVER_MANAGER_LABELS if node.labels.get(label) == ""]
    annotations = [
        each for each in OWNED_NODE_ANNOTATIONS if each in node.annotations and each != NODE_FACTS_ANNOTATION
    ]
    return PatchNode(
        node=node.name,
        labels={each: None for each in labels if not has_rivals or _is_pursers(each) or _is_pause(node.labels[each])},
        annotations={each: None for each in annotations if not has_rivals or _is_pursers(each)},
        unschedulable=False if is_cordoned_by_purser(node) else None,
        why=NO_POLICY,
    )


def _is_user_override(node: NodeView, operand: Operand) -> bool:
    """Whether people wrote an operand's label. That a node has a driver of its own NVIDIA's driver manager writes."""
    return user_override(node, operand) not in ("", PREINSTALLED)


def is_marked(node: NodeView) -> bool:
    """Whether Purser's operator had it: labels of nvidia.com alone may be another operator's."""
    own = (*OWNED_NODE_LABELS, *(each for each in OWNED_NODE_ANNOTATIONS if each != NODE_FACTS_ANNOTATION))
    return any(key in node.labels or key in node.annotations for key in own if _is_pursers(key))


def _is_pursers(key: str) -> bool:
    """A label or annotation that nobody else writes."""
    return key.startswith(f"{GROUP}/")


def _is_pause(value: str) -> bool:
    return value in (PAUSED_FOR_UPGRADE, PAUSED_FOR_MIG)
