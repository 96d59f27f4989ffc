"""What an upgrade does next on one node: one small step per state."""

from collections.abc import Callable

from purser.operator.model import Standing
from purser.operator.names import (
    UPGRADE_AWAY_SINCE_ANNOTATION,
    UPGRADE_INITIAL_CORDON_ANNOTATION,
    UPGRADE_REQUESTED_ANNOTATION,
    UPGRADE_STATE_LABEL,
    UPGRADE_STEP_START_ANNOTATION,
)
from purser.operator.nodework.cordons import Cordoner, is_cordoned_by
from purser.operator.nodework.disruption import DisruptionLedger
from purser.operator.nodework.steps import NodeStep, Texts, patch, to
from purser.operator.upgrade.away import away
from purser.operator.upgrade.emptying import empty
from purser.operator.upgrade.failing import trouble_of
from purser.operator.upgrade.replacing import replace, validate
from purser.operator.upgrade.states import (
    EMPTYING,
    REQUESTED,
    UNDER_WAY,
    State,
    UpgradeInputs,
    has_clock,
    is_due,
    is_managed,
    is_untouched,
    is_valid,
    late_set,
    reached_target,
    stale_pod,
    state_of,
    step_start,
)
from purser.operator.upgrade.writing import clock_text, cordoned, enter, finish, hold_back, put_back, release, say


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
