"""Labels and annotations of one node: who gets which operand now (``nvidia.com/gpu.deploy.<operand>``), and what is
taken away again because its GPUs are gone or no policy is left.

An operand is let in once all that it needs is ready on the node. From then on it stays, whatever becomes of what it
needs, until a cause of these takes it away: a reboot, a pause for an upgrade or a MIG change, a driver that is to leave
once no pod uses it, GPUs that are gone, the policy, or people.
"""

from collections.abc import Collection, Iterable, Mapping

from purser.core.kubernetes.times import parsed, spelled
from purser.core.names import GPU_PRESENT_LABEL, NODE_FACTS_ANNOTATION, POOL_LABEL
from purser.operator.gates.facts import contradicts_nfd, user_override
from purser.operator.gates.progress import (
    PROGRESS_DEADLINE_S,
    REASONS_WITHOUT_POD,
    admitted_boot,
    gate_value,
    is_rebooted,
)
from purser.operator.maintenance import is_cordoned_by_purser, is_in_future
from purser.operator.mig import GPU_CLIENTS
from purser.operator.model import (
    NodeProgress,
    NodeView,
    PatchNode,
    Presence,
    daemon_set_of,
)
from purser.operator.names import (
    GPU_MISSING_SINCE_ANNOTATION,
    GROUP,
    LABEL_TRUE,
    LEFTOVER_DEPLOY_LABELS,
    LET_IN_ANNOTATION,
    OPENED_BOOT_ANNOTATION,
    OWNED_NODE_ANNOTATIONS,
    OWNED_NODE_LABELS,
    PAUSED_FOR_MIG,
    PAUSED_FOR_UPGRADE,
    PREINSTALLED,
    RUNTIME_LABEL,
)
from purser.operator.order import Operand, dependents

PAUSES: Mapping[str, Collection[Operand]] = {
    PAUSED_FOR_UPGRADE: dependents(Operand.DRIVER),
    PAUSED_FOR_MIG: GPU_CLIENTS,
}


def gate_patch(progress: NodeProgress, pause: str | None, daemon_sets: Collection[str], now: float) -> PatchNode:
    """All labels and annotations that one node is to have, whether it has them or not. ``pause``: for which reason
    operands leave for a while; ``daemon_sets``: names of live ones."""
    node = progress.node
    labels: dict[str, str | None] = {GPU_PRESENT_LABEL: "true", RUNTIME_LABEL: progress.runtime.label}
    labels |= _pool(progress, daemon_sets)
    labels |= _deploy_labels(progress, pause)
    annotations = {
        GPU_MISSING_SINCE_ANNOTATION: _missing_since(node, progress.presence, now),
        LET_IN_ANNOTATION: _admitted_since(progress, labels, now),
        OPENED_BOOT_ANNOTATION: node.boot_id or admitted_boot(node),
    }
    # While GPUs are only missing the facts stay: the node's pool may depend on them.
    if progress.presence.state == "present" and contradicts_nfd(node):
        annotations[NODE_FACTS_ANNOTATION] = None
    return PatchNode(node=node.name, labels=labels, annotations=annotations, why="operand gates")


def _missing_since(node: NodeView, presence: Presence, now: float) -> str | None:
    if presence.state != "missing":
        return None
    return node.annotations.get(GPU_MISSING_SINCE_ANNOTATION) or spelled(now)


def _pool(progress: NodeProgress, daemon_sets: Collection[str]) -> dict[str, str | None]:
    """A node with a running driver changes its pool by an upgrade only. One whose driver ends anyway, by a reboot or
    because its pod was deleted, gets the next one from its new pool."""
    if progress.pool is None:
        stays = (
            progress.obstacle
            or progress.waits
            or (progress.driver_removal is not None and progress.driver_removal.stays)
        )
        return {} if stays else {POOL_LABEL: None}
    has_driver = progress.pod_of(Operand.DRIVER) is not None
    current = daemon_set_of(progress.node.labels.get(POOL_LABEL, ""))
    if has_driver and current in daemon_sets and not is_rebooted(progress.node):
        return {}
    return {POOL_LABEL: progress.pool.name}


def changes_pool(progress: NodeProgress, daemon_sets: Collection[str]) -> bool:
    """Whether its driver is being replaced without an upgrade: after a reboot, which nothing survived anyway."""
    pod = progress.pod_of(Operand.DRIVER)
    label = _pool(progress, daemon_sets).get(POOL_LABEL) or progress.node.labels.get(POOL_LABEL)
    return pod is not None and pod.daemon_set != daemon_set_of(label or "")


def _deploy_labels(progress: NodeProgress, pause: str | None) -> dict[str, str | None]:
    node = progress.node
    gates = {each.deploy_label: _gate(progress, each, pause) for each in Operand if not user_override(node, each)}
    if progress.driver_removal is not None and progress.driver_removal.stays:
        gates[Operand.DRIVER.deploy_label] = LABEL_TRUE
    return gates


