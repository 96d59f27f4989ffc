"""Which nodes are not complete and will not be by themselves, and why in one sentence."""

from collections.abc import Iterable, Iterator, Mapping

from purser.core.names import MIG_CONFIG_LABEL
from purser.core.wording import some
from purser.kube.reasons import FailureReason
from purser.operator.gates import do_gpus_support_mig, removal_blocker, unknown_workload
from purser.operator.mig import failure_of
from purser.operator.model import IsolatedNode, NodeProgress, ObjectKey, RefusedWrite
from purser.operator.names import MIG_CAPABLE_LABEL, WORKLOAD_LABEL
from purser.operator.order import Operand
from purser.operator.policy.spec import FailingNode
from purser.operator.reasons import OperatorReason
from purser.operator.upgrade import failure_of as upgrade_failure_of
from purser.operator.upgrade import is_blocked_by_taint

LABEL_REASONS = (
    OperatorReason.MIG_CHANGE_FAILED,
    OperatorReason.MIG_UNSUPPORTED,
    OperatorReason.WORKLOAD_UNKNOWN,
)
"""The node is not as a label of it asks for: its GPUs work, and the node may still be complete."""

_KNOWN_WORKLOADS = "set the label to container, vm-passthrough or vm-vgpu"
_NO_LAYOUT = ("", "all-disabled")
"""Layouts that every GPU has."""


def failing_nodes(
    node_progress: Iterable[NodeProgress],
    refusals: Iterable[RefusedWrite] = (),
    *,
    has_mig_manager: bool = False,
    upgrades_drivers: bool = False,
) -> Iterator[FailingNode]:
    """The first cause of each node that fails, in the order of nodes. One that people have excluded fails only where it
    does not become as they want it. ``has_mig_manager``: the policy would change MIG layouts; ``upgrades_drivers``: it
    would replace drivers."""
    refused = {each.key: each.why for each in refusals}
    for progress in node_progress:
        found = next(_blockers(progress, refused), None)
        if found is None and not progress.excluded:
            found = next(_causes(progress, has_mig_manager, upgrades_drivers), None)
        if found is None and (unknown := unknown_workload(progress.node)):
            asks = f"label {WORKLOAD_LABEL} has unknown value {unknown}"
            message = f"{asks}, so {progress.workload} applies: {_KNOWN_WORKLOADS}"
            found = FailingNode(name=progress.node.name, reason=OperatorReason.WORKLOAD_UNKNOWN, message=message)
        if found is not None:
            yield found


def failing_nodes_of_isolated(nodes: Iterable[IsolatedNode]) -> Iterator[FailingNode]:
    """Nodes that a part of Purser failed on; whether they have GPUs is unknown."""
    for each in nodes:
        yield FailingNode(name=each.node.name, reason=FailureReason.FAILED, message=each.why)


def sentence(failing: FailingNode) -> str:
    """``node a: driver: CrashLoopBackOff: back-off restarting``."""
    parts = (f"node {failing.name}", failing.operand, failing.reason, failing.message)
    return ": ".join(filter(None, parts))


def _blockers(progress: NodeProgress, refused: Mapping[ObjectKey, str]) -> Iterator[FailingNode]:
    """What keeps the operator from doing with a node what it would."""
    name, removal = progress.node.name, progress.driver_removal
    if message := refused.get(ObjectKey.of_node(name)):
        yield FailingNode(name=name, reason=OperatorReason.WRITE_REFUSED, message=message)
    if progress.presence.users:
        using = some(progress.presence.users, "pod", named=1)
        message = (
            f"the GPUs are no longer detected but are still used by pod {using}; operands stay until no pod uses them"
        )
        yield FailingNode(name=name, reason=OperatorReason.GPUS_MISSING, message=message)
    if removal is not None and removal.stays and removal.users:
        message = f"the driver cannot be removed: {removal_blocker(removal)}; pods are not evicted to remove a driver"
        yield FailingNode(name=name, operand=Operand.DRIVER, reason=OperatorReason.DRIVER_IN_USE, message=message)


def _causes(progress: NodeProgress, has_mig_manager: bool, upgrades_drivers: bool) -> Iterator[FailingNode]:
    node = progress.node
    if progress.obstacle and progress.pod_of(Operand.DRIVER) is None:
        yield FailingNode(
            name=node.name, operand=Operand.DRIVER, reason=OperatorReason.NO_DRIVER, message=progress.obstacle
        )
    elif progress.obstacle:
        message = f"the driver is not upgraded: {progress.obstacle}"
        yield FailingNode(
            name=node.name, operand=Operand.DRIVER, reason=OperatorReason.DRIVER_VERSION_BLOCKED, message=message
        )
    if message := upgrade_failure_of(node):
        yield FailingNode(name=node.name, operand=Operand.DRIVER, reason=OperatorReason.UPGRADE_FAILED, message=message)
    if not node.ready:
        yield FailingNode(
            name=node.name,
            reason=OperatorReason.NODE_NOT_READY,
            message="the kubelet does not report the node as Ready",
        )
    if upgrades_drivers and is_blocked_by_taint(progress):
        message = f"the driver is not upgraded: {progress.untolerated}"
        yield FailingNode(name=node.name, operand=Operand.DRIVER, reason=OperatorReason.UNTOLERATED, message=message)
    for operand, on_node in progress.operands.items():
        if on_node.state == "failing":
            yield FailingNode(name=node.name, operand=operand, reason=on_node.reason, message=on_node.message)
    if message := failure_of(node):
        yield FailingNode(
            name=node.name, operand=Operand.MIG_MANAGER, reason=OperatorReason.MIG_CHANGE_FAILED, message=message
        )
    if has_mig_manager and (message := _layout_problem(progress)):
        yield FailingNode(
            name=node.name, operand=Operand.MIG_MANAGER, reason=OperatorReason.MIG_UNSUPPORTED, message=message
        )


def _layout_problem(progress: NodeProgress) -> str:
    """What its label asks for and its GPUs cannot do, as far as known, in one sentence; empty: nothing. Until feature
    discovery is complete this may still change."""
    profile = progress.node.labels.get(MIG_CONFIG_LABEL, "")
    is_capable = do_gpus_support_mig(progress.node)
    asks = f"label {MIG_CONFIG_LABEL} requests MIG layout {profile}"
    if profile in _NO_LAYOUT:
        return ""
    if is_capable is False:
        return f"{asks}, but the node's GPUs do not support MIG"
    others = (each.state for each in progress.operands.values())
    if is_capable is None and not progress.mig_capable and all(state == "ready" for state in others):
        return (
            f"{asks}, but the node's GPUs are not known to support MIG: if they do, set label {MIG_CAPABLE_LABEL}=true"
        )
    return ""
