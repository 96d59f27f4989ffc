"""How many nodes may begin, which ones, and when none does.

``maxParallelUpgrades`` bounds the nodes that have their turn. One that goes away keeps its turn until its old driver is
known to be untouched, and it was requeued; or, without its old driver, for ``driverTimeoutSeconds``. So no more Ready
nodes than that are ever in an upgrade, however often they become NotReady, except for those that come back later than
that; and one that stays away does not block others for ever.

Nodes that are left out of a round because something fails on them count by their plain fields alone, and whatever
cannot be ruled out counts, so that others never do more than they may."""

import heapq
from collections.abc import Iterable

import msgspec

from purser.core.names import UPGRADE_FAILURE_ANNOTATION, UPGRADE_STATE_LABEL
from purser.core.wording import NaturalKey, counted, natural_sort_key, some
from purser.operator.maintenance import is_over
from purser.operator.model import IsolatedNode, NodeProgress, NodeView, PlannedChanges, patched
from purser.operator.names import MIG_STEP_ANNOTATION, UPGRADE_TARGET_ANNOTATION
from purser.operator.order import Operand
from purser.operator.upgrade.states import (
    State,
    UpgradeInputs,
    daemonset_problem,
    is_due,
    is_managed,
    is_resumed,
    is_under_way,
    is_untouched,
    not_ready_deadline,
    reached_target,
    skip_reason,
    stale_pod,
    state_name,
    state_of,
    step_start,
)

# --- nodes that are left out


_IDLE_STATES = frozenset({State.UNKNOWN.value, State.REQUIRED.value, State.DONE.value, State.FAILED.value})


def could_be_under_way(isolated: IsolatedNode) -> bool:
    """Its upgrade may have begun."""
    return _state(isolated) not in _IDLE_STATES


def may_be_unavailable(isolated: IsolatedNode) -> bool:
    """It may take no new pods, or soon will not."""
    node = isolated.node
    held = node.unschedulable or MIG_STEP_ANNOTATION in node.annotations
    return held or not node.ready or could_be_under_way(isolated)


def may_have_failed(isolated: IsolatedNode, fleet: UpgradeInputs) -> bool:
    """The driver that it was upgraded to may not work there, and no user has acknowledged that."""
    target = isolated.node.annotations.get(UPGRADE_TARGET_ANNOTATION, "")
    if target and target in {each.strip() for each in fleet.resume.split(",")}:
        return False
    state = _state(isolated)
    done = state == State.DONE.value and isolated.node.ready and not isolated.driver_is_ready
    return state == State.FAILED.value or (done and bool(target))


def _state(isolated: IsolatedNode) -> str:
    return isolated.node.labels.get(UPGRADE_STATE_LABEL, "")


# --- canaries


class CanaryHold(msgspec.Struct, frozen=True):
    """Why nodes that are not canaries do not begin."""

    why: str = ""
    """Empty: they may."""
    until: float | None = None
    """When time alone ends it."""


def is_canary(progress: NodeProgress, fleet: UpgradeInputs) -> bool:
    """It goes first."""
    return _is_selected(progress.node, fleet)


def _is_selected(node: NodeView, fleet: UpgradeInputs) -> bool:
    selector = fleet.policy.canary.node_selector
    return bool(selector) and selector.items() <= node.labels.items()


def hold(fleet: UpgradeInputs) -> CanaryHold:
    """Whether the canaries have done well. Those that cannot be upgraded are not waited for, as long as one was; nor
    are those that failed with a driver of which people said that it goes on all the same."""
    if not fleet.policy.canary.node_selector:
        return CanaryHold()
    canaries = [each for each in fleet.node_progress if is_managed(each) and is_canary(each, fleet)]
    for each in fleet.isolated:
        if _is_selected(each.node, fleet):
            return CanaryHold(f"canary node {each.node.name} is excluded from this reconciliation: {each.why}")
    given_up = [
        each for each in canaries if is_resumed(each, fleet) and stale_pod(each) is None and _has_ended_badly(each)
    ]
    awaited = [each for each in canaries if each not in given_up and not (stale_pod(each) and skip_reason(each))]
    if not awaited and given_up:
        return CanaryHold()
    if not awaited:
        return CanaryHold("no canary node can be upgraded" if canaries else "no GPU node matches canary.nodeSelector")
    not_succeeded = sorted((each.node.name for each in awaited if not _has_succeeded(each)), key=natural_sort_key)
    if not_succeeded:
        return CanaryHold(f"canary node {not_succeeded[0]} is not yet upgraded and healthy")
    # A time that is still to come counts as now: it would never run out.
    until = max(min(step_start(each.node) or 0.0, fleet.now) for each in awaited) + fleet.policy.canary.soak_seconds
    return CanaryHold("the canaries' soak time is not over yet", until) if fleet.now < until else CanaryHold()


