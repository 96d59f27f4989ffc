"""Which nodes are not complete and will not be by themselves, and why in one sentence."""

from collections.abc import Iterable, Iterator

from purser.operator.kernel.facts import is_excluded
from purser.operator.mig import trouble_of
from purser.operator.model import Standing
from purser.operator.names import UPGRADE_FAILURE_ANNOTATION, UPGRADE_STATE_LABEL
from purser.operator.order import Operand
from purser.operator.policy.status import FailingNode


def failing_nodes(standings: Iterable[Standing]) -> Iterator[FailingNode]:
    """The first cause of each node that fails, in the order of nodes. One that people have excluded does not."""
    for standing in standings:
        found = None if is_excluded(standing.node) else next(_causes(standing), None)
        if found is not None:
            yield found


def sentence(failing: FailingNode) -> str:
    """``node a: driver: CrashLoopBackOff: back-off restarting``."""
    parts = (f"node {failing.name}", failing.operand, failing.reason, failing.message)
    return ": ".join(filter(None, parts))


def _causes(standing: Standing) -> Iterator[FailingNode]:
    node = standing.node
    if standing.obstacle:
        yield FailingNode(name=node.name, operand=Operand.DRIVER, reason="NoDriver", message=standing.obstacle)
    if node.labels.get(UPGRADE_STATE_LABEL) == "upgrade-failed":
        told = node.annotations.get(UPGRADE_FAILURE_ANNOTATION, "")
        yield FailingNode(name=node.name, operand=Operand.DRIVER, reason="UpgradeFailed", message=told)
    if not node.ready:
        yield FailingNode(name=node.name, reason="NodeNotReady", message="kubelet does not say that it is ready")
    for operand, on_node in standing.operands.items():
        if on_node.state == "failing":
            yield FailingNode(name=node.name, operand=operand, reason=on_node.reason, message=on_node.message)
    if told := trouble_of(node):
        yield FailingNode(name=node.name, operand=Operand.MIG_MANAGER, reason="MigChangeFailed", message=told)
