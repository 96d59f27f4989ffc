"""How many nodes may begin, which ones, and when none does."""

import math
from collections.abc import Iterable

import msgspec

from purser.operator.model import Standing
from purser.operator.names import UPGRADE_FAILURE_ANNOTATION
from purser.operator.order import Operand
from purser.operator.upgrade.canary import Hold, hold, is_canary
from purser.operator.upgrade.states import (
    Fleet,
    State,
    is_due,
    is_managed,
    is_under_way,
    passed_over,
    reached_target,
    stale_pod,
    state_name,
    state_of,
    target_of,
)


class Turn(msgspec.Struct, frozen=True, kw_only=True):
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


def max_unavailable(fleet: Fleet) -> int:
    """The bound in nodes; a percentage is rounded up."""
    bound = fleet.policy.max_unavailable
    if isinstance(bound, int):
        return bound
    return math.ceil(len(fleet.standings) * int(bound.removesuffix("%")) / 100)


def is_unavailable(standing: Standing) -> bool:
    """It takes no new pods, or soon will not."""
    return standing.node.unschedulable or not standing.node.ready or is_under_way(standing.node)


def fleet_target(standings: Iterable[Standing]) -> str:
    """What the upgrade of all nodes leads to: the targets of their pools."""
    return ",".join(sorted({target_of(each) for each in standings if is_managed(each)}))


def regressions(fleet: Fleet) -> list[Standing]:
    """Nodes on which the driver that they should have does not work."""
    return [each for each in fleet.standings if is_managed(each) and reached_target(each) and _is_worse(each)]


def _is_worse(standing: Standing) -> bool:
    state = state_of(standing.node)
    if state is State.FAILED:
        return stale_pod(standing) is None  # the old driver is gone; otherwise it was never touched
    # A node that is away later, for whatever reason, tells nothing about its driver.
    return state is State.DONE and standing.node.ready and state_name(Operand.DRIVER, standing) == "failing"


def halt(fleet: Fleet) -> str:
    """Why no further node begins: too many whose new driver does not work. Empty: the upgrade goes on."""
    bad = regressions(fleet)
    if not fleet.policy.halt_after_failures or len(bad) < fleet.policy.halt_after_failures:
        return ""
    if fleet.resume == fleet_target(fleet.standings):
        return ""
    names = ", ".join(sorted(each.node.name for each in bad)[:3])
    return f"the new driver does not work on {len(bad)} node{'s' if len(bad) != 1 else ''} ({names})"


def turn(fleet: Fleet) -> Turn:
    """Who begins. Every node that does not has a reason."""
    due = [each for each in fleet.standings if state_of(each.node) is State.REQUIRED and is_due(each)]
    skipped = {each.node.name: why for each in due if (why := passed_over(each))}
    ready = [each for each in due if each.node.name not in skipped]
    ready.sort(key=lambda each: order(each, fleet))
    halted, held = halt(fleet), hold(fleet)
    parallel, room = _parallel_slots(fleet), max_unavailable(fleet) - sum(map(is_unavailable, fleet.standings))
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
        room -= not is_unavailable(each)
    return Turn(begin=tuple(begin), waiting=waiting, skipped=skipped, slots=slots, halted=halted, hold=held)


def _parallel_slots(fleet: Fleet) -> int:
    """A NotReady node holds none: nobody knows when it comes back."""
    if fleet.policy.max_parallel_upgrades == 0:
        return len(fleet.standings)
    busy = sum(is_under_way(each.node) and each.node.ready for each in fleet.standings)
    return fleet.policy.max_parallel_upgrades - busy


def order(standing: Standing, fleet: Fleet) -> tuple[bool, bool, str]:
    """By which nodes have their turn: canaries first; those that failed before come after the others."""
    failed_before = UPGRADE_FAILURE_ANNOTATION in standing.node.annotations
    return not is_canary(standing, fleet), failed_before, standing.node.name


def _why_not(standing: Standing, fleet: Fleet, halted: str, held: Hold, parallel: int, room: int) -> str:
    if halted:
        return f"the upgrade is halted: {halted}"
    if held.why and not is_canary(standing, fleet):
        return held.why
    if standing.node.name in fleet.busy:
        return "a MIG change or a reboot is under way there"
    if parallel <= 0:
        return f"no more than {fleet.policy.max_parallel_upgrades} at a time (maxParallelUpgrades)"
    # A node that is cordoned already becomes no less available.
    if room <= 0 and not is_unavailable(standing):
        return f"no more than {max_unavailable(fleet)} GPU nodes may be unavailable (maxUnavailable)"
    return ""