def _has_ended_badly(progress: NodeProgress) -> bool:
    """Its upgrade came to an end, and not a good one."""
    return state_of(progress.node) in (State.FAILED, State.DONE) and not _has_succeeded(progress)


def _has_succeeded(progress: NodeProgress) -> bool:
    is_done = state_of(progress.node) is State.DONE and stale_pod(progress) is None
    return is_done and progress.node.ready and state_name(Operand.DRIVER, progress) != "failing"


# --- turns


class UpgradeTurn(msgspec.Struct, frozen=True, kw_only=True):
    """Who begins in this round, and why the others do not."""

    begin: tuple[NodeProgress, ...] = ()
    waiting: dict[str, str] = {}
    """By node that needs an upgrade and could have one: why not now."""
    skipped: dict[str, str] = {}
    """By node that needs one and is left out."""
    slots: int = 0
    """How many nodes could begin if they wanted to."""
    halted: str = ""
    """Why no further node begins at all; empty: the upgrade is not halted."""
    hold: CanaryHold = CanaryHold()


def is_unavailable(progress: NodeProgress, fleet: UpgradeInputs) -> bool:
    """It takes no new pods, or soon will not."""
    return takes_no_pods(progress.node) or progress.node.name in fleet.held


def takes_no_pods(node: NodeView) -> bool:
    """The node is cordoned, NotReady, or in upgrade."""
    return node.unschedulable or not node.ready or is_under_way(node)


def unavailable(fleet: UpgradeInputs, planned: PlannedChanges) -> frozenset[str]:
    """Nodes that are unavailable before or after a round's writes: whatever the order in which these are made."""
    after = (patched(each.node, planned.patches.get(each.node.name)) for each in fleet.node_progress)
    before = {each.node.name for each in fleet.node_progress if is_unavailable(each, fleet)}
    before |= {each.node.name for each in fleet.isolated if may_be_unavailable(each)}
    return frozenset(before | {node.name for node in after if takes_no_pods(node)})


def fleet_target(node_progress: Iterable[NodeProgress]) -> str:
    """What the upgrade of all nodes leads to: the targets of their pools."""
    return ",".join(sorted({each.target for each in node_progress if is_managed(each)}))


def regressions(fleet: UpgradeInputs) -> list[NodeProgress]:
    """Nodes on which the desired driver does not work, and no user has acknowledged that yet."""
    return [each for each in fleet.node_progress if is_regression(each, fleet)]


def is_regression(progress: NodeProgress, fleet: UpgradeInputs) -> bool:
    """It is one of them."""
    is_known = is_managed(progress) and not is_resumed(progress, fleet)
    return is_known and reached_target(progress) and _is_worse(progress)


def _is_worse(progress: NodeProgress) -> bool:
    state = state_of(progress.node)
    if state is State.FAILED:
        return stale_pod(progress) is None  # the old driver is gone; otherwise it was never touched
    # A node that is NotReady later, or that its driver's pod cannot be scheduled to, says nothing about the driver.
    is_there = progress.node.ready and progress.pod_of(Operand.DRIVER) is not None
    return state is State.DONE and is_there and state_name(Operand.DRIVER, progress) == "failing"


def halt_reason(fleet: UpgradeInputs) -> str:
    """Why no further upgrade starts: too many whose new driver does not work. Empty: the upgrade goes on."""
    bad = {each.node.name for each in regressions(fleet)}
    bad |= {each.node.name for each in fleet.isolated if may_have_failed(each, fleet)}
    if not fleet.policy.halt_after_failures or len(bad) < fleet.policy.halt_after_failures:
        return ""
    names = sorted(bad, key=natural_sort_key)
    return f"the new driver fails on {counted(len(bad), 'node')}: {some(names)}"


