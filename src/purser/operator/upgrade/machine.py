"""A node that goes away in the middle of its upgrade: nobody knows when it comes back."""

from collections.abc import Callable

from purser.operator.maintenance import (
    UNKNOWN_PODS,
    Cordoner,
    DisruptionLedger,
    NodeStep,
    Rules,
    Texts,
    ask_again,
    ask_to_leave,
    deadline,
    drained_pods,
    evictable_gpu_pods,
    is_cordoned_by,
    is_over,
    jobs,
    patch,
    to,
)
from purser.operator.model import NodeWorkload, Standing
from purser.operator.names import (
    UPGRADE_AWAY_SINCE_ANNOTATION,
    UPGRADE_INITIAL_CORDON_ANNOTATION,
    UPGRADE_REQUESTED_ANNOTATION,
    UPGRADE_STATE_LABEL,
    UPGRADE_STEP_START_ANNOTATION,
)
from purser.operator.order import Operand
from purser.operator.policy.driver import Drain, PodDeletion
from purser.operator.upgrade.replacing import replace, validate
from purser.operator.upgrade.states import (
    EMPTYING,
    REQUESTED,
    UNDER_WAY,
    State,
    UpgradeInputs,
    away_until,
    has_clock,
    is_due,
    is_managed,
    is_untouched,
    is_valid,
    late_set,
    reached_target,
    restarts_only,
    stale_pod,
    state_of,
    step_start,
)
from purser.operator.upgrade.writes import (
    clock_text,
    cordoned,
    enter,
    finish,
    give_up,
    hold_back,
    put_back,
    release,
    say,
    trouble_of,
)
from purser.operator.wording import counted

# --- nodes that are NotReady


NOT_READY = "it is NotReady"


def away(standing: Standing, fleet: UpgradeInputs) -> NodeStep:
    """With its old driver it is given back at once, and waits for its turn anew. Without, it stays where it is; nothing
    that happens meanwhile is held against its driver, and it keeps its turn for a while (`budget`)."""
    node = standing.node
    if is_untouched(standing):
        why = f"{NOT_READY}, and its old driver untouched: it is given back, and waits for its turn anew"
        return to(put_back(node, why), say(node, why))
    until = away_until(node, fleet)
    if until is None:
        told: Texts = {
            UPGRADE_STEP_START_ANNOTATION: None,
            UPGRADE_AWAY_SINCE_ANNOTATION: clock_text(fleet.now),
        }
        return NodeStep(patch=patch(node, NOT_READY, annotations=told), waits=NOT_READY)
    return NodeStep(waits=NOT_READY, until=until if fleet.now < until else None)


# --- pods leave


def empty(standing: Standing, fleet: UpgradeInputs, ledger: DisruptionLedger) -> NodeStep:
    """One step of those that have pods leave."""
    workloads = fleet.workloads.get(standing.node.name)
    if stale_pod(standing) is None:
        return _driver_went(standing, fleet)
    if restarts_only(standing):
        return to(hold_back(standing, fleet, "by now its driver is only to be restarted: pods may stay"))
    if workloads is None:
        return NodeStep(waits=UNKNOWN_PODS)
    if state_of(standing.node) is State.JOBS:
        return _jobs(standing, fleet, workloads)
    return _evict(standing, fleet, workloads, ledger)


def _jobs(standing: Standing, fleet: UpgradeInputs, workloads: tuple[NodeWorkload, ...]) -> NodeStep:
    policy = fleet.policy.wait_for_completion
    left = jobs(workloads, policy.pod_selector)
    if not left:
        return to(enter(standing, State.PODS, fleet.now, "no job is left to wait for"))
    until = deadline(step_start(standing.node), policy.timeout_seconds)
    if is_over(until, fleet.now):
        why = f"{counted(len(left), 'job')}: not waited for any longer ({policy.timeout_seconds} s)"
        return to(enter(standing, State.PODS, fleet.now, why), say(standing.node, why, warning=True))
    return NodeStep(waits=f"waits for the job {left[0].namespace}/{left[0].name}", until=until)


def _evict(
    standing: Standing, fleet: UpgradeInputs, workloads: tuple[NodeWorkload, ...], ledger: DisruptionLedger
) -> NodeStep:
    """GPU pods leave; where they did not in time, and the policy says so, what a drain evicts."""
    policy, drains = fleet.policy, state_of(standing.node) is State.DRAIN
    section: PodDeletion | Drain = policy.drain if drains else policy.gpu_pod_deletion
    left = drained_pods(workloads, policy.drain.pod_selector) if drains else evictable_gpu_pods(workloads)
    if not left:
        return _emptied(standing, fleet)
    reason = "drain for a driver upgrade" if drains else "driver upgrade"
    leaving = ask_to_leave(left, Rules.of(section), ledger, reason)
    waits, until = leaving.describe(len(left)), deadline(step_start(standing.node), section.timeout_seconds)
    if not is_over(until, fleet.now):
        return NodeStep(evictions=leaving.evictions, waits=waits, until=ask_again(fleet.now, until))
    if drains:
        return give_up(standing, fleet, f"it was not drained within {section.timeout_seconds} s: {waits}")
    why = f"GPU pods did not leave within {section.timeout_seconds} s: {waits}"
    if policy.drain.enable:
        return to(enter(standing, State.DRAIN, fleet.now, why), say(standing.node, why, warning=True))
    return give_up(standing, fleet, why)


def _emptied(standing: Standing, fleet: UpgradeInputs) -> NodeStep:
    why = "operands are paused and the driver is replaced"
    return to(enter(standing, State.RESTART, fleet.now, why), say(standing.node, why))


