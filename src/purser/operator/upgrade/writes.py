"""The patches of an upgrade. Each is one write that is valid by itself: a state and its effect travel together."""

from functools import partial

from purser.core.names import UPGRADE_FAILURE_ANNOTATION, UPGRADE_STATE_LABEL
from purser.operator.maintenance import (
    CordonOwner,
    NodeStep,
    NodeTexts,
    claim,
    event,
    is_cordoned_by,
    lift_cordon,
    patch,
    write_step,
)
from purser.operator.model import NodeProgress, NodeView, PatchNode
from purser.operator.names import (
    UPGRADE_AWAY_SINCE_ANNOTATION,
    UPGRADE_INITIAL_CORDON_ANNOTATION,
    UPGRADE_OLD_DRIVER_LEFT_ANNOTATION,
    UPGRADE_REQUESTED_ANNOTATION,
    UPGRADE_RESTART_ONLY_ANNOTATION,
    UPGRADE_STEP_START_ANNOTATION,
    UPGRADE_TARGET_ANNOTATION,
    UPGRADE_VALIDATION_START_ANNOTATION,
    UPGRADE_WAIT_START_ANNOTATION,
)
from purser.operator.order import Operand
from purser.operator.reasons import OperatorReason
from purser.operator.upgrade.states import REQUESTED_VALUE, State, UpgradeInputs, is_restart_only, state_of

node_event = partial(event, OperatorReason.DRIVER_UPGRADE)

CLEARED_PROGRESS: NodeTexts = dict.fromkeys(
    (
        UPGRADE_STEP_START_ANNOTATION,
        UPGRADE_WAIT_START_ANNOTATION,
        UPGRADE_VALIDATION_START_ANNOTATION,
        UPGRADE_RESTART_ONLY_ANNOTATION,
        UPGRADE_OLD_DRIVER_LEFT_ANNOTATION,
        UPGRADE_AWAY_SINCE_ANNOTATION,
    )
)
"""What stands beside a state, and goes with it."""


def enter(
    progress: NodeProgress,
    state: State,
    now: float,
    why: str,
    *,
    annotations: NodeTexts | None = None,
    unschedulable: bool | None = None,
) -> PatchNode:
    """Into a state, with the time and the target beside it."""
    written: NodeTexts = {
        UPGRADE_STEP_START_ANNOTATION: clock_text(now),
        UPGRADE_TARGET_ANNOTATION: progress.target,
        UPGRADE_RESTART_ONLY_ANNOTATION: None,
        UPGRADE_OLD_DRIVER_LEFT_ANNOTATION: None,
        UPGRADE_AWAY_SINCE_ANNOTATION: None,
        UPGRADE_WAIT_START_ANNOTATION: f"{now:.0f}" if state is State.JOBS else None,
        UPGRADE_VALIDATION_START_ANNOTATION: f"{now:.0f}" if state is State.VALIDATION else None,
    }
    return patch(
        progress.node,
        why,
        labels={UPGRADE_STATE_LABEL: state.value},
        annotations=written | (annotations or {}),
        unschedulable=unschedulable,
    )


def cordon_and_continue(progress: NodeProgress, fleet: UpgradeInputs, why: str) -> PatchNode:
    """Cordoned, and into what comes next: where the driver stays the same, its pod is replaced at once and no pod has
    to leave; otherwise jobs are waited for, or pods leave."""
    following, annotations = State.PODS, cordon_marks(progress.node)
    if is_restart_only(progress):
        following = State.RESTART
        annotations |= {UPGRADE_RESTART_ONLY_ANNOTATION: progress.driver_template.configuration}
    elif fleet.policy.wait_for_completion.pod_selector:
        following = State.JOBS
    return enter(progress, following, fleet.now, why, annotations=annotations, unschedulable=True)


def clock_text(now: float) -> str:
    """A time as it stands in an annotation."""
    return f"{now:.3f}"


def cordon_marks(node: NodeView) -> NodeTexts:
    """The marks of a cordon: that it is the upgrade's, or was there before."""
    mark = claim(node, CordonOwner.UPGRADE)
    return mark | {UPGRADE_INITIAL_CORDON_ANNOTATION: None if mark else "true"}


def uncordon_node(node: NodeView) -> tuple[NodeTexts, bool | None]:
    """Marks and cordon after an upgrade: lifted where it is ours, left where it is not."""
    mark, unschedulable = lift_cordon(node, CordonOwner.UPGRADE)
    return mark | {UPGRADE_INITIAL_CORDON_ANNOTATION: None}, unschedulable


