"""Which nodes are not complete and will not be by themselves, and why in one sentence."""

from collections.abc import Iterable, Iterator, Mapping

from purser.operator.gates.driver_removal import why_it_stays
from purser.operator.gates.facts import can_gpus_mig
from purser.operator.mig import trouble_of
from purser.operator.model import UNTOLERATED, LeftOut, ObjectKey, RefusedWrite, Standing
from purser.operator.names import MIG_CAPABLE_LABEL, MIG_CONFIG_LABEL
from purser.operator.order import Operand
from purser.operator.policy.status import FailingNode
from purser.operator.upgrade import is_kept_by_taint
from purser.operator.upgrade import trouble_of as upgrade_trouble_of
from purser.operator.wording import some

LAYOUT_REASONS = ("MigChangeFailed", "MigNotPossible")
"""The node's GPUs are not cut as somebody asked: they work, and the node may be complete all the same."""

HANDLING_FAILED = "HandlingFailed"
"""A part of Purser failed on the node."""

_UNCUT = ("", "all-disabled")
"""Layouts that every GPU has."""


def failing_nodes(
    standings: Iterable[Standing],
    refusals: Iterable[RefusedWrite] = (),
    *,
    has_mig_manager: bool = False,
    upgrades_drivers: bool = False,
) -> Iterator[FailingNode]:
    """The first cause of each node that fails, in the order of nodes. One that people have excluded fails only where it
    does not become as they want it. ``has_mig_manager``: the policy would change MIG layouts; ``upgrades_drivers``: it
    would replace drivers."""
    refused = {each.key: each.why for each in refusals}
    for standing in standings:
        found = next(_hindrances(standing, refused), None)
        if found is None and not standing.excluded:
            found = next(_causes(standing, has_mig_manager, upgrades_drivers), None)
        if found is not None:
            yield found


def unhandled(nodes: Iterable[LeftOut]) -> Iterator[FailingNode]:
    """Those that a part of Purser failed on, GPU nodes or not: that cannot be told."""
    for each in nodes:
        yield FailingNode(name=each.node.name, reason=HANDLING_FAILED, message=each.why)


def sentence(failing: FailingNode) -> str:
    """``node a: driver: CrashLoopBackOff: back-off restarting``."""
    parts = (f"node {failing.name}", failing.operand, failing.reason, failing.message)
    return ": ".join(filter(None, parts))


def _hindrances(standing: Standing, refused: Mapping[ObjectKey, str]) -> Iterator[FailingNode]:
    """What keeps the operator from doing with a node what it would."""
    name, departure = standing.node.name, standing.departure
    if told := refused.get(ObjectKey.of_node(name)):
        yield FailingNode(name=name, reason="WriteRefused", message=told)
    if standing.presence.users:
        using = some(standing.presence.users, "pod", named=1)
        told = f"nobody sees its GPUs any more, though pod {using} uses one: they count as gone once no pod does"
        yield FailingNode(name=name, reason="GpusNotSeen", message=told)
    if departure is not None and departure.stays and departure.users:
        told = (
            f"it is to leave, but {why_it_stays(departure)}: it goes once no pod does, and nobody is evicted for that"
        )
        yield FailingNode(name=name, operand=Operand.DRIVER, reason="DriverHeld", message=told)


def _causes(standing: Standing, has_mig_manager: bool, upgrades_drivers: bool) -> Iterator[FailingNode]:
    node = standing.node
    if standing.obstacle and standing.pod_of(Operand.DRIVER) is None:
        yield FailingNode(name=node.name, operand=Operand.DRIVER, reason="NoDriver", message=standing.obstacle)
    elif standing.obstacle:
        told = f"it keeps the driver that it has, and gets no other: {standing.obstacle}"
        yield FailingNode(name=node.name, operand=Operand.DRIVER, reason="NoNewDriver", message=told)
    if told := upgrade_trouble_of(node):
        yield FailingNode(name=node.name, operand=Operand.DRIVER, reason="UpgradeFailed", message=told)
    if not node.ready:
        yield FailingNode(name=node.name, reason="NodeNotReady", message="kubelet does not say that it is ready")
    if upgrades_drivers and is_kept_by_taint(standing):
        told = f"it keeps the driver that it has, and gets no other: {standing.barred}"
        yield FailingNode(name=node.name, operand=Operand.DRIVER, reason=UNTOLERATED, message=told)
    for operand, on_node in standing.operands.items():
        if on_node.state == "failing":
            yield FailingNode(name=node.name, operand=operand, reason=on_node.reason, message=on_node.message)
    if told := trouble_of(node):
        yield FailingNode(name=node.name, operand=Operand.MIG_MANAGER, reason="MigChangeFailed", message=told)
    if has_mig_manager and (told := _impossible_layout(standing)):
        yield FailingNode(name=node.name, operand=Operand.MIG_MANAGER, reason="MigNotPossible", message=told)


def _impossible_layout(standing: Standing) -> str:
    """What its label asks for though its GPUs cannot do that, as far as anybody can tell, in one sentence; empty:
    nothing. Until all else is complete it may still be told what they can."""
    profile = standing.node.labels.get(MIG_CONFIG_LABEL, "")
    can = can_gpus_mig(standing.node)
    asks = f"its label {MIG_CONFIG_LABEL} asks for MIG layout {profile}"
    if profile in _UNCUT:
        return ""
    if can is False:
        return f"{asks}, and its GPUs cannot MIG"
    others = (each.state for each in standing.operands.values())
    if can is None and not standing.mig_capable and all(state == "ready" for state in others):
        return f"{asks}, and nobody tells whether its GPUs can MIG: if they can, set the label {MIG_CAPABLE_LABEL}=true"
    return ""
