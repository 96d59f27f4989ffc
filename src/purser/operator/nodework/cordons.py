"""Whose cordon a node has. Cordon and mark are one write, so that a mark on a schedulable node is void: others lifted
the cordon, and the next one is theirs."""

from purser.operator.model import NodeView, PatchNode
from purser.operator.names import CORDONED_BY_ANNOTATION


def is_cordoned_by(node: NodeView, mark: str) -> bool:
    """The node is cordoned, and the mark says by whom."""
    return node.unschedulable and node.annotations.get(CORDONED_BY_ANNOTATION) == mark


def void_mark(node: NodeView) -> PatchNode | None:
    """Takes a void mark away, with whatever else is written; None where there is none."""
    if node.unschedulable or CORDONED_BY_ANNOTATION not in node.annotations:
        return None
    return PatchNode(node=node.name, annotations={CORDONED_BY_ANNOTATION: None}, why="its cordon was lifted by others")
