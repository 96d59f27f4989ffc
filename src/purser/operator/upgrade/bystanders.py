"""Nodes that nothing is done to because something fails on them: what they may be, by their plain fields alone.

Whatever cannot be ruled out counts, so that others never do more than they may.
"""

from purser.operator.model import LeftOut
from purser.operator.names import MIG_STEP_ANNOTATION, UPGRADE_STATE_LABEL, UPGRADE_TARGET_ANNOTATION
from purser.operator.upgrade.states import State, UpgradeInputs

_AT_REST = frozenset({State.UNKNOWN.value, State.REQUIRED.value, State.DONE.value, State.FAILED.value})


def may_be_under_way(left_out: LeftOut) -> bool:
    """Its upgrade may have begun."""
    return _state(left_out) not in _AT_REST


def may_be_unavailable(left_out: LeftOut) -> bool:
    """It may take no new pods, or soon will not."""
    node = left_out.node
    held = node.unschedulable or MIG_STEP_ANNOTATION in node.annotations
    return held or not node.ready or may_be_under_way(left_out)


def may_have_failed(left_out: LeftOut, fleet: UpgradeInputs) -> bool:
    """The driver that it was upgraded to may not work there, and nobody said that this is no matter."""
    target = left_out.node.annotations.get(UPGRADE_TARGET_ANNOTATION, "")
    if target and target in {each.strip() for each in fleet.resume.split(",")}:
        return False
    state = _state(left_out)
    done = state == State.DONE.value and left_out.node.ready and not left_out.driver_is_ready
    return state == State.FAILED.value or (done and bool(target))


def _state(left_out: LeftOut) -> str:
    return left_out.node.labels.get(UPGRADE_STATE_LABEL, "")
