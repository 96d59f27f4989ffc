"""A node's next step in its driver upgrade, by its state (`next_step`): also while its pods leave
(`step_while_emptying`), and while it is NotReady in the middle of it (`step_while_not_ready`).

Not here: which nodes begin (`budget`), and how a driver is replaced (`replacing`).
"""

from collections.abc import Callable

from purser.core.names import UPGRADE_STATE_LABEL
from purser.core.wording import counted
from purser.operator.maintenance import (
    UNKNOWN_PODS,
    CordonOwner,
    DisruptionLedger,
    NodeStep,
    NodeTexts,
    Rules,
    deadline,
    drained_pods,
    evictable_gpu_pods,
    is_cordoned_by,
    is_over,
    jobs,
    next_eviction_time,
    patch,
    request_evictions,
    write_step,
)
from purser.operator.model import NodeProgress, NodeWorkload
from purser.operator.names import (
    UPGRADE_AWAY_SINCE_ANNOTATION,
    UPGRADE_INITIAL_CORDON_ANNOTATION,
    UPGRADE_REQUESTED_ANNOTATION,
    UPGRADE_STEP_START_ANNOTATION,
)
from purser.operator.order import Operand
from purser.operator.policy.driver import Drain, PodDeletion
from purser.operator.upgrade.replacing import replace, validate
from purser.operator.upgrade.states import (
    EMPTYING_STATES,
    REQUESTED_VALUE,
    STATES_UNDER_WAY,
    State,
    UpgradeInputs,
    daemonset_problem,
    has_known_start,
    is_due,
    is_managed,
    is_restart_only,
    is_untouched,
    is_valid,
    not_ready_deadline,
    reached_target,
    stale_pod,
    state_of,
    step_start,
)
from purser.operator.upgrade.writes import (
    clock_text,
    cordon_and_continue,
    cordon_marks,
    enter,
    fail_and_uncordon,
    failure_of,
    finish,
    node_event,
    release,
    requeue,
)

# --- nodes that are NotReady


NOT_READY = "the node is NotReady"
_OLD_DRIVER_RUNS_MESSAGE = (
    "the old driver is still running, so this attempt is canceled and the node is requeued for upgrade"
)


def step_while_not_ready(progress: NodeProgress, fleet: UpgradeInputs) -> NodeStep:
    """With its old driver it is released at once, and queued for upgrade again. Without, it stays in its state;
    failures meanwhile do not count against its driver, and it keeps its turn for a while (`budget`)."""
    node = progress.node
    if is_untouched(progress):
        why = f"{NOT_READY}; {_OLD_DRIVER_RUNS_MESSAGE}"
        return write_step(requeue(node, why), node_event(node, why))
    until = not_ready_deadline(node, fleet)
    if until is None:
        annotations: NodeTexts = {
            UPGRADE_STEP_START_ANNOTATION: None,
            UPGRADE_AWAY_SINCE_ANNOTATION: clock_text(fleet.now),
        }
        return NodeStep(patch=patch(node, NOT_READY, annotations=annotations), waits=NOT_READY)
    return NodeStep(waits=NOT_READY, until=until if fleet.now < until else None)


# --- pods leave


def step_while_emptying(progress: NodeProgress, fleet: UpgradeInputs, ledger: DisruptionLedger) -> NodeStep:
    """One step of those that have pods leave."""
    workloads = fleet.workloads.get(progress.node.name)
    if stale_pod(progress) is None:
        return _driver_replaced_elsewhere(progress, fleet)
    if is_restart_only(progress):
        return write_step(
            cordon_and_continue(progress, fleet, "only the driver pod has to restart now, so other pods may stay")
        )
    if workloads is None:
        return NodeStep(waits=UNKNOWN_PODS)
    if state_of(progress.node) is State.JOBS:
        return _jobs(progress, fleet, workloads)
    return _evict(progress, fleet, workloads, ledger)


