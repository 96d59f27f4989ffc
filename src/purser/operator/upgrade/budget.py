"""How many nodes may begin, which ones, and when none does.

``maxParallelUpgrades`` bounds the nodes that have their turn. One that goes away keeps its turn until its old driver is
known to be untouched, and it was requeued; or, without its old driver, for ``driverTimeoutSeconds``. So no more Ready
nodes than that are ever in an upgrade, however they blink, but for those that come back later than that; and one that
stays away holds nobody up for ever.

Nodes that are left out of a round because something fails on them count by their plain fields alone, and whatever
cannot be ruled out counts, so that others never do more than they may."""

from collections.abc import Iterable

import msgspec

from purser.operator.maintenance import is_over
from purser.operator.model import LeftOut, Moves, NodeView, Standing, patched
from purser.operator.names import (
    MIG_STEP_ANNOTATION,
    UPGRADE_FAILURE_ANNOTATION,
    UPGRADE_STATE_LABEL,
    UPGRADE_TARGET_ANNOTATION,
)
from purser.operator.order import Operand
from purser.operator.upgrade.states import (
    State,
    UpgradeInputs,
    away_until,
    is_due,
    is_managed,
    is_resumed,
    is_under_way,
    is_untouched,
    late_set,
    passed_over,
    reached_target,
    stale_pod,
    state_name,
    state_of,
    step_start,
)
from purser.operator.wording import NaturalKey, counted, natural, some

# --- nodes that are left out


_AT_REST = frozenset({State.UNKNOWN.value, State.REQUIRED.value, State.DONE.value, State.FAILED.value})


def may_be_under_way(left_out: LeftOut) -> bool:
    """Its upgrade may have begun."""
    return _state(left_out) not in _AT_REST


def may_be_unavailable(left_out: LeftOut) -> bool:
    """It may take no new pods, or soon will not."""
    node = left_out.node
    held = node.unschedulable or MIG_STEP_ANNOTATION in node.annotations
    return held or not node.ready or may_be_under_way(left_out)


def may_have_failed(left_out: LeftOut, fleet: UpgradeInputs) -> bool:
    """The driver that it was upgraded to may not work there, and nobody said that this is no matter."""
    target = left_out.node.annotations.get(UPGRADE_TARGET_ANNOTATION, "")
    if target and target in {each.strip() for each in fleet.resume.split(",")}:
        return False
    state = _state(left_out)
    done = state == State.DONE.value and left_out.node.ready and not left_out.driver_is_ready
    return state == State.FAILED.value or (done and bool(target))


def _state(left_out: LeftOut) -> str:
    return left_out.node.labels.get(UPGRADE_STATE_LABEL, "")


# --- canaries


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


# --- turns


class UpgradeTurn(msgspec.Struct, frozen=True, kw_only=True):
    """Who begins in this round, and why the others do not."""

    begin: tuple[Standing, ...] = ()
    waiting: dict[str, str] = {}
    """By node that needs an upgrade and could have one: why not now."""
    skipped: dict[str, str] = {}
    """By node that needs one and is left out."""
    slots: int = 0
    """How many nodes could begin if they wanted to."""
    halted: str = ""
    """Why no further node begins at all; empty: the upgrade is not halted."""
    hold: Hold = Hold()


def is_unavailable(standing: Standing, fleet: UpgradeInputs) -> bool:
    """It takes no new pods, or soon will not."""
    return takes_no_pods(standing.node) or standing.node.name in fleet.held


def takes_no_pods(node: NodeView) -> bool:
    """The node is cordoned, NotReady, or in upgrade."""
    return node.unschedulable or not node.ready or is_under_way(node)


def unavailable(fleet: UpgradeInputs, moves: Moves) -> frozenset[str]:
    """Nodes that are unavailable before or after a round's writes: whatever the order in which these are made."""
    after = (patched(each.node, moves.patches.get(each.node.name)) for each in fleet.standings)
    before = {each.node.name for each in fleet.standings if is_unavailable(each, fleet)}
    before |= {each.node.name for each in fleet.left_out if may_be_unavailable(each)}
    return frozenset(before | {node.name for node in after if takes_no_pods(node)})


def fleet_target(standings: Iterable[Standing]) -> str:
    """What the upgrade of all nodes leads to: the targets of their pools."""
    return ",".join(sorted({each.target for each in standings if is_managed(each)}))