def finish(progress: NodeProgress, now: float, done: str = "driver upgraded") -> PatchNode:
    """The node has its driver and is given back."""
    marks, unschedulable = uncordon_node(progress.node)
    stays_cordoned = progress.node.unschedulable and unschedulable is None
    why = (
        f"{done}; the node stays cordoned because something other than the upgrade cordoned it"
        if stays_cordoned
        else done
    )
    gone: NodeTexts = {UPGRADE_FAILURE_ANNOTATION: None, **_clear_met_request(progress.node)}
    return enter(progress, State.DONE, now, why, annotations=marks | gone, unschedulable=unschedulable)


def mark_failed(progress: NodeProgress, now: float, reason: str, *, touched: bool) -> PatchNode:
    """The upgrade of this node failed. With its old driver untouched it is given back; otherwise it stays cordoned."""
    marks, unschedulable = ({}, None) if touched else uncordon_node(progress.node)
    annotations: NodeTexts = {UPGRADE_FAILURE_ANNOTATION: reason}
    return enter(progress, State.FAILED, now, reason, annotations=annotations | marks, unschedulable=unschedulable)


def requeue(node: NodeView, why: str) -> PatchNode:
    """Before its old driver was touched: given back as it was, and into the line again."""
    marks, unschedulable = uncordon_node(node)
    return patch(
        node,
        why,
        labels={UPGRADE_STATE_LABEL: State.REQUIRED.value},
        annotations=CLEARED_PROGRESS | marks,
        unschedulable=unschedulable,
    )


def release(node: NodeView, why: str) -> PatchNode | None:
    """No upgrade concerns this node any more: every mark of one goes. None where there is none."""
    marks, unschedulable = uncordon_node(node)
    gone: NodeTexts = CLEARED_PROGRESS | {UPGRADE_TARGET_ANNOTATION: None, UPGRADE_FAILURE_ANNOTATION: None}
    made = patch(
        node,
        why,
        labels={UPGRADE_STATE_LABEL: None},
        annotations=gone | marks | _clear_met_request(node),
        unschedulable=unschedulable,
    )
    return made if made.labels or made.annotations or made.unschedulable is not None else None


def _clear_met_request(node: NodeView) -> NodeTexts:
    """A request that people made meanwhile stays."""
    return (
        {}
        if node.annotations.get(UPGRADE_REQUESTED_ANNOTATION) == REQUESTED_VALUE
        else {UPGRADE_REQUESTED_ANNOTATION: None}
    )


# --- failures


UNREPORTED = "driver upgrade failed; the annotation with the reason is missing"


def fail_and_uncordon(progress: NodeProgress, fleet: UpgradeInputs, why: str) -> NodeStep:
    """Before its old driver was touched: the node is given back, and tried again later."""
    return write_step(
        mark_failed(progress, fleet.now, why, touched=False), node_event(progress.node, why, warning=True)
    )


def fail_and_stay_cordoned(progress: NodeProgress, fleet: UpgradeInputs, why: str) -> NodeStep:
    """After: it stays cordoned, and counts towards halting the upgrade."""
    return write_step(mark_failed(progress, fleet.now, why, touched=True), node_event(progress.node, why, warning=True))


def failure_of(node: NodeView) -> str:
    """Why a node's upgrade failed, in one sentence; empty where none failed. A node that stays cordoned for it is
    reported until its next upgrade begins."""
    state = state_of(node)
    why = node.annotations.get(UPGRADE_FAILURE_ANNOTATION) or UNREPORTED
    if state is State.FAILED:
        return why
    is_half_way = state is State.REQUIRED and is_cordoned_by(node, CordonOwner.UPGRADE)
    return (
        f"the last driver upgrade failed, and the node stays cordoned while queued for a retry: {why}"
        if is_half_way
        else ""
    )


def driver_problem(progress: NodeProgress) -> str:
    """What is wrong with its driver's pod, as the end of a sentence."""
    pod = progress.pod_of(Operand.DRIVER)
    if pod is None:
        is_going = any(each.operand == Operand.DRIVER for each in progress.pods)
        return ": the old pod is still terminating" if is_going else ": it has no pod"
    return f": {pod.message or pod.trouble}" if pod.trouble or pod.message else ""


def describe_unready_operand(progress: NodeProgress) -> str:
    """The first operand that is not ready, and why, as the end of a sentence."""
    for operand in progress.operands.values():
        if operand.state not in ("ready", "excluded"):
            return f": {operand.operand} is {operand.state}{f' ({operand.message})' if operand.message else ''}"
    return ""
