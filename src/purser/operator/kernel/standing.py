"""How GPU nodes stand: found once per round, and read by gates, upgrade, MIG and status alike."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec

from purser.operator.kernel.facts import is_excluded, is_mig_capable, runtime_of, users_word
from purser.operator.kernel.missing_pods import PATIENCE_S, Manifests, barred, manifests_of, without_pod
from purser.operator.kernel.pools import pool_of, waits_for
from purser.operator.kernel.unseen_gpus import presence_of
from purser.operator.model import (
    Departure,
    NodeView,
    OperandOnNode,
    OperandPod,
    OperandState,
    Place,
    Presence,
    Rendered,
    Snapshot,
    Standing,
    Template,
)
from purser.operator.names import DEPLOY, OPENED_BOOT_ANNOTATION
from purser.operator.operands import as_told_apart
from purser.operator.order import Operand, prerequisites
from purser.operator.policy.spec import ClusterPolicySpec
from purser.operator.wording import natural

MANY_RESTARTS = 3
IMAGE_TROUBLES = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerError", "CreateContainerConfigError"}
)
"""These do not pass by themselves."""


def places(snapshot: Snapshot, spec: ClusterPolicySpec) -> tuple[Place, ...]:
    """Nodes that have or had GPUs, ordered by name."""
    found = []
    for node in sorted(snapshot.nodes, key=lambda node: natural(node.name)):
        presence = presence_of(node, snapshot, spec.discovery.gone_after_seconds)
        if presence.state != "never":
            found.append(_place(node, presence, spec))
    return tuple(found)


def _place(node: NodeView, presence: Presence, spec: ClusterPolicySpec) -> Place:
    runtime = as_told_apart(runtime_of(node), spec)
    bare = Place(node=node, presence=presence, runtime=runtime, excluded=is_excluded(node))
    if presence.state == "gone" or bare.excluded or not spec.driver.enabled or users_word(node, Operand.DRIVER):
        return bare
    if waits := waits_for(node, spec):
        return msgspec.structs.replace(bare, waits=waits)
    pool = pool_of(node, spec.driver)
    if isinstance(pool, str):
        return msgspec.structs.replace(bare, obstacle=pool)
    return msgspec.structs.replace(bare, pool=pool)


def standings(
    snapshot: Snapshot,
    spec: ClusterPolicySpec,
    found: Iterable[Place],
    rendered: Iterable[Rendered],
    departures: Mapping[str, Departure],
) -> tuple[Standing, ...]:
    """How each GPU node stands, in the order of ``found``; nodes whose GPUs are gone are no GPU nodes."""
    manifests = manifests_of(rendered)
    pods: dict[str, list[OperandPod]] = {}
    for pod in snapshot.pods:
        pods.setdefault(pod.node, []).append(pod)
    enabled = spec.enabled
    return tuple(
        _standing(place, tuple(pods.get(place.node.name, ())), enabled, manifests, departures, snapshot.now)
        for place in found
        if place.presence.state != "gone"
    )


def gate_of(node: NodeView, operand: Operand) -> str:
    """What an operand's label says, where Purser has been at the node; empty: it was not let in. A label that another
    operator left behind lets nobody in."""
    return node.labels.get(operand.deploy_label, "") if OPENED_BOOT_ANNOTATION in node.annotations else ""


def _standing(
    place: Place,
    pods: tuple[OperandPod, ...],
    enabled: Iterable[Operand],
    manifests: Manifests,
    departures: Mapping[str, Departure],
    now: float,
) -> Standing:
    bare = Standing(
        **msgspec.structs.asdict(place),
        driver_template=manifests.template_of(place.pool.daemon_set) if place.pool is not None else Template(),
        pods=pods,
        mig_capable=is_mig_capable(place.node),
        departure=departures.get(place.node.name),
        barred=barred(place.node, manifests),
    )
    here = [each for each in enabled if each is not Operand.MIG_MANAGER or bare.mig_capable]
    return msgspec.structs.replace(bare, operands=_operands(bare, here, manifests, now))


def _operands(
    standing: Standing, here: list[Operand], manifests: Manifests, now: float
) -> dict[Operand, OperandOnNode]:
    found: dict[Operand, OperandOnNode] = {}
    own = tuple(each for each in here if not users_word(standing.node, each))
    for operand in here:
        if standing.excluded or operand not in own:
            found[operand] = OperandOnNode(operand=operand, state="excluded", reason="Excluded")
            continue
        lacking = [each for each in own if each in needs(own)[operand] and found[each].state != "ready"]
        found[operand] = _on_node(standing, operand, lacking, manifests, now)
    return found


@lru_cache(maxsize=128)
def needs(own: tuple[Operand, ...]) -> dict[Operand, frozenset[Operand]]:
    """What must be ready for each of the operands that a node is to have. The same few sets come for every node."""
    return {operand: prerequisites(operand, own) for operand in own}


def _on_node(
    standing: Standing, operand: Operand, lacking: list[Operand], manifests: Manifests, now: float
) -> OperandOnNode:
    label = gate_of(standing.node, operand)
    pod = standing.pod_of(operand)
    if label.startswith("paused-for-"):
        return OperandOnNode(operand=operand, state="paused", reason="Paused", message=label)
    if label != DEPLOY:
        return _without_label(standing, operand, lacking)
    if pod is None:
        return without_pod(standing, operand, manifests, now)
    outdated = pod.template != manifests.template_of(pod.daemon_set).hash
    if operand is Operand.DRIVER:
        outdated = not standing.driver_is_current
    state, reason, message = _of_pod(standing, pod, now)
    return OperandOnNode(operand=operand, state=state, outdated=outdated, reason=reason, message=message)


def _without_label(standing: Standing, operand: Operand, lacking: list[Operand]) -> OperandOnNode:
    if operand is Operand.DRIVER and standing.obstacle:
        return OperandOnNode(operand=operand, state="failing", reason="NoDriver", message=standing.obstacle)
    if operand is Operand.DRIVER and standing.waits:
        return OperandOnNode(operand=operand, state="waiting", reason="ModelUnknown", message=standing.waits)
    message = f"it waits for {', '.join(lacking)}" if lacking else "it starts next"
    if standing.departure is not None:
        message = "it waits until the node's former driver is removed"
    return OperandOnNode(operand=operand, state="waiting", reason="Waiting", message=message)


def _of_pod(standing: Standing, pod: OperandPod, now: float) -> tuple[OperandState, str, str]:
    if pod.ready:
        if pod.operand == Operand.VALIDATOR and standing.validation_is_stale:
            return "progressing", "DriverIsNewer", "its driver is newer than its validation"
        return "ready", "", ""
    if not standing.node.ready:
        return "failing", "NodeNotReady", "the node is not ready"
    told = (pod.trouble or "NotReady", pod.message or "its pod is not ready")
    if pod.trouble in IMAGE_TROUBLES or (pod.trouble and pod.restarts >= MANY_RESTARTS):
        return "failing", *told
    return "failing" if now >= fails_at(pod) else "progressing", *told


def fails_at(pod: OperandPod) -> float:
    """When a pod that is not ready counts as failing."""
    return (pod.ready_changed or pod.created) + PATIENCE_S
