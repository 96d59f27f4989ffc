"""The status of the active policy: what people read first. Its conditions, its events, and the gauges."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from purser.core.kubernetes.times import spelled
from purser.operator.deciding.failing import HANDLING_FAILED, LAYOUT_REASONS, failing_nodes, sentence, unhandled
from purser.operator.gates.driver_removal import why_it_stays
from purser.operator.gates.facts import has_nfd
from purser.operator.gates.progress import REASONS, is_unseen
from purser.operator.model import Gauge, OperandOnNode, Pool, Reconciliation, Say, Snapshot, Standing
from purser.operator.names import DEPLOY, UPGRADE_SKIP_LABEL
from purser.operator.order import Operand
from purser.operator.policy import ClusterPolicy
from purser.operator.policy.status import (
    MAX_FAILING_NODES,
    ClusterPolicyStatus,
    Condition,
    FailingNode,
    NodeCounts,
    OperandStatus,
    PoolStatus,
    UpgradeStatus,
)
from purser.operator.upgrade import is_kept_by_taint
from purser.operator.wording import natural, some

# --- conditions


READY = "Ready"
PROGRESSING = "Progressing"
DEGRADED = "Degraded"


def condition(
    kind: str, holds: bool, reason: str, message: str, *, old: ClusterPolicyStatus, generation: int, now: float
) -> Condition:
    """A condition; its time is that of the old one, if its status is the same."""
    status = "True" if holds else "False"
    before = find(old.conditions, kind)
    since = before.last_transition_time if before is not None and before.status == status else spelled(now)
    return Condition(
        type=kind,
        status="True" if holds else "False",
        reason=reason,
        message=message,
        last_transition_time=since,
        observed_generation=generation,
    )


def find(conditions: Iterable[Condition], kind: str) -> Condition | None:
    """The condition of a type."""
    return next((each for each in conditions if each.type == kind), None)


# --- status


NodeState = Literal["ready", "progressing", "failing", "excluded"]
ROLLING = ("Updating", "Upgrading")
"""Reasons of Progressing under which operands are ready, but not all of them those that the policy asks for."""


def status_of(
    snapshot: Snapshot,
    policy: ClusterPolicy,
    standings: Sequence[Standing],
    upgrade: UpgradeStatus,
    mig_waits: Mapping[str, str],
) -> ClusterPolicyStatus:
    """How the GPU stack is doing under this policy. ``mig_waits``: by node, what its MIG change waits for."""
    has_mig_manager = Operand.MIG_MANAGER in policy.spec.enabled
    upgrades_drivers = policy.spec.driver.upgrade_policy.auto_upgrade
    found = failing_nodes(
        standings, snapshot.refusals, has_mig_manager=has_mig_manager, upgrades_drivers=upgrades_drivers
    )
    failing = tuple(sorted((*found, *unhandled(snapshot.left_out)), key=lambda each: natural(each.name)))
    states = _states(standings, failing) | {each.node.name: "failing" for each in snapshot.left_out}
    counts = _counts(states.values())
    progressing = _progressing(snapshot, policy, states, standings, upgrade, mig_waits)
    conditions = (
        _ready(snapshot, policy, counts, failing, standings, progressing),
        progressing,
        _degraded(snapshot, policy, failing, upgrade),
    )
    return ClusterPolicyStatus(
        state="ready" if conditions[0].status == "True" else "notReady",
        namespace=snapshot.namespace,
        observed_generation=policy.metadata.generation,
        conditions=conditions,
        nodes=counts,
        operands=tuple(_operand(operand, policy.spec.enabled, standings) for operand in Operand),
        failing_nodes=failing[:MAX_FAILING_NODES],
        pools=_pools(standings),
        upgrade=upgrade,
    )


def is_complete(standing: Standing) -> bool:
    """Whether a node has all that it is to have, and all of it is ready; and nothing that it is not to have."""
    return standing.departure is None and all(
        on_node.state in ("ready", "excluded") for on_node in standing.operands.values()
    )


def _states(standings: Iterable[Standing], failing: Iterable[FailingNode]) -> dict[str, NodeState]:
    """By node: what all that is told of it agrees with."""
    names = {each.name for each in failing if each.reason not in LAYOUT_REASONS}
    return {each.node.name: _node_state(each, each.node.name in names) for each in standings}


def _counts(states: Collection[NodeState]) -> NodeCounts:
    found = Counter(states)
    return NodeCounts(
        total=len(states),
        ready=found["ready"],
        progressing=found["progressing"],
        failing=found["failing"],
        excluded=found["excluded"],
    )


def _node_state(standing: Standing, fails: bool) -> NodeState:
    if standing.excluded:
        return "excluded"
    if fails:
        return "failing"
    return "ready" if is_complete(standing) else "progressing"


def _ready(
    snapshot: Snapshot,
    policy: ClusterPolicy,
    counts: NodeCounts,
    failing: Sequence[FailingNode],
    standings: Sequence[Standing],
    progressing: Condition,
) -> Condition:
    wanted = counts.total - counts.excluded
    if not wanted:
        return _condition(snapshot, policy, READY, True, "NoGPUNodes", "there is no GPU node")
    told = f"{counts.ready} of {wanted} GPU nodes are complete"
    if counts.ready == wanted and progressing.reason in ROLLING:
        return _condition(snapshot, policy, READY, False, progressing.reason, f"{told}; {progressing.message}")
    if counts.ready == wanted:
        return _condition(snapshot, policy, READY, True, "OperandsReady", told)
    first = sentence(failing[0]) if failing else next(_unfinished(standings), "")
    return _condition(snapshot, policy, READY, False, "OperandsNotReady", f"{told}; {first}")


def _unfinished(standings: Sequence[Standing]) -> Iterator[str]:
    for standing in standings:
        for operand, on_node in standing.operands.items():
            if on_node.state not in ("ready", "excluded"):
                yield f"node {standing.node.name}: {operand}: {on_node.message or on_node.reason}"
        if standing.departure is not None:
            told = f": {why_it_stays(standing.departure)}" if standing.departure.stays else ""
            yield f"node {standing.node.name}: its driver is to leave{told}"


def _progressing(
    snapshot: Snapshot,
    policy: ClusterPolicy,
    states: Mapping[str, NodeState],
    standings: Sequence[Standing],
    upgrade: UpgradeStatus,
    mig_waits: Mapping[str, str],
) -> Condition:
    on_their_way = [each for each in standings if states[each.node.name] == "progressing"]
    if first := next(_unfinished(on_their_way), ""):
        told = _with_upgrade(first, upgrade) if upgrade.in_progress else first
        return _condition(snapshot, policy, PROGRESSING, True, "NodesProgressing", told)
    outdated = sorted(_outdated(standings, policy.spec.driver.upgrade_policy.auto_upgrade and not upgrade.halted))
    unseen = sorted(name for name, obj in snapshot.daemon_sets.items() if is_unseen(obj))
    if outdated:
        told = f"being updated: {', '.join(outdated)}"
        told = _with_upgrade(told, upgrade) if Operand.DRIVER in outdated else told
        return _condition(snapshot, policy, PROGRESSING, True, "Updating", told)
    if unseen:
        return _condition(snapshot, policy, PROGRESSING, True, "Updating", f"not rolled out yet: {', '.join(unseen)}")
    if upgrade.in_progress and not upgrade.halted:
        told = _with_upgrade(f"nodes whose driver is being upgraded: {upgrade.in_progress}", upgrade)
        return _condition(snapshot, policy, PROGRESSING, True, "Upgrading", told)
    if mig_waits:
        told = some([f"node {name}: {mig_waits[name]}" for name in sorted(mig_waits, key=natural)], "node", named=1)
        return _condition(snapshot, policy, PROGRESSING, True, "MigChange", told)
    return _condition(snapshot, policy, PROGRESSING, False, "Settled", "")


def _with_upgrade(told: str, upgrade: UpgradeStatus) -> str:
    """Followed by what the upgrade waits for."""
    return f"{told}; {upgrade.message}" if upgrade.message else told


def _outdated(standings: Sequence[Standing], drivers_count: bool) -> set[Operand]:
    """What will be replaced: no driver while upgrades are off or halted, nor one that people or a taint keep."""
    found: set[Operand] = {
        on_node.operand
        for standing in standings
        for on_node in standing.operands.values()
        if on_node.outdated and on_node.operand != Operand.DRIVER
    }
    if drivers_count and any(_driver_will_be_replaced(standing) for standing in standings):
        found.add(Operand.DRIVER)
    return found


def _driver_will_be_replaced(standing: Standing) -> bool:
    driver = standing.operands.get(Operand.DRIVER)
    stays = standing.node.labels.get(UPGRADE_SKIP_LABEL) == DEPLOY or is_kept_by_taint(standing)
    return driver is not None and driver.outdated and not stays


def _degraded(
    snapshot: Snapshot, policy: ClusterPolicy, failing: Sequence[FailingNode], upgrade: UpgradeStatus
) -> Condition:
    if upgrade.halted:
        first = next((each.message for each in failing if each.reason == "UpgradeFailed"), "")
        told = ": ".join(filter(None, (f"no further node begins: {upgrade.halt_reason}", first)))
        return _condition(snapshot, policy, DEGRADED, True, "UpgradeHalted", told)
    if snapshot.refusals:
        refused = sorted(snapshot.refusals, key=lambda each: (each.key, each.why))
        told = some([f"{each.key}: {each.why}" for each in refused], "write", named=1)
        return _condition(snapshot, policy, DEGRADED, True, "WritesRefused", told)
    if failing:
        told = some([sentence(each) for each in failing], "node", named=1)
        return _condition(snapshot, policy, DEGRADED, True, "NodesFailing", told)
    return _condition(snapshot, policy, DEGRADED, False, "NothingFails", "")


def _condition(
    snapshot: Snapshot, policy: ClusterPolicy, kind: str, holds: bool, reason: str, message: str
) -> Condition:
    generation = policy.metadata.generation
    return condition(kind, holds, reason, message, old=policy.status, generation=generation, now=snapshot.now)


def _operand(operand: Operand, enabled: Sequence[Operand], standings: Sequence[Standing]) -> OperandStatus:
    if operand not in enabled:
        return OperandStatus(name=operand, state="disabled")
    found = [(each.node.name, each.operands[operand]) for each in standings if operand in each.operands]
    states = Counter(on_node.state for _, on_node in found)
    there = [on_node for _, on_node in found if on_node.state in ("ready", "progressing", "failing")]
    desired = len(found) - states["waiting"] - states["excluded"]
    updated = sum(not on_node.outdated and on_node.reason not in (*REASONS, "NoDriver") for on_node in there)
    state: Literal["waiting", "progressing", "ready", "failing"] = "progressing"
    if states["failing"]:
        state = "failing"
    elif states["waiting"] and not desired:
        state = "waiting"
    elif states["ready"] == updated == desired and not states["waiting"]:
        state = "ready"
    return OperandStatus(
        name=operand,
        state=state,
        desired=desired,
        ready=states["ready"],
        updated=updated,
        waiting=states["waiting"],
        message=_message(found),
    )


def _message(found: Sequence[tuple[str, OperandOnNode]]) -> str:
    for wanted in ("failing", "progressing", "paused", "waiting"):
        told = [f"node {name}: {each.message or each.reason}" for name, each in found if each.state == wanted]
        if told:
            return some(told, "node", named=1)
    return ""


def _pools(standings: Sequence[Standing]) -> tuple[PoolStatus, ...]:
    nodes: Counter[Pool] = Counter(standing.pool for standing in standings if standing.pool is not None)
    return tuple(
        PoolStatus(
            name=pool.name,
            os=f"{pool.os_id} {pool.os_version}",
            kernel=pool.kernel,
            driver=pool.version,
            nodes=count,
        )
        for pool, count in sorted(nodes.items(), key=lambda item: item[0].name)
    )


# --- events and gauges


def events_of(policy: ClusterPolicy, status: ClusterPolicyStatus, standings: Sequence[Standing]) -> Iterator[Say]:
    """What became otherwise since the policy's last status: whether it is ready, and which nodes fail."""
    before, now = find(policy.status.conditions, READY), find(status.conditions, READY)
    if now is not None and (before is None or before.status != now.status):
        meta = policy.metadata
        yield Say(
            "ClusterPolicy",
            meta.name,
            meta.uid,
            now.reason,
            now.message,
            warning=before is not None and now.status != "True" and now.reason not in ROLLING,
        )
    known = {(each.name, each.reason) for each in policy.status.failing_nodes}
    uids = {standing.node.name: standing.node.uid for standing in standings}
    for failing in status.failing_nodes:
        # That a node is left out is told by whoever makes the rounds, as of each object that Purser fails on.
        if failing.reason != HANDLING_FAILED and (failing.name, failing.reason) not in known:
            yield Say("Node", failing.name, uids[failing.name], failing.reason, sentence(failing), warning=True)


def gauges_of(snapshot: Snapshot, standings: Sequence[Standing], status: ClusterPolicyStatus) -> dict[Gauge, float]:
    """Under the names that users of NVIDIA's operator know."""
    return {
        Gauge.GPU_NODES: float(status.nodes.total),
        Gauge.HAS_NFD_LABELS: float(any(has_nfd(node) for node in snapshot.nodes)),
        Gauge.RECONCILIATION: Reconciliation.READY if status.state == "ready" else Reconciliation.NOT_READY,
    }