def _driver_went(standing: Standing, fleet: UpgradeInputs) -> NodeStep:
    """The old driver went by other hands, or is the right one again: what is there has to be valid."""
    state = State.RESTART if standing.pod_of(Operand.DRIVER) is None else State.VALIDATION
    return to(enter(standing, state, fleet.now, "the old driver is gone already"))


# --- all states


def next_step(standing: Standing, fleet: UpgradeInputs, ledger: DisruptionLedger) -> NodeStep:
    """What to do next. That a node begins is not decided here (`budget.turn`)."""
    node, state = standing.node, state_of(standing.node)
    if not is_managed(standing) and not standing.waits:
        return to(release(node, standing.obstacle or "its driver is not the operator's"))
    if state in UNDER_WAY and not node.ready:
        return away(standing, fleet)
    if standing.waits:  # which driver it gets is not known for now: nothing is begun, and nothing given back
        return _stop_clock(standing, standing.waits) if state in UNDER_WAY else NodeStep(waits=standing.waits)
    if state not in UNDER_WAY:
        return _failed(standing, fleet) if state is State.FAILED else _idle(standing, fleet)
    if standing.barred and is_untouched(standing):
        why = f"{standing.barred}; its old driver is untouched: it is given back, and waits for its turn anew"
        return to(put_back(node, why), say(node, why, warning=True))
    if state is not State.UNCORDON and (why := late_set(standing, fleet) or _kept_away(standing)):
        return _stop_clock(standing, why)
    if not has_clock(node, fleet.now):
        told: Texts = {UPGRADE_STEP_START_ANNOTATION: clock_text(fleet.now), UPGRADE_AWAY_SINCE_ANNOTATION: None}
        return to(patch(node, "its time begins to count", annotations=told))
    if (state in EMPTYING or state is State.RESTART) and not node.unschedulable:
        return to(patch(node, "cordoned for its driver upgrade", annotations=cordoned(node), unschedulable=True))
    return _STEPS[state](standing, fleet, ledger)


def begin(standing: Standing, fleet: UpgradeInputs) -> NodeStep:
    """It is this node's turn."""
    node = standing.node
    pod = stale_pod(standing)
    asked = node.annotations.get(UPGRADE_REQUESTED_ANNOTATION) == REQUESTED and pod is not None
    told: Texts = {UPGRADE_REQUESTED_ANNOTATION: pod.uid} if asked and pod is not None else {}
    begun = enter(standing, State.CORDON, fleet.now, "its driver upgrade begins", annotations=told)
    return to(begun, say(node, f"driver upgrade to {standing.target} begins"))


def _kept_away(standing: Standing) -> str:
    """What a taint keeps from the node without which it is not valid."""
    return "" if is_valid(standing) else standing.kept_away


def _stop_clock(standing: Standing, why: str) -> NodeStep:
    """Nothing that happens meanwhile is held against its driver."""
    told: Texts = {UPGRADE_STEP_START_ANNOTATION: None, UPGRADE_AWAY_SINCE_ANNOTATION: None}
    stopped = patch(standing.node, why, annotations=told)
    return NodeStep(patch=stopped if stopped.annotations else None, waits=why)


def _idle(standing: Standing, fleet: UpgradeInputs) -> NodeStep:
    """Due or not: the label says so."""
    node, state = standing.node, state_of(standing.node)
    if is_due(standing):
        if state is State.REQUIRED:
            return NodeStep(waits=trouble_of(node) or "waits for its turn")
        return to(patch(node, "another driver is due", labels={UPGRADE_STATE_LABEL: State.REQUIRED.value}))
    is_half_way = is_cordoned_by(node, Cordoner.UPGRADE) or UPGRADE_INITIAL_CORDON_ANNOTATION in node.annotations
    if state is State.REQUIRED or is_half_way:  # the policy went back, or somebody took the state away in the middle
        return to(finish(standing, fleet.now))
    if state is State.DONE:
        return NodeStep()
    return to(patch(node, "nothing to upgrade", labels={UPGRADE_STATE_LABEL: State.DONE.value}))


def _failed(standing: Standing, fleet: UpgradeInputs) -> NodeStep:
    """It is tried again where its old driver still runs; it recovers where the new one came to work after all."""
    node = standing.node
    if stale_pod(standing) is None:
        if is_valid(standing):
            # Straight to the end: a state in between would count as an upgrade that nobody let begin.
            return to(finish(standing, fleet.now), say(node, "the driver works after all"))
        return NodeStep(waits=trouble_of(node))
    start = step_start(node) if has_clock(node, fleet.now) else None
    again = (start or 0.0) + fleet.policy.retry_after_seconds
    if not reached_target(standing) or fleet.now >= again:
        return to(patch(node, "it is tried again", labels={UPGRADE_STATE_LABEL: State.REQUIRED.value}))
    return NodeStep(waits=trouble_of(node), until=again)


def _cordon(standing: Standing, fleet: UpgradeInputs, _: DisruptionLedger) -> NodeStep:
    return to(hold_back(standing, fleet, "cordoned for its driver upgrade"))


def _uncordon(standing: Standing, fleet: UpgradeInputs, _: DisruptionLedger) -> NodeStep:
    done = finish(standing, fleet.now)
    return to(done, say(standing.node, done.why))


_STEPS: dict[State, Callable[[Standing, UpgradeInputs, DisruptionLedger], NodeStep]] = {
    State.CORDON: _cordon,
    State.JOBS: empty,
    State.PODS: empty,
    State.DRAIN: empty,
    State.RESTART: replace,
    State.VALIDATION: validate,
    State.UNCORDON: _uncordon,
}
