"""How far each operand is on each GPU node, and what keeps it out: found once per round, and read by gates, upgrade,
MIG and status alike.

`gate_blocker` is the one place where a gate's rule stands. `node_progress` writes its answer down as
`OperandOnNode.blocker`; the labels follow from that, and so does what the status says. A new thing to wait for is a
branch of `gate_blocker`, of what `NodeView` knows, with a reason of its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from purser.core.kubernetes.taints import REPELLING_EFFECTS, PodToleration, Taint
from purser.core.kubernetes.times import parsed
from purser.operator.gates.facts import is_mig_capable, user_override, was_rebooted
from purser.operator.model import (
    DeletePod,
    DriverRemoval,
    GateBlocker,
    NodeAssignment,
    NodeProgress,
    NodeView,
    OperandOnNode,
    OperandPod,
    OperandState,
    Raw,
    RenderedManifest,
    Snapshot,
    Template,
)
from purser.operator.names import (
    DRIVER_CONFIG_LABEL,
    LABEL_TRUE,
    LET_IN_ANNOTATION,
    OPENED_BOOT_ANNOTATION,
    OPERAND_LABEL,
    TEMPLATE_LABEL,
)
from purser.operator.order import Operand, prerequisites
from purser.operator.policy.spec import ClusterPolicySpec
from purser.operator.reasons import OperatorReason

# --- entry


def gate_value(node: NodeView, operand: Operand) -> str:
    """The value of an operand's label, if Purser manages the node; empty: it is not admitted. A label that another
    operator left behind admits nothing."""
    return node.labels.get(operand.deploy_label, "") if OPENED_BOOT_ANNOTATION in node.annotations else ""


def gate_blocker(
    progress: NodeProgress, operand: Operand, own: tuple[Operand, ...], found: Mapping[Operand, OperandOnNode]
) -> GateBlocker | None:
    """What keeps an operand out that is not in yet; None: it may enter. ``own``: those that the node is to have;
    ``found``: how those are that come before it."""
    if operand is Operand.DRIVER:
        return _driver_blocker(progress)
    if why := _external_obstacle(progress, own):
        return GateBlocker(OperatorReason.WAITING, why, leaves=True)
    needed = prerequisites(operand, own)
    lacking = [each for each in own if each in needed and found[each].state != "ready"]
    return GateBlocker(OperatorReason.WAITING, f"waiting for {', '.join(lacking)}") if lacking else None


def _driver_blocker(progress: NodeProgress) -> GateBlocker | None:
    if progress.obstacle:
        return GateBlocker(OperatorReason.NO_DRIVER, progress.obstacle, fails=True)
    return GateBlocker(OperatorReason.MODEL_UNKNOWN, progress.waits) if progress.waits else None


def _external_obstacle(progress: NodeProgress, own: tuple[Operand, ...]) -> str:
    """What everything that needs the driver waits for outside; empty: nothing. After a reboot all is let in again, in
    order. A driver that is to leave, and that no pod uses any more, goes last."""
    if Operand.DRIVER in own and is_rebooted(progress.node):
        return "waiting for the driver"
    removal = progress.driver_removal
    if removal is not None and (removal.terminating or removal.users == ()):
        return "waiting for the previous driver to be removed"
    return ""


def is_rebooted(node: NodeView) -> bool:
    """Whether it was started since operands were let in."""
    return was_rebooted(node, admitted_boot(node))


def admitted_boot(node: NodeView) -> str:
    """The boot that operands were let in for; empty: none was."""
    return node.annotations.get(OPENED_BOOT_ANNOTATION, "")


# --- operands without a pod


PROGRESS_DEADLINE_S = 600.0
"""What does not get ready, or gets no pod, for longer counts as failing."""
NO_POD = "no pod yet; if this persists, check the node's free resources and the DaemonSet's events"
NO_CONFIG = (
    "a ConfigMap named in driver.kernelModuleConfig, repoConfig or certConfig is missing from the operator's namespace"
)
OLD_POD_TERMINATING = "the old pod is still terminating"
REASONS_WITHOUT_POD = (OperatorReason.NO_POD, OperatorReason.UNTOLERATED)
"""Of operands that were let in and have no pod."""

_TRANSIENT_TAINT_PREFIX = "node.kubernetes.io/"
"""Taints on a node's condition: they are temporary, DaemonSets tolerate most, and the Ready condition covers the
rest."""


class Manifests(msgspec.Struct, frozen=True):
    """The parts of the rendered DaemonSets that determine an operand's state on a node."""

    templates: dict[str, Template]
    """By name."""
    pods: dict[str, list[Mapping[str, Any]]]
    """Pod specs by operand."""
    tolerations: list[Sequence[Mapping[str, Any]]]
    """Of all pods, each once: as a rule they all have the same."""

    def template_of(self, daemon_set: str) -> Template:
        """An empty one where the DaemonSet is not rendered any more."""
        return self.templates.get(daemon_set, Template())