def _jobs(progress: NodeProgress, fleet: UpgradeInputs, workloads: tuple[NodeWorkload, ...]) -> NodeStep:
    policy = fleet.policy.wait_for_completion
    left = jobs(workloads, policy.pod_selector)
    if not left:
        return write_step(enter(progress, State.PODS, fleet.now, "all pods that the upgrade waits for have finished"))
    until = deadline(step_start(progress.node), policy.timeout_seconds)
    if is_over(until, fleet.now):
        still_running = f"{counted(len(left), 'pod')} {'is' if len(left) == 1 else 'are'} still running"
        why = f"{still_running} after {policy.timeout_seconds} s, and the upgrade no longer waits for completion"
        return write_step(enter(progress, State.PODS, fleet.now, why), node_event(progress.node, why, warning=True))
    return NodeStep(waits=f"waiting for pod {left[0].namespace}/{left[0].name} to finish", until=until)


def _evict(
    progress: NodeProgress, fleet: UpgradeInputs, workloads: tuple[NodeWorkload, ...], ledger: DisruptionLedger
) -> NodeStep:
    """GPU pods leave; where they did not in time, and the policy says so, what a drain evicts."""
    policy, drains = fleet.policy, state_of(progress.node) is State.DRAIN
    section: PodDeletion | Drain = policy.drain if drains else policy.gpu_pod_deletion
    left = drained_pods(workloads, policy.drain.pod_selector) if drains else evictable_gpu_pods(workloads)
    if not left:
        return _begin_restart(progress, fleet)
    reason = "drain for a driver upgrade" if drains else "driver upgrade"
    leaving = request_evictions(left, Rules.of(section), ledger, reason)
    waits, until = leaving.describe(left), deadline(step_start(progress.node), section.timeout_seconds)
    if not is_over(until, fleet.now):
        return NodeStep(evictions=leaving.evictions, waits=waits, until=next_eviction_time(fleet.now, until))
    if drains:
        why = f"the drain did not finish within {section.timeout_seconds} s: {waits}"
        return fail_and_uncordon(progress, fleet, why)
    why = f"GPU pods did not terminate within {section.timeout_seconds} s: {waits}"
    if policy.drain.enable:
        return write_step(enter(progress, State.DRAIN, fleet.now, why), node_event(progress.node, why, warning=True))
    return fail_and_uncordon(progress, fleet, why)


def _begin_restart(progress: NodeProgress, fleet: UpgradeInputs) -> NodeStep:
    why = "pausing operands and replacing the driver"
    return write_step(enter(progress, State.RESTART, fleet.now, why), node_event(progress.node, why))


def _driver_replaced_elsewhere(progress: NodeProgress, fleet: UpgradeInputs) -> NodeStep:
    """The old driver went by other hands, or is the right one again: what is there has to be valid."""
    if progress.pod_of(Operand.DRIVER) is None:
        return write_step(enter(progress, State.RESTART, fleet.now, "the old driver pod is already gone"))
    return write_step(enter(progress, State.VALIDATION, fleet.now, "the driver pod is already up to date"))


# --- all states


def next_step(progress: NodeProgress, fleet: UpgradeInputs, ledger: DisruptionLedger) -> NodeStep:
    """What to do next. That a node begins is not decided here (`budget.turn`)."""
    node, state = progress.node, state_of(progress.node)
    if not is_managed(progress) and not progress.waits:
        return write_step(release(node, progress.obstacle or "the node's driver is not managed by the operator"))
    if state in STATES_UNDER_WAY and not node.ready:
        return step_while_not_ready(progress, fleet)
    if progress.waits:  # which driver it gets is not known for now: nothing is begun, and nothing given back
        return _stop_clock(progress, progress.waits) if state in STATES_UNDER_WAY else NodeStep(waits=progress.waits)
    if state not in STATES_UNDER_WAY:
        return _failed(progress, fleet) if state is State.FAILED else _idle(progress, fleet)
    if progress.untolerated and is_untouched(progress):
        why = f"{progress.untolerated}; {_OLD_DRIVER_RUNS_MESSAGE}"
        return write_step(requeue(node, why), node_event(node, why, warning=True))
    if state is not State.UNCORDON and (why := daemonset_problem(progress, fleet) or _taint_obstacle(progress)):
        return _stop_clock(progress, why)
    if not has_known_start(node, fleet.now):
        annotations: NodeTexts = {
            UPGRADE_STEP_START_ANNOTATION: clock_text(fleet.now),
            UPGRADE_AWAY_SINCE_ANNOTATION: None,
        }
        return write_step(patch(node, "timeout started", annotations=annotations))
    if (state in EMPTYING_STATES or state is State.RESTART) and not node.unschedulable:
        return write_step(
            patch(node, "cordoned for a driver upgrade", annotations=cordon_marks(node), unschedulable=True)
        )
    return _STEPS[state](progress, fleet, ledger)


