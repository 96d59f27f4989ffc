"""The status of the active policy: what people read first. Its conditions, its events, and the gauges."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from purser.core.kubernetes.times import spelled
from purser.core.wording import natural_sort_key, portion, some
from purser.kube.reasons import FailureReason
from purser.operator.deciding.failing import LABEL_REASONS, failing_nodes, failing_nodes_of_isolated, sentence
from purser.operator.gates import CONTAINER, REASONS_WITHOUT_POD, has_nfd, is_unobserved, removal_blocker
from purser.operator.model import EmitEvent, Gauge, NodeProgress, OperandOnNode, Pool, Reconciliation, Snapshot
from purser.operator.names import LABEL_TRUE, UPGRADE_SKIP_LABEL
from purser.operator.order import Operand
from purser.operator.policy import ClusterPolicy
from purser.operator.policy.spec import (
    MAX_FAILING_NODES,
    ClusterPolicyStatus,
    Condition,
    FailingNode,
    NodeCounts,
    OperandStatus,
    PoolStatus,
    UpgradeStatus,
)
from purser.operator.reasons import OperatorReason
from purser.operator.upgrade import is_blocked_by_taint

# --- conditions


READY = "Ready"
PROGRESSING = "Progressing"
DEGRADED = "Degraded"


def condition(
    kind: str,
    holds: bool,
    reason: OperatorReason,
    message: str,
    *,
    old: ClusterPolicyStatus,
    generation: int,
    now: float,
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
ROLLING_REASONS = (OperatorReason.UPDATING, OperatorReason.UPGRADING)
"""Reasons of Progressing under which operands are ready, but not all of them those that the policy asks for."""


def status_of(
    snapshot: Snapshot,
    policy: ClusterPolicy,
    node_progress: Sequence[NodeProgress],
    upgrade: UpgradeStatus,
    mig_waits: Mapping[str, str],
) -> ClusterPolicyStatus:
    """How the GPU stack is doing under this policy. ``mig_waits``: by node, what its MIG change waits for."""
    has_mig_manager = Operand.MIG_MANAGER in policy.spec.enabled
    upgrades_drivers = policy.spec.driver.upgrade_policy.auto_upgrade
    found = failing_nodes(
        node_progress, snapshot.refusals, has_mig_manager=has_mig_manager, upgrades_drivers=upgrades_drivers
    )
    failing = tuple(
        sorted((*found, *failing_nodes_of_isolated(snapshot.isolated)), key=lambda each: natural_sort_key(each.name))
    )
    states = _states(node_progress, failing) | {each.node.name: "failing" for each in snapshot.isolated}
    counts = _counts(states.values())
    progressing = _progressing_condition(snapshot, policy, states, node_progress, upgrade, mig_waits)
    conditions = (
        _ready(snapshot, policy, counts, failing, node_progress, progressing),
        progressing,
        _degraded_condition(snapshot, policy, failing, upgrade),
    )
    return ClusterPolicyStatus(
        state="ready" if conditions[0].status == "True" else "notReady",
        namespace=snapshot.namespace,
        observed_generation=policy.metadata.generation,
        conditions=conditions,
        nodes=counts,
        operands=tuple(_operand(operand, policy.spec.enabled, node_progress) for operand in Operand),
        failing_nodes=failing[:MAX_FAILING_NODES],
        pools=_pools(node_progress),
        upgrade=upgrade,
    )


def is_complete(progress: NodeProgress) -> bool:
    """Whether a node has all that it is to have, and all of it is ready; and nothing that it is not to have."""
    return progress.driver_removal is None and all(
        on_node.state in ("ready", "excluded") for on_node in progress.operands.values()
    )


def _states(node_progress: Iterable[NodeProgress], failing: Iterable[FailingNode]) -> dict[str, NodeState]:
    """By node: the state that all reports on it are consistent with."""
    names = {each.name for each in failing if each.reason not in LABEL_REASONS}
    return {each.node.name: _node_state(each, each.node.name in names) for each in node_progress}


def _counts(states: Collection[NodeState]) -> NodeCounts:
    found = Counter(states)
    return NodeCounts(
        total=len(states),
        ready=found["ready"],
        progressing=found["progressing"],
        failing=found["failing"],
        excluded=found["excluded"],
    )


def _node_state(progress: NodeProgress, fails: bool) -> NodeState:
    if progress.excluded:
        return "excluded"
    if fails:
        return "failing"
    return "ready" if is_complete(progress) else "progressing"


def _ready(
    snapshot: Snapshot,
    policy: ClusterPolicy,
    counts: NodeCounts,
    failing: Sequence[FailingNode],
    node_progress: Sequence[NodeProgress],
    progressing: Condition,
) -> Condition:
    wanted = counts.total - counts.excluded
    virtual = _for_virtual_machines(node_progress)
    if not wanted:
        message = f"no GPU nodes{virtual and f' for containers{virtual}'}"
        if any(each.excluded and each.workload == CONTAINER for each in node_progress):
            message = f"all GPU nodes are excluded{virtual}"
        return _condition(snapshot, policy, READY, True, OperatorReason.NO_GPU_NODES, message)
    message = f"{portion(counts.ready, wanted, 'GPU node')} ready{virtual}"
    rollout_reason = next((each for each in ROLLING_REASONS if each == progressing.reason), None)
    if counts.ready == wanted and rollout_reason is not None:
        return _condition(snapshot, policy, READY, False, rollout_reason, f"{message}; {progressing.message}")
    if counts.ready == wanted:
        return _condition(snapshot, policy, READY, True, OperatorReason.OPERANDS_READY, message)
    first = sentence(failing[0]) if failing else next(_unfinished_operands(node_progress), "")
    return _condition(snapshot, policy, READY, False, OperatorReason.OPERANDS_NOT_READY, f"{message}; {first}")


def _for_virtual_machines(node_progress: Iterable[NodeProgress]) -> str:
    """The end of a sentence on GPU nodes; empty: there is no such node."""
    names = [each.node.name for each in node_progress if each.workload != CONTAINER]
    return f"; nodes for virtual machines run no operands: {some(names, 'node', named=1)}" if names else ""


def _unfinished_operands(node_progress: Sequence[NodeProgress]) -> Iterator[str]:
    for progress in node_progress:
        for operand, on_node in progress.operands.items():
            if on_node.state not in ("ready", "excluded"):
                yield f"node {progress.node.name}: {operand}: {on_node.message or on_node.reason}"
        if progress.driver_removal is not None:
            message = f": {removal_blocker(progress.driver_removal)}" if progress.driver_removal.stays else ""
            yield f"node {progress.node.name}: the driver is being removed{message}"


def _progressing_condition(
    snapshot: Snapshot,
    policy: ClusterPolicy,
    states: Mapping[str, NodeState],
    node_progress: Sequence[NodeProgress],
    upgrade: UpgradeStatus,
    mig_waits: Mapping[str, str],
) -> Condition:
    progressing_nodes = [each for each in node_progress if states[each.node.name] == "progressing"]
    if first := next(_unfinished_operands(progressing_nodes), ""):
        message = _with_upgrade(first, upgrade) if upgrade.in_progress else first
        return _condition(snapshot, policy, PROGRESSING, True, OperatorReason.NODES_PROGRESSING, message)
    outdated = sorted(_outdated(node_progress, policy.spec.driver.upgrade_policy.auto_upgrade and not upgrade.halted))
    unseen = sorted(name for name, obj in snapshot.daemon_sets.items() if is_unobserved(obj))
    if outdated:
        message = f"updating: {', '.join(outdated)}"
        message = _with_upgrade(message, upgrade) if Operand.DRIVER in outdated else message
        return _condition(snapshot, policy, PROGRESSING, True, OperatorReason.UPDATING, message)
    if unseen:
        return _condition(
            snapshot,
            policy,
            PROGRESSING,
            True,
            OperatorReason.UPDATING,
            f"DaemonSets not yet rolled out: {', '.join(unseen)}",
        )
    if upgrade.in_progress and not upgrade.halted:
        message = _with_upgrade(f"driver upgrades in progress: {upgrade.in_progress}", upgrade)
        return _condition(snapshot, policy, PROGRESSING, True, OperatorReason.UPGRADING, message)
    if mig_waits:
        message = some(
            [f"node {name}: {mig_waits[name]}" for name in sorted(mig_waits, key=natural_sort_key)], "node", named=1
        )
        return _condition(snapshot, policy, PROGRESSING, True, OperatorReason.MIG_CHANGE, message)
    return _condition(snapshot, policy, PROGRESSING, False, OperatorReason.SETTLED, "")


def _with_upgrade(message: str, upgrade: UpgradeStatus) -> str:
    """Followed by what the upgrade waits for."""
    return f"{message}; {upgrade.message}" if upgrade.message else message


def _outdated(node_progress: Sequence[NodeProgress], drivers_count: bool) -> set[Operand]:
    """What will be replaced: no driver while upgrades are off or halted, nor one that people or a taint keep."""
    found: set[Operand] = {
        on_node.operand
        for progress in node_progress
        for on_node in progress.operands.values()
        if on_node.outdated and on_node.operand != Operand.DRIVER
    }
    if drivers_count and any(_driver_will_be_replaced(progress) for progress in node_progress):
        found.add(Operand.DRIVER)
    return found


def _driver_will_be_replaced(progress: NodeProgress) -> bool:
    driver = progress.operands.get(Operand.DRIVER)
    stays = progress.node.labels.get(UPGRADE_SKIP_LABEL) == LABEL_TRUE or is_blocked_by_taint(progress)
    return driver is not None and driver.outdated and not stays


def _degraded_condition(
    snapshot: Snapshot, policy: ClusterPolicy, failing: Sequence[FailingNode], upgrade: UpgradeStatus
) -> Condition:
    if upgrade.halted:
        first = next((each.message for each in failing if each.reason == OperatorReason.UPGRADE_FAILED), "")
        message = ": ".join(filter(None, (f"the driver upgrade is halted: {upgrade.halt_reason}", first)))
        return _condition(snapshot, policy, DEGRADED, True, OperatorReason.DRIVER_UPGRADE_HALTED, message)
    if snapshot.refusals:
        refused = sorted(snapshot.refusals, key=lambda each: (each.key, each.why))
        message = some([f"{each.key}: {each.why}" for each in refused], "write", named=1)
        return _condition(snapshot, policy, DEGRADED, True, OperatorReason.WRITE_REFUSED, message)
    if failing:
        message = some([sentence(each) for each in failing], "node", named=1)
        return _condition(snapshot, policy, DEGRADED, True, OperatorReason.NODES_FAILING, message)
    return _condition(snapshot, policy, DEGRADED, False, OperatorReason.NO_FAILURES, "")


def _condition(
    snapshot: Snapshot, policy: ClusterPolicy, kind: str, holds: bool, reason: OperatorReason, message: str
) -> Condition:
    generation = policy.metadata.generation
    return condition(kind, holds, reason, message, old=policy.status, generation=generation, now=snapshot.now)


def _operand(operand: Operand, enabled: Sequence[Operand], node_progress: Sequence[NodeProgress]) -> OperandStatus:
    if operand not in enabled:
        return OperandStatus(name=operand, state="disabled")
    found = [(each.node.name, each.operands[operand]) for each in node_progress if operand in each.operands]
    blocked = _most_blocked(found)
    states = Counter(on_node.state for _, on_node in found)
    there = [on_node for _, on_node in found if on_node.state in ("ready", "progressing", "failing")]
    desired = len(found) - states["waiting"] - states["excluded"]
    updated = sum(
        not on_node.outdated and on_node.reason not in (*REASONS_WITHOUT_POD, OperatorReason.NO_DRIVER)
        for on_node in there
    )
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
        reason=next((each.reason for _, each in blocked), ""),
        message=some([f"node {name}: {each.message or each.reason}" for name, each in blocked], "node", named=1)
        if blocked
        else "",
    )


def _most_blocked(found: Sequence[tuple[str, OperandOnNode]]) -> list[tuple[str, OperandOnNode]]:
    """The nodes whose state most needs a look."""
    for wanted in ("failing", "progressing", "paused", "waiting"):
        if nodes := [(name, each) for name, each in found if each.state == wanted]:
            return nodes
    return []


def _pools(node_progress: Sequence[NodeProgress]) -> tuple[PoolStatus, ...]:
    nodes: Counter[Pool] = Counter(progress.pool for progress in node_progress if progress.pool is not None)
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


def events_of(
    policy: ClusterPolicy, status: ClusterPolicyStatus, node_progress: Sequence[NodeProgress]
) -> Iterator[EmitEvent]:
    """What became otherwise since the policy's last status: whether it is ready, and which nodes fail."""
    before, now = find(policy.status.conditions, READY), find(status.conditions, READY)
    if now is not None and (before is None or before.status != now.status):
        meta = policy.metadata
        yield EmitEvent(
            "ClusterPolicy",
            meta.name,
            meta.uid,
            now.reason,
            now.message,
            warning=before is not None and now.status != "True" and now.reason not in ROLLING_REASONS,
        )
    known = {(each.name, each.reason) for each in policy.status.failing_nodes}
    uids = {progress.node.name: progress.node.uid for progress in node_progress}
    for failing in status.failing_nodes:
        # The caller of rounds reports that a node is left out, as for each object that Purser fails on.
        if failing.reason != FailureReason.FAILED and (failing.name, failing.reason) not in known:
            yield EmitEvent("Node", failing.name, uids[failing.name], failing.reason, sentence(failing), warning=True)


def gauges_of(
    snapshot: Snapshot, node_progress: Sequence[NodeProgress], status: ClusterPolicyStatus
) -> dict[Gauge, float]:
    """Under the names that users of NVIDIA's operator know."""
    return {
        Gauge.GPU_NODES: float(status.nodes.total),
        Gauge.HAS_NFD_LABELS: float(any(has_nfd(node) for node in snapshot.nodes)),
        Gauge.RECONCILIATION: Reconciliation.READY if status.state == "ready" else Reconciliation.NOT_READY,
    }
