"""The status of the active policy: what people read first."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from purser.operator.kernel.conditions import DEGRADED, PROGRESSING, READY, condition
from purser.operator.kernel.facts import is_excluded
from purser.operator.kernel.failing import failing_nodes, sentence
from purser.operator.model import OperandOnNode, Pool, Raw, Snapshot, Standing
from purser.operator.order import Operand
from purser.operator.policy import ClusterPolicy, ClusterPolicyStatus
from purser.operator.policy.status import (
    MAX_FAILING_NODES,
    Condition,
    FailingNode,
    NodeCounts,
    OperandStatus,
    PoolStatus,
    UpgradeStatus,
)

NodeState = Literal["ready", "progressing", "failing", "excluded"]


def status_of(
    snapshot: Snapshot, policy: ClusterPolicy, standings: Sequence[Standing], upgrade: UpgradeStatus
) -> ClusterPolicyStatus:
    """How the GPU stack is doing under this policy."""
    failing = tuple(failing_nodes(standings))
    counts = _counts(standings, failing)
    conditions = (
        _ready(snapshot, policy, counts, failing, standings),
        _progressing(snapshot, policy, counts, standings, upgrade),
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
    """Whether a node has all that it is to have, and all of it is ready."""
    return all(on_node.state in ("ready", "excluded") for on_node in standing.operands.values())


def _counts(standings: Sequence[Standing], failing: Iterable[FailingNode]) -> NodeCounts:
    names = {each.name for each in failing}
    states = Counter(_node_state(standing, standing.node.name in names) for standing in standings)
    return NodeCounts(
        total=len(standings),
        ready=states["ready"],
        progressing=states["progressing"],
        failing=states["failing"],
        excluded=states["excluded"],
    )


def _node_state(standing: Standing, fails: bool) -> NodeState:
    if is_excluded(standing.node):
        return "excluded"
    if is_complete(standing):
        return "ready"
    return "failing" if fails else "progressing"


def _ready(
    snapshot: Snapshot,
    policy: ClusterPolicy,
    counts: NodeCounts,
    failing: Sequence[FailingNode],
    standings: Sequence[Standing],
) -> Condition:
    wanted = counts.total - counts.excluded
    if not wanted:
        return _condition(snapshot, policy, READY, True, "NoGPUNodes", "there is no GPU node")
    told = f"{counts.ready} of {wanted} GPU nodes are complete"
    if counts.ready == wanted:
        return _condition(snapshot, policy, READY, True, "OperandsReady", told)
    first = sentence(failing[0]) if failing else next(_unfinished(standings), "")
    return _condition(snapshot, policy, READY, False, "OperandsNotReady", f"{told}; {first}")


def _unfinished(standings: Sequence[Standing]) -> Iterator[str]:
    for standing in standings:
        for operand, on_node in standing.operands.items():
            if on_node.state not in ("ready", "excluded"):
                yield f"node {standing.node.name}: {operand}: {on_node.message or on_node.reason}"


def _progressing(
    snapshot: Snapshot,
    policy: ClusterPolicy,
    counts: NodeCounts,
    standings: Sequence[Standing],
    upgrade: UpgradeStatus,
) -> Condition:
    if counts.progressing:
        first = next(
            _unfinished([each for each in standings if _node_state(each, False) == "progressing"]),
            "nodes are on their way",
        )
        return _condition(snapshot, policy, PROGRESSING, True, "NodesProgressing", first)
    drivers_count = policy.spec.driver.upgrade_policy.auto_upgrade and not upgrade.halted
    outdated = sorted(
        {each.operand for each in _outdated(standings) if drivers_count or each.operand != Operand.DRIVER}
    )
    unseen = sorted(filter(None, map(_unseen, snapshot.objects.values())))
    if outdated:
        return _condition(snapshot, policy, PROGRESSING, True, "Updating", f"being updated: {', '.join(outdated)}")
    if unseen:
        return _condition(snapshot, policy, PROGRESSING, True, "Updating", f"not rolled out yet: {', '.join(unseen)}")
    if upgrade.in_progress and not upgrade.halted:
        told = f"nodes whose driver is being upgraded: {upgrade.in_progress}"
        return _condition(snapshot, policy, PROGRESSING, True, "Upgrading", told)
    return _condition(snapshot, policy, PROGRESSING, False, "Settled", "")


def _outdated(standings: Sequence[Standing]) -> Iterator[OperandOnNode]:
    return (on_node for standing in standings for on_node in standing.operands.values() if on_node.outdated)


def _unseen(obj: Raw) -> str:
    """Name of a DaemonSet whose present generation its controller has not seen."""
    if obj["kind"] != "DaemonSet":
        return ""
    seen = (obj.get("status") or {}).get("observedGeneration", 0)
    return str(obj["metadata"]["name"]) if seen < obj["metadata"].get("generation", 0) else ""


def _degraded(
    snapshot: Snapshot, policy: ClusterPolicy, failing: Sequence[FailingNode], upgrade: UpgradeStatus
) -> Condition:
    if upgrade.halted:
        return _condition(snapshot, policy, DEGRADED, True, "UpgradeHalted", upgrade.message)
    if failing:
        more = f" (and {len(failing) - 1} more nodes)" if len(failing) > 1 else ""
        return _condition(snapshot, policy, DEGRADED, True, "NodesFailing", sentence(failing[0]) + more)
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
    updated = sum(not on_node.outdated and on_node.reason not in ("NoPod", "NoDriver") for on_node in there)
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
        told = [(name, on_node.message or on_node.reason) for name, on_node in found if on_node.state == wanted]
        if told:
            more = f" (and {len(told) - 1} more nodes)" if len(told) > 1 else ""
            return f"node {told[0][0]}: {told[0][1]}{more}"
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
