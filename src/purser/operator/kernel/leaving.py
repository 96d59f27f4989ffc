"""What has to go when the last ClusterPolicy goes: objects, labels and annotations of nodes, cordons of Purser's."""

from collections.abc import Iterator

from purser.core.names import NODE_FACTS_ANNOTATION
from purser.operator.kernel.facts import users_word
from purser.operator.kernel.objects import removals
from purser.operator.model import Delete, NodeView, PatchNode, Snapshot
from purser.operator.names import (
    CORDONED_BY_ANNOTATION,
    GROUP,
    OWNED_NODE_ANNOTATIONS,
    OWNED_NODE_LABELS,
)
from purser.operator.order import Operand

DISCOVERY = "gpu-discovery"
"""Operand label of Purser's discovery."""


def cleanup(snapshot: Snapshot) -> tuple[PatchNode | Delete, ...]:
    """What remains to be done until nothing of the operator is left; nothing, if that is so or only time is missing."""
    return (*_nodes(snapshot), *removals(snapshot, snapshot.objects, "no ClusterPolicy is left"))


def is_clean(snapshot: Snapshot) -> bool:
    """Whether nothing is left: no object, no pod that could still write (one of a dead node cannot), no label."""
    alive = {node.name for node in snapshot.nodes if node.ready}
    return not snapshot.objects and not cleanup(snapshot) and not any(pod.node in alive for pod in snapshot.pods)


def stripped(node: NodeView) -> PatchNode:
    """Takes away what the operator wrote on a node, its cordons included. What discovery wrote is another matter."""
    labels = [label for label in OWNED_NODE_LABELS if label in node.labels]
    labels += [each.deploy_label for each in Operand if each.deploy_label in node.labels and not users_word(node, each)]
    annotations = [
        each for each in OWNED_NODE_ANNOTATIONS if each in node.annotations and each != NODE_FACTS_ANNOTATION
    ]
    return PatchNode(
        node=node.name,
        labels=dict.fromkeys(labels),
        annotations=dict.fromkeys(annotations),
        unschedulable=False if CORDONED_BY_ANNOTATION in node.annotations else None,
        why="no ClusterPolicy is left",
    )


def _nodes(snapshot: Snapshot) -> Iterator[PatchNode]:
    """Discovery would write its facts anew, so that they stay as long as it runs."""
    discovered = any(pod.operand == DISCOVERY for pod in snapshot.pods)
    for node in sorted(snapshot.nodes, key=lambda node: node.name):
        annotations: dict[str, str | None] = {}
        if NODE_FACTS_ANNOTATION in node.annotations and not discovered:
            annotations[NODE_FACTS_ANNOTATION] = None
        if _is_marked(node):
            patch = stripped(node)
            yield PatchNode(
                node=node.name,
                labels=patch.labels,
                annotations={**patch.annotations, **annotations},
                unschedulable=patch.unschedulable,
                why=patch.why,
            )
        elif annotations:
            yield PatchNode(node=node.name, annotations=annotations, why="no ClusterPolicy is left")


def _is_marked(node: NodeView) -> bool:
    """Whether Purser's operator had it: labels of nvidia.com alone may be another operator's."""
    own = (*OWNED_NODE_LABELS, *(each for each in OWNED_NODE_ANNOTATIONS if each != NODE_FACTS_ANNOTATION))
    return any(key in node.labels or key in node.annotations for key in own if key.startswith(f"{GROUP}/"))
