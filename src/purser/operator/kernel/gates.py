"""Who gets which operand now: the labels ``nvidia.com/gpu.deploy.<operand>`` of one node.

An operand is let in once all that it needs is ready on the node. From then on it stays, whatever becomes of what it
needs, until a cause of these takes it away: a reboot, a pause for an upgrade or a MIG change, the policy, or people.
"""

from collections.abc import Collection, Iterable, Mapping

from purser.core.names import NODE_FACTS_ANNOTATION
from purser.operator.kernel.facts import Presence, has_stale_facts, is_excluded, users_word, was_rebooted
from purser.operator.kernel.leaving import stripped
from purser.operator.kernel.standing import is_stale_validation, needs
from purser.operator.kernel.times import spelled
from purser.operator.mig import GPU_CLIENTS
from purser.operator.model import DeletePod, NodeView, PatchNode, Standing
from purser.operator.names import (
    DEPLOY,
    GPU_MISSING_SINCE_ANNOTATION,
    GPU_PRESENT_LABEL,
    OPENED_BOOT_ANNOTATION,
    PAUSED_FOR_MIG,
    PAUSED_FOR_UPGRADE,
    POOL_LABEL,
    RUNTIME_LABEL,
)
from purser.operator.order import Operand, dependents

PAUSES: Mapping[str, Collection[Operand]] = {
    PAUSED_FOR_UPGRADE: dependents(Operand.DRIVER),
    PAUSED_FOR_MIG: GPU_CLIENTS,
}


def gate_patch(
    standing: Standing, presence: Presence, pause: str | None, daemon_sets: Collection[str], now: float
) -> PatchNode:
    """All labels and annotations that one node is to have, whether it has them or not. ``pause``: for which reason
    operands leave for a while; ``daemon_sets``: names of live ones."""
    node = standing.node
    labels: dict[str, str | None] = {GPU_PRESENT_LABEL: "true", RUNTIME_LABEL: _runtime(standing)}
    labels |= _pool(standing, daemon_sets)
    labels |= _deploy(standing, pause)
    annotations = {GPU_MISSING_SINCE_ANNOTATION: _missing_since(node, presence, now)}
    if has_stale_facts(node):
        annotations[NODE_FACTS_ANNOTATION] = None
    if node.boot_id:
        annotations[OPENED_BOOT_ANNOTATION] = node.boot_id
    return PatchNode(node=node.name, labels=labels, annotations=annotations, why="operands by what is ready")


def gone_patch(node: NodeView) -> PatchNode:
    """What a node keeps whose GPUs are gone: the word that it has none, and that Purser said so."""
    patch = stripped(node)
    labels = {**patch.labels, GPU_PRESENT_LABEL: "false"}
    labels.pop(RUNTIME_LABEL, None)
    return PatchNode(
        node=node.name,
        labels=labels,
        annotations=patch.annotations,
        unschedulable=patch.unschedulable,
        why="its GPUs are gone",
    )


def stale_validations(standings: Iterable[Standing]) -> tuple[DeletePod, ...]:
    """Validators that have to validate anew, because their node has a newer driver, and it is ready."""
    found = []
    for standing in standings:
        driver, pod = standing.pod_of(Operand.DRIVER), standing.pod_of(Operand.VALIDATOR)
        if driver is not None and driver.ready and pod is not None and is_stale_validation(standing, pod):
            found.append(DeletePod(pod, "its node has a newer driver"))
    return tuple(found)


def _runtime(standing: Standing) -> str | None:
    return standing.runtime.label if standing.runtime is not None else None


def _missing_since(node: NodeView, presence: Presence, now: float) -> str | None:
    if presence.state != "missing":
        return None
    return node.annotations.get(GPU_MISSING_SINCE_ANNOTATION) or spelled(now)


def _pool(standing: Standing, daemon_sets: Collection[str]) -> dict[str, str | None]:
    """A node with a running driver changes its pool by an upgrade only. One whose driver ends anyway, by a reboot or
    because somebody deleted its pod, gets the next one from the pool where it belongs."""
    if standing.pool is None:
        return {} if standing.obstacle else {POOL_LABEL: None}
    has_driver = standing.pod_of(Operand.DRIVER) is not None
    current = f"purser-driver-{standing.node.labels.get(POOL_LABEL, '')}"
    if has_driver and current in daemon_sets and not _rebooted(standing):
        return {}
    return {POOL_LABEL: standing.pool.name}


def changes_pool(standing: Standing, daemon_sets: Collection[str]) -> bool:
    """Whether its driver is being replaced without an upgrade: after a reboot, which nothing survived anyway."""
    pod = standing.pod_of(Operand.DRIVER)
    label = _pool(standing, daemon_sets).get(POOL_LABEL) or standing.node.labels.get(POOL_LABEL)
    return pod is not None and pod.daemon_set != f"purser-driver-{label}"


def _deploy(standing: Standing, pause: str | None) -> dict[str, str | None]:
    node = standing.node
    own = () if is_excluded(node) else tuple(each for each in standing.operands if not users_word(node, each))
    ready = {each for each, on_node in standing.operands.items() if on_node.state == "ready"}
    closed = dependents(Operand.DRIVER) if _rebooted(standing) and Operand.DRIVER in own else ()
    return {
        operand.deploy_label: _gate(standing, operand, pause, needs(own)[operand] <= ready)
        if operand in own and operand not in closed
        else None
        for operand in Operand
        if not users_word(node, operand)
    }


def _gate(standing: Standing, operand: Operand, pause: str | None, may_enter: bool) -> str | None:
    label = standing.node.labels.get(operand.deploy_label, "")
    if pause is not None and operand in PAUSES[pause]:
        return pause if label else None
    if operand is Operand.DRIVER:
        stays = label == DEPLOY and standing.pod_of(operand) is not None
        return DEPLOY if standing.pool is not None or stays else None
    return DEPLOY if label == DEPLOY or may_enter else None


def _rebooted(standing: Standing) -> bool:
    return was_rebooted(standing.node, standing.node.annotations.get(OPENED_BOOT_ANNOTATION, ""))