def regressions(fleet: UpgradeInputs) -> list[Standing]:
    """Nodes on which the driver that they should have does not work, and nobody said yet that this is no matter."""
    known = (each for each in fleet.standings if is_managed(each) and not is_resumed(each, fleet))
    return [each for each in known if reached_target(each) and _is_worse(each)]


def _is_worse(standing: Standing) -> bool:
    state = state_of(standing.node)
    if state is State.FAILED:
        return stale_pod(standing) is None  # the old driver is gone; otherwise it was never touched
    # A node that is away later, or to which its driver's pod cannot come, tells nothing about the driver.
    is_there = standing.node.ready and standing.pod_of(Operand.DRIVER) is not None
    return state is State.DONE and is_there and state_name(Operand.DRIVER, standing) == "failing"


def halt(fleet: UpgradeInputs) -> str:
    """Why no further node begins: too many whose new driver does not work. Empty: the upgrade goes on."""
    bad = {each.node.name for each in regressions(fleet)}
    bad |= {each.node.name for each in fleet.left_out if may_have_failed(each, fleet)}
    if not fleet.policy.halt_after_failures or len(bad) < fleet.policy.halt_after_failures:
        return ""
    names = sorted(bad, key=natural)
    return f"the new driver does not work on {counted(len(bad), 'node')}: {some(names)}"


def turn(fleet: UpgradeInputs) -> UpgradeTurn:
    """Who begins. Every node that does not has a reason."""
    due = [each for each in fleet.standings if state_of(each.node) is State.REQUIRED and is_due(each)]
    skipped = {each.node.name: why for each in due if (why := passed_over(each))}
    ready = [each for each in due if each.node.name not in skipped]
    ready.sort(key=lambda each: order(each, fleet))
    halted, held = halt(fleet), hold(fleet)
    parallel = _parallel_slots(fleet)
    room = fleet.max_unavailable - sum(is_unavailable(each, fleet) for each in fleet.standings)
    room -= sum(may_be_unavailable(each) for each in fleet.left_out)
    slots = max(0, min(parallel, room))
    begin: list[Standing] = []
    waiting: dict[str, str] = {}
    for each in ready:
        why = _why_not(each, fleet, halted, held, parallel, room)
        if why:
            waiting[each.node.name] = why
            continue
        begin.append(each)
        parallel -= 1
        room -= not is_unavailable(each, fleet)
    return UpgradeTurn(begin=tuple(begin), waiting=waiting, skipped=skipped, slots=slots, halted=halted, hold=held)


def _parallel_slots(fleet: UpgradeInputs) -> int:
    if fleet.policy.max_parallel_upgrades == 0:
        return len(fleet.standings)
    begun = sum(_has_its_turn(each, fleet) for each in fleet.standings)
    return fleet.policy.max_parallel_upgrades - begun - sum(may_be_under_way(each) for each in fleet.left_out)


def _has_its_turn(standing: Standing, fleet: UpgradeInputs) -> bool:
    node = standing.node
    if node.ready or is_untouched(standing):  # one that is away is given back in this round
        return is_under_way(node)
    until = away_until(node, fleet)
    return is_under_way(node) and not is_over(until, fleet.now)


def order(standing: Standing, fleet: UpgradeInputs) -> tuple[bool, bool, NaturalKey]:
    """By which nodes have their turn: canaries first; those that failed before come after the others."""
    failed_before = UPGRADE_FAILURE_ANNOTATION in standing.node.annotations
    return not is_canary(standing, fleet), failed_before, natural(standing.node.name)


def _why_not(standing: Standing, fleet: UpgradeInputs, halted: str, held: Hold, parallel: int, room: int) -> str:
    if halted:
        return f"the upgrade is halted: {halted}"
    if late := late_set(standing, fleet):
        return late
    if held.why and not is_canary(standing, fleet):
        return held.why
    if parallel <= 0:
        return f"no more than {fleet.policy.max_parallel_upgrades} at a time (maxParallelUpgrades)"
    # A node that is cordoned already becomes no less available.
    if room <= 0 and not is_unavailable(standing, fleet):
        return fleet.no_room
    if standing.node.name in fleet.busy:  # last: a MIG change may itself wait for the same room
        return "a MIG change or a reboot is under way there"
    return ""
