"""What an upgrade would do, before it happens: by the course that it would take, and as text. Of nodes whose upgrade
has begun already, what they wait for is shown as it is."""

from collections.abc import Iterator, Mapping

import msgspec

from purser.operator.model import NodeProgress, PlannedChanges
from purser.operator.order import Operand
from purser.operator.upgrade.budget import fleet_target, turn
from purser.operator.upgrade.fleet import advance
from purser.operator.upgrade.simulation import PlannedNode, UpgradeSimulation
from purser.operator.upgrade.states import UpgradeInputs, is_due, is_managed, is_under_way, skip_reason, stale_pod
from purser.operator.upgrade.writes import failure_of
from purser.operator.wording import counted, natural


class UpgradePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What an upgrade would do."""

    target: str
    waves: tuple[tuple[PlannedNode, ...], ...] = ()
    """Nodes that begin together, in order."""
    under_way: tuple[PlannedNode, ...] = ()
    """Nodes whose upgrade has begun, ordered by name."""
    skipped: dict[str, str] = {}
    """By node that needs an upgrade and is left out: why."""
    waiting: dict[str, str] = {}
    """By node that needs one and never gets its turn: why."""
    unmanaged: dict[str, str] = {}
    """By node whose driver the operator does not replace: why."""
    current: int = 0
    """How many nodes have their driver already."""
    off: bool = False
    """Automatic upgrades are off: none of it would happen by itself."""


def plan(fleet: UpgradeInputs) -> UpgradePlan:
    """What the upgrade of this fleet would do, once its DaemonSets are as the policy says. ``fleet.workloads`` has the
    pods of every node that needs one."""
    simulation = UpgradeSimulation(fleet)
    under_way = sorted((each.node.name for each in fleet.node_progress if is_under_way(each.node)), key=natural)
    first = simulation.fleet()
    doing = _doing(advance(first, turn(first)))
    simulation.run()
    final = turn(simulation.whole_fleet())
    begun = {name for wave in simulation.waves for name in wave}.union(under_way)
    due = [each for each in fleet.node_progress if is_due(each) and each.node.name not in begun]
    return UpgradePlan(
        target=fleet_target(fleet.node_progress),
        waves=tuple(tuple(simulation.planned_node(name) for name in wave) for wave in simulation.waves),
        under_way=tuple(simulation.planned_node(name, doing.get(name, "")) for name in under_way),
        skipped={each.node.name: why for each in due if (why := skip_reason(each))},
        waiting={each.node.name: _why_waiting(each, final.waiting) for each in due if not skip_reason(each)},
        unmanaged={each.node.name: why for each in fleet.node_progress if (why := each.obstacle or each.waits)},
        current=sum(_is_current(each) for each in fleet.node_progress),
        off=not fleet.policy.auto_upgrade,
    )


def _why_waiting(progress: NodeProgress, whys: Mapping[str, str]) -> str:
    if progress.node.name in whys:
        return whys[progress.node.name]
    if why := failure_of(progress.node):
        return f"retried later: {why}"
    return "queued behind nodes that take longer than this plan covers"


def _is_current(progress: NodeProgress) -> bool:
    has_driver = progress.pod_of(Operand.DRIVER) is not None and stale_pod(progress) is None
    return has_driver and is_managed(progress) and not is_under_way(progress.node)


def _doing(planned: PlannedChanges) -> dict[str, str]:
    """By node: what it waits for, or what is done next."""
    return {name: patch.why for name, patch in planned.patches.items()} | planned.waits


# --- as text


def plan_lines(plan: UpgradePlan) -> list[str]:
    """For people: who is under way, then wave by wave, then who is left out and why."""
    return list(_lines(plan))


def _lines(plan: UpgradePlan) -> Iterator[str]:
    yield f"target: {plan.target or 'no driver of the operator'}"
    if plan.off:
        yield "automatic upgrades are off (spec.driver.upgradePolicy.autoUpgrade): none of this is automatic"
    for node in plan.under_way:
        yield from _node(node)
    if not plan.waves and not plan.under_way:
        yield "no node would be upgraded"
    for number, wave in enumerate(plan.waves, 1):
        yield f"wave {number}: {counted(len(wave), 'node')}"
        for node in wave:
            yield from _node(node)
    yield from _whys("skipped", plan.skipped)
    yield from _whys("waiting", plan.waiting)
    yield from _whys("no driver", plan.unmanaged)
    yield f"{counted(plan.current, 'node')} {'has' if plan.current == 1 else 'have'} the target driver"


def _node(node: PlannedNode) -> Iterator[str]:
    how = " (driver pod restart, no pod is evicted)" if node.restart_only else ""
    begun, now = ("under way: ", f", {node.step}: {node.waits}") if node.step else ("  ", "")
    fails = f" WOULD FAIL: {node.fails}" if node.fails else ""
    yield f"{begun}{node.name}: driver {node.version}{how}{now}{fails}"
    for pod in node.pods:
        yield f"    {pod.how}: pod {pod.namespace}/{pod.name}{f' ({pod.why})' if pod.why else ''}"


def _whys(what: str, whys: Mapping[str, str]) -> Iterator[str]:
    for name, why in sorted(whys.items(), key=lambda each: natural(each[0])):
        yield f"{what}: {name}: {why}"
