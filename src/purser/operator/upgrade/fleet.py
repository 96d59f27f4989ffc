"""One round of the upgrade over the whole fleet: what is done, and how it stands."""

from collections.abc import Mapping

import msgspec

from purser.core.wording import counted, natural_sort_key, some
from purser.operator.maintenance import DisruptionLedger, planned_changes_of, waits_by_node
from purser.operator.model import EmitEvent, Gauge, PatchNode, PlannedChanges
from purser.operator.policy.spec import MAX_UPCOMING_UPGRADES, UpcomingUpgrade, UpgradeStatus
from purser.operator.reasons import OperatorReason
from purser.operator.upgrade.budget import UpgradeTurn, fleet_target, upcoming
from purser.operator.upgrade.machine import begin, next_step
from purser.operator.upgrade.states import (
    STATES_UNDER_WAY,
    State,
    UpgradeInputs,
    daemonset_problem,
    is_managed,
    is_restart_only,
    is_under_way,
    skip_reason,
    stale_pod,
    state_of,
)
from purser.operator.upgrade.writes import failure_of, release


def advance(fleet: UpgradeInputs, now: UpgradeTurn) -> PlannedChanges:
    """What to do next on every node: at most one patch each. ``now``: whose turn it is.

    Nodes that are under way go on whatever happens; new ones begin as far as the bounds allow.
    """
    if not fleet.policy.auto_upgrade:
        return PlannedChanges(patches=_released(fleet), gauges=_gauges(fleet, now))
    ledger = DisruptionLedger(fleet.budgets)
    nodes = sorted(fleet.node_progress, key=lambda each: natural_sort_key(each.node.name))
    steps = {each.node.name: next_step(each, fleet, ledger) for each in nodes}
    begun = {each.node.name: begin(each, fleet) for each in now.begin}
    planned = planned_changes_of(steps | begun, fleet.now, now.hold.until if now.waiting else None)
    return msgspec.structs.replace(
        planned,
        events=(*_policy_events(fleet, now), *planned.events),
        waits=waits_by_node(steps),  # also of nodes that begin now: some say why their last upgrade failed
        gauges=_gauges(fleet, now),
    )


def upgrade_status(fleet: UpgradeInputs, now: UpgradeTurn, planned: PlannedChanges) -> UpgradeStatus:
    """How far the upgrade is, and what is in the way, by the turn and the moves of the round."""
    counts = _counts(fleet)
    is_halted = bool(now.halted) and counts["pending"] > 0
    total = sum(counts.values())
    return UpgradeStatus(
        **counts,
        progress=f"{counts['done']}/{total}" if counts["done"] < total else "",
        halted=is_halted,
        halt_reason=now.halted if is_halted else "",
        target=fleet_target(fleet.node_progress),
        message=_message(fleet, planned, now, counts),
        upcoming=tuple(
            UpcomingUpgrade(
                name=each.node.name,
                driver=each.pool.version if each.pool is not None else "",
                restart_only=is_restart_only(each),
            )
            for each in upcoming(fleet, MAX_UPCOMING_UPGRADES)
        ),
    )


def _released(fleet: UpgradeInputs) -> dict[str, PatchNode]:
    """Automatic upgrades are off: nodes are given back as they are."""
    made = (release(each.node, "automatic upgrades are off") for each in fleet.node_progress)
    return {each.node: each for each in made if each is not None}


def _policy_events(fleet: UpgradeInputs, now: UpgradeTurn) -> tuple[EmitEvent, ...]:
    if not now.halted or not now.waiting:
        return ()
    name, uid = fleet.policy_ref
    return (
        EmitEvent(
            "ClusterPolicy",
            name,
            uid,
            OperatorReason.DRIVER_UPGRADE_HALTED,
            f"the driver upgrade is halted: {now.halted}",
            True,
        ),
    )


# --- in numbers and words


def _counts(fleet: UpgradeInputs) -> dict[str, int]:
    counts = dict.fromkeys(("pending", "in_progress", "done", "failed", "skipped"), 0)
    for progress in fleet.node_progress:
        if is_managed(progress) or state_of(progress.node) in STATES_UNDER_WAY:
            state = state_of(progress.node)
            if state in STATES_UNDER_WAY:
                counts["in_progress"] += 1
            elif state is State.FAILED:
                counts["failed"] += 1
            elif state is not State.REQUIRED and stale_pod(progress) is None:
                counts["done"] += 1
            else:
                counts["skipped" if skip_reason(progress) else "pending"] += 1
    return counts


def _gauges(fleet: UpgradeInputs, now: UpgradeTurn) -> dict[Gauge, float]:
    counts = _counts(fleet)
    return {
        Gauge.AUTO_UPGRADE: float(fleet.policy.auto_upgrade),
        Gauge.UPGRADES_IN_PROGRESS: float(counts["in_progress"]),
        Gauge.UPGRADES_DONE: float(counts["done"]),
        Gauge.UPGRADES_FAILED: float(counts["failed"]),
        Gauge.UPGRADES_AVAILABLE: float(now.slots),
        Gauge.UPGRADES_PENDING: float(counts["pending"]),
    }


def _message(fleet: UpgradeInputs, planned: PlannedChanges, now: UpgradeTurn, counts: Mapping[str, int]) -> str:
    if not fleet.policy.auto_upgrade:
        left = counts["pending"] + counts["skipped"]
        outdated = f"{counted(left, 'node')} {'has' if left == 1 else 'have'} an outdated driver"
        return f"automatic upgrades are off; {outdated}" if left else ""
    parts = [f"halted: {now.halted}"] if now.halted and counts["pending"] else []
    daemonset_problems = sorted(
        {
            why
            for each in fleet.node_progress
            if each.node.name in now.waiting and (why := daemonset_problem(each, fleet))
        }
    )
    if daemonset_problems and not now.halted:
        parts.append(f"upgrades blocked: {some(daemonset_problems)}")
    if now.hold.why and now.waiting and not now.halted:
        parts.append(now.hold.why)
    if not parts and now.waiting and not counts["in_progress"]:
        parts.append(f"no upgrade can start: {next(iter(now.waiting.values()))}")
    parts += _named(_describe_blocked(fleet, planned))
    parts += _named({name: f"skipped: {why}" for name, why in now.skipped.items()})
    return "; ".join(parts)


def _describe_blocked(fleet: UpgradeInputs, planned: PlannedChanges) -> dict[str, str]:
    """What nodes wait for that failed, and then what those do that are under way."""
    failed = {each.node.name for each in fleet.node_progress if failure_of(each.node)}
    busy = {each.node.name for each in fleet.node_progress if is_under_way(each.node)} - failed
    return {name: why for whose in (failed, busy) for name, why in planned.waits.items() if name in whose}


def _named(reasons_by_node: Mapping[str, str]) -> list[str]:
    reasons = [f"node {name}: {why}" for name, why in reasons_by_node.items()]
    return [some(reasons, "node", between="; ")] if reasons else []