def manifests_of(rendered: Iterable[RenderedManifest]) -> Manifests:
    """Of everything that is rendered."""
    found = Manifests({}, {}, [])
    for each in rendered:
        if each.object["kind"] == "DaemonSet":
            metadata = each.object["metadata"]
            labels = metadata.get("labels") or {}
            found.templates[metadata["name"]] = Template(
                labels.get(TEMPLATE_LABEL, ""), labels.get(DRIVER_CONFIG_LABEL, "")
            )
            pod = each.object["spec"]["template"]["spec"]
            found.pods.setdefault(labels.get(OPERAND_LABEL, ""), []).append(pod)
            if (tolerations := pod.get("tolerations", ())) not in found.tolerations:
                found.tolerations.append(tolerations)
    return found


def without_pod(progress: NodeProgress, operand: Operand, manifests: Manifests, now: float) -> OperandOnNode:
    """How an operand is that was let in and has no pod."""
    taint = untolerated_taint(progress.node, manifests.pods.get(operand.value, ()))
    if taint is not None:
        message = f"pods do not tolerate {_taint_advice(taint)}"
        return OperandOnNode(operand=operand, state="failing", reason=OperatorReason.UNTOLERATED, message=message)
    still = any(pod.operand == operand for pod in progress.pods)
    awaits = operand is Operand.DRIVER and progress.pool is not None and not progress.driver_template.hash
    message = NO_CONFIG if awaits else NO_POD
    return OperandOnNode(
        operand=operand,
        state="failing" if now >= missing_pod_deadline(progress.node, now) else "progressing",
        reason=OperatorReason.NO_POD,
        message=OLD_POD_TERMINATING if still else message,
    )


def missing_pod_deadline(node: NodeView, now: float) -> float:
    """When operands without a pod count as failing on a node."""
    since = parsed(node.annotations.get(LET_IN_ANNOTATION))
    return (now if since is None else since) + PROGRESS_DEADLINE_S


def untolerated_taint(node: NodeView, pods: Iterable[Mapping[str, Any]]) -> Taint | None:
    """A taint that keeps the pods away that select the node."""
    selecting = (pod for pod in pods if pod.get("nodeSelector", {}).items() <= node.labels.items())
    return _first_untolerated(node, [pod.get("tolerations", ()) for pod in selecting])


def untolerated(node: NodeView, manifests: Manifests) -> str:
    """Why operands that leave the node would not come back to it, in one sentence; empty: they would."""
    taint = _first_untolerated(node, manifests.tolerations)
    return f"new operand pods would not tolerate {_taint_advice(taint)}" if taint is not None else ""


def _first_untolerated(node: NodeView, tolerations: Iterable[Iterable[Mapping[str, Any]]]) -> Taint | None:
    """A taint of the node that one of these sets of tolerations does not tolerate."""
    permanent = [
        each
        for each in node.taints
        if each.effect in REPELLING_EFFECTS and not each.key.startswith(_TRANSIENT_TAINT_PREFIX)
    ]
    return next((taint for taint in permanent for each in tolerations if not _is_tolerated(taint, each)), None)


def _taint_advice(taint: Taint) -> str:
    return f"the node's taint {taint}: add a toleration to spec.daemonsets.tolerations or remove the taint"


def _is_tolerated(taint: Taint, tolerations: Iterable[Mapping[str, Any]]) -> bool:
    return any(_toleration(each).tolerates(taint) for each in tolerations)


def _toleration(given: Mapping[str, Any]) -> PodToleration:
    return PodToleration(
        given.get("key", ""), given.get("operator", ""), given.get("value", ""), given.get("effect", "")
    )


# --- DaemonSets


def outdated_daemonsets(node_progress: Iterable[NodeProgress], live: Mapping[str, Raw]) -> frozenset[str]:
    """Names of those that are not live with the template that their pool is to have, or whose controller has not seen
    it. ``live``: DaemonSets by name."""
    wanted = {each.pool.daemon_set: each.driver_template for each in node_progress if each.pool is not None}
    return frozenset(name for name, template in wanted.items() if _is_outdated_daemonset(template, live.get(name)))


def _is_outdated_daemonset(template: Template, live: Raw | None) -> bool:
    if live is None or live["metadata"].get("deletionTimestamp"):
        return True
    is_right = (live["metadata"].get("labels") or {}).get(TEMPLATE_LABEL) == template.hash
    return not is_right or is_unobserved(live)


def is_unobserved(daemon_set: Raw) -> bool:
    """Whether its controller has not seen its present generation."""
    seen = (daemon_set.get("status") or {}).get("observedGeneration", 0)
    return bool(seen < daemon_set["metadata"].get("generation", 0))


# --- nodes


MIN_FAILING_RESTARTS = 3
IMAGE_PROBLEMS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerError", "CreateContainerConfigError"}
)
"""These do not pass by themselves."""