def holds_up_others(progress: NodeProgress, fleet: UpgradeInputs) -> bool:
    """Whether `turn` lets others wait for it: it takes room, goes first, or is among those that halt the upgrade."""
    return is_unavailable(progress, fleet) or is_canary(progress, fleet) or is_regression(progress, fleet)


_STATES_BEFORE_UPGRADE = (State.UNKNOWN, State.DONE, State.REQUIRED)
"""States in which an upgrade begins, or that lead to it at once."""


def has_yet_to_begin(progress: NodeProgress) -> bool:
    """Whether it needs an upgrade that has not begun and that nothing on the node itself forbids."""
    return state_of(progress.node) in _STATES_BEFORE_UPGRADE and is_due(progress) and not skip_reason(progress)


def upcoming(fleet: UpgradeInputs, most: int) -> list[NodeProgress]:
    """The first ``most`` nodes that have yet to begin, in the order of their turns; also where automatic upgrades are
    off."""
    found = (each for each in fleet.node_progress if has_yet_to_begin(each))
    return heapq.nsmallest(most, found, key=lambda each: order(each, fleet))


def turn(fleet: UpgradeInputs) -> UpgradeTurn:
    """Who begins. Every node that does not has a reason; where automatic upgrades are off, there is nothing to say."""
    if not fleet.policy.auto_upgrade:
        return UpgradeTurn()
    due = [each for each in fleet.node_progress if state_of(each.node) is State.REQUIRED and is_due(each)]
    skipped = {each.node.name: why for each in due if (why := skip_reason(each))}
    ready = [each for each in due if each.node.name not in skipped]
    ready.sort(key=lambda each: order(each, fleet))
    halted, held = halt_reason(fleet), hold(fleet)
    parallel_slots = _parallel_slots(fleet)
    room = fleet.max_unavailable - sum(is_unavailable(each, fleet) for each in fleet.node_progress)
    room -= sum(may_be_unavailable(each) for each in fleet.isolated)
    slots = max(0, min(parallel_slots, room))
    begin: list[NodeProgress] = []
    waiting: dict[str, str] = {}
    for each in ready:
        why = _wait_reason(each, fleet, halted, held, parallel_slots, room)
        if why:
            waiting[each.node.name] = why
            continue
        begin.append(each)
        parallel_slots -= 1
        room -= not is_unavailable(each, fleet)
    return UpgradeTurn(begin=tuple(begin), waiting=waiting, skipped=skipped, slots=slots, halted=halted, hold=held)


def _parallel_slots(fleet: UpgradeInputs) -> int:
    if fleet.policy.max_parallel_upgrades == 0:
        return len(fleet.node_progress)
    begun = sum(_can_begin_now(each, fleet) for each in fleet.node_progress)
    return fleet.policy.max_parallel_upgrades - begun - sum(could_be_under_way(each) for each in fleet.isolated)


def _can_begin_now(progress: NodeProgress, fleet: UpgradeInputs) -> bool:
    node = progress.node
    if node.ready or is_untouched(progress):  # one that is away is given back in this round
        return is_under_way(node)
    until = not_ready_deadline(node, fleet)
    return is_under_way(node) and not is_over(until, fleet.now)


def order(progress: NodeProgress, fleet: UpgradeInputs) -> tuple[bool, bool, NaturalKey]:
    """By which nodes have their turn: canaries first; those that failed before come after the others."""
    failed_before = UPGRADE_FAILURE_ANNOTATION in progress.node.annotations
    return not is_canary(progress, fleet), failed_before, natural_sort_key(progress.node.name)


def _wait_reason(
    progress: NodeProgress, fleet: UpgradeInputs, halted: str, held: CanaryHold, parallel_slots: int, room: int
) -> str:
    if halted:
        return f"the upgrade is halted: {halted}"
    if late := daemonset_problem(progress, fleet):
        return late
    if held.why and not is_canary(progress, fleet):
        return held.why
    if parallel_slots <= 0:
        most = counted(fleet.policy.max_parallel_upgrades, "node")
        return f"at most {most} may be upgraded at a time (maxParallelUpgrades)"
    # A node that is cordoned already becomes no less available.
    if room <= 0 and not is_unavailable(progress, fleet):
        return fleet.unavailable_limit_text
    if progress.node.name in fleet.busy:  # last: a MIG change may itself wait for the same room
        return "a MIG change or a reboot is in progress on the node"
    return ""
