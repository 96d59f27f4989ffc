"""What an operand waits for before it is let in to a node: the one place where a gate's rule stands.

`node_progress` writes the answer down as `OperandOnNode.entry`; the labels follow from that, and so does what the
status says. A new thing to wait for is a branch of `wait_of`, of what `NodeView` knows, with a reason of its own.
"""

from collections.abc import Mapping

from purser.operator.gates.facts import was_rebooted
from purser.operator.model import EntryWait, NodeProgress, NodeView, OperandOnNode
from purser.operator.names import OPENED_BOOT_ANNOTATION
from purser.operator.order import Operand, prerequisites
from purser.operator.reasons import OperatorReason


def gate_of(node: NodeView, operand: Operand) -> str:
    """What an operand's label says, where Purser has been at the node; empty: it was not let in. A label that another
    operator left behind lets nobody in."""
    return node.labels.get(operand.deploy_label, "") if OPENED_BOOT_ANNOTATION in node.annotations else ""


def wait_of(
    progress: NodeProgress, operand: Operand, own: tuple[Operand, ...], found: Mapping[Operand, OperandOnNode]
) -> EntryWait | None:
    """What keeps an operand out that is not in yet; None: it may enter. ``own``: those that the node is to have;
    ``found``: how those are that come before it."""
    if operand is Operand.DRIVER:
        return _drivers_wait(progress)
    if why := _outside(progress, own):
        return EntryWait(OperatorReason.WAITING, why, leaves=True)
    needed = prerequisites(operand, own)
    lacking = [each for each in own if each in needed and found[each].state != "ready"]
    return EntryWait(OperatorReason.WAITING, f"waiting for {', '.join(lacking)}") if lacking else None


def _drivers_wait(progress: NodeProgress) -> EntryWait | None:
    if progress.obstacle:
        return EntryWait(OperatorReason.NO_DRIVER, progress.obstacle, fails=True)
    return EntryWait(OperatorReason.MODEL_UNKNOWN, progress.waits) if progress.waits else None


def _outside(progress: NodeProgress, own: tuple[Operand, ...]) -> str:
    """What everything that needs the driver waits for outside; empty: nothing. After a reboot all is let in again, in
    order. A driver that is to leave, and that no pod uses any more, goes last."""
    if Operand.DRIVER in own and is_rebooted(progress.node):
        return f"waiting for {Operand.DRIVER}"
    removal = progress.driver_removal
    if removal is not None and (removal.terminating or removal.users == ()):
        return "waiting for the removal of the former driver"
    return ""


def is_rebooted(node: NodeView) -> bool:
    """Whether it was started since operands were let in."""
    return was_rebooted(node, opened_boot(node))


def opened_boot(node: NodeView) -> str:
    """The boot that operands were let in for; empty: none was."""
    return node.annotations.get(OPENED_BOOT_ANNOTATION, "")