def begin(progress: NodeProgress, fleet: UpgradeInputs) -> NodeStep:
    """It is this node's turn."""
    node = progress.node
    pod = stale_pod(progress)
    asked = node.annotations.get(UPGRADE_REQUESTED_ANNOTATION) == REQUESTED_VALUE and pod is not None
    annotations: NodeTexts = {UPGRADE_REQUESTED_ANNOTATION: pod.uid} if asked and pod is not None else {}
    begun = enter(progress, State.CORDON, fleet.now, "starting the driver upgrade", annotations=annotations)
    return write_step(begun, node_event(node, f"driver upgrade to {progress.target} begins"))


def _taint_obstacle(progress: NodeProgress) -> str:
    """What a taint keeps from the node without which it is not valid."""
    return "" if is_valid(progress) else progress.kept_away_by_taint


def _stop_clock(progress: NodeProgress, why: str) -> NodeStep:
    """Nothing that happens meanwhile is held against its driver."""
    annotations: NodeTexts = {UPGRADE_STEP_START_ANNOTATION: None, UPGRADE_AWAY_SINCE_ANNOTATION: None}
    stopped = patch(progress.node, why, annotations=annotations)
    return NodeStep(patch=stopped if stopped.annotations else None, waits=why)


def _idle(progress: NodeProgress, fleet: UpgradeInputs) -> NodeStep:
    """Due or not: the label says so."""
    node, state = progress.node, state_of(progress.node)
    if is_due(progress):
        if state is State.REQUIRED:
            return NodeStep(waits=failure_of(node) or "queued for upgrade")
        return write_step(patch(node, "driver is outdated", labels={UPGRADE_STATE_LABEL: State.REQUIRED.value}))
    is_half_way = is_cordoned_by(node, CordonOwner.UPGRADE) or UPGRADE_INITIAL_CORDON_ANNOTATION in node.annotations
    if state is State.REQUIRED or is_half_way:  # the policy was reverted, or the state was removed in the middle
        return write_step(finish(progress, fleet.now, "the driver is up to date"))
    if state is State.DONE:
        return NodeStep()
    return write_step(patch(node, "nothing to upgrade", labels={UPGRADE_STATE_LABEL: State.DONE.value}))


def _failed(progress: NodeProgress, fleet: UpgradeInputs) -> NodeStep:
    """It is tried again where its old driver still runs; it recovers where the new one came to work after all."""
    node = progress.node
    if stale_pod(progress) is None:
        if is_valid(progress):
            # Straight to the end: a state in between would count as an upgrade that was not allowed to begin.
            return write_step(finish(progress, fleet.now), node_event(node, "the new driver is ready after all"))
        return NodeStep(waits=failure_of(node))
    start = step_start(node) if has_known_start(node, fleet.now) else None
    again = (start or 0.0) + fleet.policy.retry_after_seconds
    if not reached_target(progress) or fleet.now >= again:
        return write_step(patch(node, "retrying the upgrade", labels={UPGRADE_STATE_LABEL: State.REQUIRED.value}))
    return NodeStep(waits=failure_of(node), until=again)


def _cordon(progress: NodeProgress, fleet: UpgradeInputs, _: DisruptionLedger) -> NodeStep:
    return write_step(cordon_and_continue(progress, fleet, "cordoned for a driver upgrade"))


def _uncordon(progress: NodeProgress, fleet: UpgradeInputs, _: DisruptionLedger) -> NodeStep:
    done = finish(progress, fleet.now)
    return write_step(done, node_event(progress.node, done.why))


_STEPS: dict[State, Callable[[NodeProgress, UpgradeInputs, DisruptionLedger], NodeStep]] = {
    State.CORDON: _cordon,
    State.JOBS: step_while_emptying,
    State.PODS: step_while_emptying,
    State.DRAIN: step_while_emptying,
    State.RESTART: replace,
    State.VALIDATION: validate,
    State.UNCORDON: _uncordon,
}