def _gate(progress: NodeProgress, operand: Operand, pause: str | None) -> str | None:
    on_node, label = progress.operands.get(operand), gate_value(progress.node, operand)
    if on_node is None or on_node.state == "excluded" or (on_node.blocker is not None and on_node.blocker.leaves):
        return None
    may_enter = on_node.blocker is None
    if pause is not None and operand in PAUSES[pause]:
        return pause if label else None
    if operand is Operand.DRIVER:
        stays = progress.node.labels.get(operand.deploy_label) == LABEL_TRUE and progress.pod_of(operand) is not None
        return LABEL_TRUE if may_enter or stays else None
    return LABEL_TRUE if label == LABEL_TRUE or may_enter else None


def _admitted_since(progress: NodeProgress, labels: Mapping[str, str | None], now: float) -> str | None:
    """Since when there may be operands without a pod. It stands until the node is complete; where that takes long, as
    long as it may be about one that has none."""
    admitted = [each for each in Operand if labels.get(each.deploy_label) == LABEL_TRUE]
    since = _known_since(progress.node, now)
    if _any_newly_admitted(progress.node, admitted):
        return spelled(now)
    if _any_pod_missing(progress, admitted):
        return since or spelled(now)
    return None if _all_are_ready(progress, admitted) or _pod_deadline_is_over(since, now) else since


def _known_since(node: NodeView, now: float) -> str | None:
    """What is written on the node, where it is a time that can run out."""
    since = node.annotations.get(LET_IN_ANNOTATION)
    moment = parsed(since)
    return None if moment is None or is_in_future(moment, now) else since


def _any_newly_admitted(node: NodeView, let_in: Iterable[Operand]) -> bool:
    return any(gate_value(node, each) != LABEL_TRUE for each in let_in)


def _any_pod_missing(progress: NodeProgress, let_in: Iterable[Operand]) -> bool:
    return any(each in progress.operands and progress.operands[each].reason in REASONS_WITHOUT_POD for each in let_in)


def _all_are_ready(progress: NodeProgress, let_in: Iterable[Operand]) -> bool:
    return all(progress.operands[each].state == "ready" for each in let_in if each in progress.operands)


def _pod_deadline_is_over(since: str | None, now: float) -> bool:
    return now >= (parsed(since) or 0.0) + PROGRESS_DEADLINE_S


# --- removal


NO_POLICY = "no ClusterPolicy is left"


def gone_patch(node: NodeView) -> PatchNode:
    """What a node keeps whose GPUs are gone: the word that it has none, and that Purser said so."""
    patch = removal_patch(node)
    labels = {**patch.labels, GPU_PRESENT_LABEL: "false"}
    labels.pop(RUNTIME_LABEL, None)
    old: dict[str, str | None] = {NODE_FACTS_ANNOTATION: None} if contradicts_nfd(node) else {}
    return PatchNode(
        node=node.name,
        labels=labels,
        annotations={**patch.annotations, **old},
        unschedulable=patch.unschedulable,
        why="GPUs are gone",
    )


def removal_patch(node: NodeView, *, has_rivals: bool = False) -> PatchNode:
    """Removes what the operator wrote on a node, its cordons included, but not what discovery wrote.

    ``has_rivals``: another operator is active there. Labels and annotations of nvidia.com may be its own by now, except
    for a pause, which only this one would end.
    """
    labels = [label for label in OWNED_NODE_LABELS if label in node.labels]
    labels += [
        each.deploy_label for each in Operand if each.deploy_label in node.labels and not _is_user_override(node, each)
    ]
    labels += [label for label in LEFTOVER_DEPLOY_LABELS if node.labels.get(label) == ""]
    annotations = [
        each for each in OWNED_NODE_ANNOTATIONS if each in node.annotations and each != NODE_FACTS_ANNOTATION
    ]
    return PatchNode(
        node=node.name,
        labels={
            each: None
            for each in labels
            if not has_rivals or _is_written_by_purser(each) or _is_pause(node.labels[each])
        },
        annotations={each: None for each in annotations if not has_rivals or _is_written_by_purser(each)},
        unschedulable=False if is_cordoned_by_purser(node) else None,
        why=NO_POLICY,
    )


def _is_user_override(node: NodeView, operand: Operand) -> bool:
    """Whether people wrote an operand's label. That a node has a driver of its own NVIDIA's driver manager writes."""
    return user_override(node, operand) not in ("", PREINSTALLED)


def is_marked(node: NodeView) -> bool:
    """Whether Purser's operator had it: labels of nvidia.com alone may be another operator's."""
    own = (*OWNED_NODE_LABELS, *(each for each in OWNED_NODE_ANNOTATIONS if each != NODE_FACTS_ANNOTATION))
    return any(key in node.labels or key in node.annotations for key in own if _is_written_by_purser(key))


def _is_written_by_purser(key: str) -> bool:
    """A label or annotation that only Purser writes."""
    return key.startswith(f"{GROUP}/")


def _is_pause(value: str) -> bool:
    return value in (PAUSED_FOR_UPGRADE, PAUSED_FOR_MIG)
