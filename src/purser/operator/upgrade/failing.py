"""How one node's upgrade fails, and what is said of it."""

from purser.operator.model import NodeView, Standing
from purser.operator.names import UPGRADE_FAILURE_ANNOTATION
from purser.operator.nodework.cordons import Cordoner, is_cordoned_by
from purser.operator.nodework.steps import NodeStep, to
from purser.operator.order import Operand
from purser.operator.upgrade.states import State, UpgradeInputs, state_of
from purser.operator.upgrade.writing import fail, say

UNTOLD = "its driver upgrade failed, and the node does not say why any more"


def give_up(standing: Standing, fleet: UpgradeInputs, why: str) -> NodeStep:
    """Before its old driver was touched: the node is given back, and tried again later."""
    return to(fail(standing, fleet.now, why, touched=False), say(standing.node, why, warning=True))


def regress(standing: Standing, fleet: UpgradeInputs, why: str) -> NodeStep:
    """After: it stays cordoned, and counts towards halting the upgrade."""
    return to(fail(standing, fleet.now, why, touched=True), say(standing.node, why, warning=True))


def trouble_of(node: NodeView) -> str:
    """Why a node whose upgrade failed is as it is, in one sentence; empty where none failed. One that stays cordoned
    for it is told of until its next upgrade begins."""
    state = state_of(node)
    why = node.annotations.get(UPGRADE_FAILURE_ANNOTATION) or UNTOLD
    if state is State.FAILED:
        return why
    is_half_way = state is State.REQUIRED and is_cordoned_by(node, Cordoner.UPGRADE)
    return f"cordoned since its last upgrade failed, it waits for its turn: {why}" if is_half_way else ""


def trouble(standing: Standing) -> str:
    """What is wrong with its driver's pod, as the end of a sentence."""
    pod = standing.pod_of(Operand.DRIVER)
    if pod is None:
        is_going = any(each.operand == Operand.DRIVER for each in standing.pods)
        return ": its old pod has not gone" if is_going else ": it has no pod"
    return f": {pod.message or pod.trouble}" if pod.trouble or pod.message else ""


def unready(standing: Standing) -> str:
    """The first operand that is not ready, and why, as the end of a sentence."""
    for operand in standing.operands.values():
        if operand.state not in ("ready", "excluded"):
            return f": {operand.operand} is {operand.state}{': ' + operand.message if operand.message else ''}"
    return ""