def node_progress(
    snapshot: Snapshot,
    spec: ClusterPolicySpec,
    found: Iterable[NodeAssignment],
    rendered: Iterable[RenderedManifest],
    driver_removals: Mapping[str, DriverRemoval],
) -> tuple[NodeProgress, ...]:
    """How each GPU node stands, in the order of ``found``; nodes whose GPUs are gone are no GPU nodes."""
    manifests = manifests_of(rendered)
    pods: dict[str, list[OperandPod]] = {}
    for pod in snapshot.pods:
        pods.setdefault(pod.node, []).append(pod)
    enabled = spec.enabled
    return tuple(
        _progress(
            assignment, tuple(pods.get(assignment.node.name, ())), enabled, manifests, driver_removals, snapshot.now
        )
        for assignment in found
        if assignment.presence.state != "gone"
    )


def _progress(
    assignment: NodeAssignment,
    pods: tuple[OperandPod, ...],
    enabled: Iterable[Operand],
    manifests: Manifests,
    driver_removals: Mapping[str, DriverRemoval],
    now: float,
) -> NodeProgress:
    bare = NodeProgress(
        **msgspec.structs.asdict(assignment),
        driver_template=manifests.template_of(assignment.pool.daemon_set)
        if assignment.pool is not None
        else Template(),
        pods=pods,
        mig_capable=is_mig_capable(assignment.node),
        driver_removal=driver_removals.get(assignment.node.name),
        untolerated=untolerated(assignment.node, manifests),
    )
    here = [each for each in enabled if each is not Operand.MIG_MANAGER or bare.mig_capable]
    return msgspec.structs.replace(bare, operands=_operands(bare, here, manifests, now))


def _operands(
    progress: NodeProgress, here: list[Operand], manifests: Manifests, now: float
) -> dict[Operand, OperandOnNode]:
    found: dict[Operand, OperandOnNode] = {}
    own = tuple(each for each in here if not user_override(progress.node, each))
    for operand in here:
        if progress.excluded or operand not in own:
            found[operand] = OperandOnNode(operand=operand, state="excluded")
            continue
        blocker = gate_blocker(progress, operand, own, found)
        found[operand] = msgspec.structs.replace(_on_node(progress, operand, blocker, manifests, now), blocker=blocker)
    return found


def _on_node(
    progress: NodeProgress, operand: Operand, blocker: GateBlocker | None, manifests: Manifests, now: float
) -> OperandOnNode:
    label = gate_value(progress.node, operand)
    pod = progress.pod_of(operand)
    if label.startswith("paused-for-"):
        return OperandOnNode(operand=operand, state="paused", reason=OperatorReason.PAUSED, message=label)
    if label != LABEL_TRUE:
        return _without_label(operand, blocker)
    if pod is None:
        return without_pod(progress, operand, manifests, now)
    outdated = pod.template != manifests.template_of(pod.daemon_set).hash
    if operand is Operand.DRIVER:
        outdated = not progress.driver_is_current
    state, reason, message = _pod_state(progress, pod, now)
    return OperandOnNode(operand=operand, state=state, outdated=outdated, reason=reason, message=message)


def _without_label(operand: Operand, blocker: GateBlocker | None) -> OperandOnNode:
    if blocker is None:
        return OperandOnNode(operand=operand, state="waiting", reason=OperatorReason.WAITING, message="starting")
    state: OperandState = "failing" if blocker.fails else "waiting"
    return OperandOnNode(operand=operand, state=state, reason=blocker.reason, message=blocker.message)


def _pod_state(progress: NodeProgress, pod: OperandPod, now: float) -> tuple[OperandState, str, str]:
    if pod.ready:
        if pod.operand == Operand.VALIDATOR and progress.validation_is_stale:
            return "progressing", OperatorReason.VALIDATION_OUTDATED, "the driver changed after the last validation"
        return "ready", "", ""
    if not progress.node.ready:
        return "failing", OperatorReason.NODE_NOT_READY, "the node is not ready"
    reason_and_message = (pod.trouble or OperatorReason.NOT_READY, pod.message or "the pod is not ready")
    if pod.trouble in IMAGE_PROBLEMS or (pod.trouble and pod.restarts >= MIN_FAILING_RESTARTS):
        return "failing", *reason_and_message
    return "failing" if now >= ready_deadline(pod) else "progressing", *reason_and_message


def ready_deadline(pod: OperandPod) -> float:
    """When a pod that is not ready counts as failing."""
    return (pod.ready_changed or pod.created) + PROGRESS_DEADLINE_S


def stale_validations(node_progress: Iterable[NodeProgress]) -> tuple[DeletePod, ...]:
    """Validators that have to validate again, because their node has a newer driver, and it is ready."""
    found = []
    for progress in node_progress:
        driver, pod = progress.pod_of(Operand.DRIVER), progress.pod_of(Operand.VALIDATOR)
        if progress.validation_is_stale and driver is not None and driver.ready and pod is not None:
            found.append(DeletePod(pod, "the node has a newer driver"))
    return tuple(found)
