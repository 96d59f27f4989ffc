"""Cordons that say whose they are, so that whoever set one lifts it, and nobody else's."""

from enum import StrEnum

from purser.operator.maintenance.steps import NodeTexts
from purser.operator.model import NodeView, PatchNode
from purser.operator.names import CORDONED_BY_ANNOTATION


class Cordoner(StrEnum):
    """Who of Purser cordons nodes: values of the annotation ``purser.dev/cordoned-by``."""

    UPGRADE = "driver-upgrade"
    MIG = "mig-change"


def is_cordoned_by(node: NodeView, by: Cordoner) -> bool:
    """The cordon was set by this one, and may be lifted by it."""
    return is_cordoned_by_purser(node) and node.annotations[CORDONED_BY_ANNOTATION] == by


def is_cordoned_by_purser(node: NodeView) -> bool:
    """The node is cordoned, and the mark says that it was Purser."""
    return node.unschedulable and CORDONED_BY_ANNOTATION in node.annotations


def claim(node: NodeView, by: Cordoner) -> NodeTexts:
    """The mark that a cordon is set with; nothing where somebody else's is there already."""
    return {} if node.unschedulable and not is_cordoned_by(node, by) else {CORDONED_BY_ANNOTATION: by.value}


def lift(node: NodeView, by: Cordoner) -> tuple[NodeTexts, bool | None]:
    """Mark and cordon afterwards: lifted where it is this one's, left where it is not."""
    return ({CORDONED_BY_ANNOTATION: None}, False) if is_cordoned_by(node, by) else ({}, None)


def clear_stale_cordon_mark(node: NodeView) -> PatchNode | None:
    """Takes a void mark away, with whatever else is written; None where there is none."""
    if node.unschedulable or CORDONED_BY_ANNOTATION not in node.annotations:
        return None
    return PatchNode(node=node.name, annotations={CORDONED_BY_ANNOTATION: None}, why="cordon lifted by somebody else")
