"""How GPU nodes stand: found once per round, and read by gates, upgrade, MIG and status alike."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Literal

import msgspec

from purser.operator.kernel.facts import Presence, has_gpu, is_excluded, is_mig_capable, runtime_of, users_word
from purser.operator.kernel.pools import pool_of
from purser.operator.model import NodeView, OperandOnNode, PodView, Pool, Rendered, Snapshot, Standing
from purser.operator.names import DEPLOY, TEMPLATE_LABEL
from purser.operator.order import Operand, prerequisites
from purser.operator.policy.spec import ClusterPolicySpec

PATIENCE_S = 600.0
"""A pod that is not ready for longer counts as failing."""
NO_POD = "it has no pod yet; if that lasts, its pods do not tolerate the node's taints, or find no room there"
MANY_RESTARTS = 3
IMAGE_TROUBLES = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerError", "CreateContainerConfigError"}
)
"""These do not pass by themselves."""

State = Literal["waiting", "paused", "progressing", "ready", "failing", "excluded"]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU node and where it belongs; before manifests, and so templates, are known."""

    node: NodeView
    presence: Presence
    pool: Pool | None = None
    obstacle: str = ""
    excluded: bool = False


def places(snapshot: Snapshot, spec: ClusterPolicySpec) -> tuple[Place, ...]:
    """Nodes that have or had GPUs, ordered by name."""
    found = []
    for node in sorted(snapshot.nodes, key=lambda node: node.name):
        presence = has_gpu(node, snapshot.now, spec.discovery.gone_after_seconds)
        if presence.state != "never":
            found.append(_place(node, presence, spec))
    return tuple(found)


def _place(node: NodeView, presence: Presence, spec: ClusterPolicySpec) -> Place:
    excluded = is_excluded(node)
    if presence.state == "gone" or excluded or not spec.driver.enabled or users_word(node, Operand.DRIVER):
        return Place(node=node, presence=presence, excluded=excluded)
    pool = pool_of(node, spec.driver)
    if isinstance(pool, str):
        return Place(node=node, presence=presence, obstacle=pool)
    return Place(node=node, presence=presence, pool=pool)


def standings(
    snapshot: Snapshot, spec: ClusterPolicySpec, found: Iterable[Place], rendered: Iterable[Rendered]
) -> tuple[Standing, ...]:
    """How each GPU node stands, in the order of ``found``; nodes whose GPUs are gone are no GPU nodes."""
    templates = templates_of(rendered)
    pods: dict[str, list[PodView]] = {}
    for pod in snapshot.pods:
        pods.setdefault(pod.node, []).append(pod)
    enabled = spec.enabled
    return tuple(
        _standing(place, tuple(pods.get(place.node.name, ())), enabled, templates, snapshot.now)
        for place in found
        if place.presence.state != "gone"
    )


def templates_of(rendered: Iterable[Rendered]) -> dict[str, str]:
    """Hash of the pod template by DaemonSet."""
    sets = (each.object["metadata"] for each in rendered if each.object["kind"] == "DaemonSet")
    return {metadata["name"]: (metadata.get("labels") or {}).get(TEMPLATE_LABEL, "") for metadata in sets}


def _standing(
    place: Place, pods: tuple[PodView, ...], enabled: Iterable[Operand], templates: Mapping[str, str], now: float
) -> Standing:
    pool = place.pool
    if pool is not None:
        pool = msgspec.structs.replace(pool, template=templates.get(pool.daemon_set, ""))
    bare = Standing(
        node=place.node,
        pool=pool,
        obstacle=place.obstacle,
        pods=pods,
        runtime=runtime_of(place.node),
        mig_capable=is_mig_capable(place.node),
    )
    here = [each for each in enabled if each is not Operand.MIG_MANAGER or bare.mig_capable]
    return msgspec.structs.replace(bare, operands=_operands(bare, here, place.excluded, templates, now))


def _operands(
    standing: Standing, here: list[Operand], excluded: bool, templates: Mapping[str, str], now: float
) -> dict[Operand, OperandOnNode]:
    found: dict[Operand, OperandOnNode] = {}
    own = tuple(each for each in here if not users_word(standing.node, each))
    for operand in here:
        if excluded or operand not in own:
            found[operand] = OperandOnNode(operand=operand, state="excluded", reason="Excluded")
            continue
        lacking = [each for each in own if each in needs(own)[operand] and found[each].state != "ready"]
        found[operand] = _on_node(standing, operand, lacking, templates, now)
    return found


@lru_cache(maxsize=128)
def needs(own: tuple[Operand, ...]) -> dict[Operand, frozenset[Operand]]:
    """What must be ready for each of the operands that a node is to have. The same few sets come for every node."""
    return {operand: prerequisites(operand, own) for operand in own}


def _on_node(
    standing: Standing, operand: Operand, lacking: list[Operand], templates: Mapping[str, str], now: float
) -> OperandOnNode:
    label = standing.node.labels.get(operand.deploy_label, "")
    pod = standing.pod_of(operand)
    if label.startswith("paused-for-"):
        return OperandOnNode(operand=operand, state="paused", reason="Paused", message=label)
    if label != DEPLOY:
        return _without_label(standing, operand, lacking)
    if pod is None:
        return OperandOnNode(operand=operand, state="progressing", reason="NoPod", message=NO_POD)
    outdated = pod.template != templates.get(pod.daemon_set, "")
    if operand is Operand.DRIVER:
        outdated = not standing.driver_is_current
    state, reason, message = _of_pod(standing, pod, now)
    return OperandOnNode(operand=operand, state=state, outdated=outdated, reason=reason, message=message)


def _without_label(standing: Standing, operand: Operand, lacking: list[Operand]) -> OperandOnNode:
    if operand is Operand.DRIVER and standing.obstacle:
        return OperandOnNode(operand=operand, state="failing", reason="NoDriver", message=standing.obstacle)
    message = f"it waits for {', '.join(lacking)}" if lacking else "it is let in next"
    return OperandOnNode(operand=operand, state="waiting", reason="Waiting", message=message)


def _of_pod(standing: Standing, pod: PodView, now: float) -> tuple[State, str, str]:
    if pod.ready:
        if is_stale_validation(standing, pod):
            return "progressing", "DriverIsNewer", "its driver is newer than its validation"
        return "ready", "", ""
    if not standing.node.ready:
        return "failing", "NodeNotReady", "the node is not ready"
    told = (pod.trouble or "NotReady", pod.message or "its pod is not ready")
    if pod.trouble in IMAGE_TROUBLES or (pod.trouble and pod.restarts >= MANY_RESTARTS):
        return "failing", *told
    return "failing" if now >= fails_at(pod) else "progressing", *told


def fails_at(pod: PodView) -> float:
    """When a pod that is not ready counts as failing."""
    return (pod.ready_changed or pod.created) + PATIENCE_S


def is_stale_validation(standing: Standing, pod: PodView) -> bool:
    """Whether this pod validated a driver that is no longer there."""
    driver = standing.pod_of(Operand.DRIVER)
    return pod.operand == Operand.VALIDATOR and driver is not None and pod.created < driver.created
