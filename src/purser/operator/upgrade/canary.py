"""Who goes first, and whether the others may follow."""

import msgspec

from purser.operator.model import NodeView, Standing
from purser.operator.order import Operand
from purser.operator.upgrade.states import (
    State,
    UpgradeInputs,
    is_managed,
    is_resumed,
    passed_over,
    stale_pod,
    state_name,
    state_of,
    step_start,
)
from purser.operator.wording import natural


class Hold(msgspec.Struct, frozen=True):
    """Why nodes that are no canaries do not begin."""

    why: str = ""
    """Empty: they may."""
    until: float | None = None
    """When time alone ends it."""


def is_canary(standing: Standing, fleet: UpgradeInputs) -> bool:
    """It goes first."""
    return _is_selected(standing.node, fleet)


def _is_selected(node: NodeView, fleet: UpgradeInputs) -> bool:
    selector = fleet.policy.canary.node_selector
    return bool(selector) and selector.items() <= node.labels.items()


def hold(fleet: UpgradeInputs) -> Hold:
    """Whether the canaries have done well. Those that cannot be upgraded are not waited for, as long as one was; nor
    are those that failed with a driver of which people said that it goes on all the same."""
    if not fleet.policy.canary.node_selector:
        return Hold()
    canaries = [each for each in fleet.standings if is_managed(each) and is_canary(each, fleet)]
    for each in fleet.left_out:
        if _is_selected(each.node, fleet):
            return Hold(f"the canary {each.node.name} is left out: {each.why}")
    given_up = [each for each in canaries if is_resumed(each, fleet) and stale_pod(each) is None and _is_unwell(each)]
    counted = [each for each in canaries if each not in given_up and not (stale_pod(each) and passed_over(each))]
    if not counted and given_up:
        return Hold()
    if not counted:
        return Hold("there is no canary node that could go first" if canaries else "no GPU node is a canary")
    unwell = sorted((each.node.name for each in counted if not _has_done_well(each)), key=natural)
    if unwell:
        return Hold(f"the canary {unwell[0]} has not done well yet")
    # A time that is still to come counts as now: it would never run out.
    until = max(min(step_start(each.node) or 0.0, fleet.now) for each in counted) + fleet.policy.canary.soak_seconds
    return Hold("the canaries are being watched for a while", until) if fleet.now < until else Hold()


def _is_unwell(standing: Standing) -> bool:
    """Its upgrade came to an end, and not a good one."""
    return state_of(standing.node) in (State.FAILED, State.DONE) and not _has_done_well(standing)


def _has_done_well(standing: Standing) -> bool:
    is_done = state_of(standing.node) is State.DONE and stale_pod(standing) is None
    return is_done and standing.node.ready and state_name(Operand.DRIVER, standing) != "failing"
