"""One round of MIG changes over the whole fleet."""

from purser.operator.mig.states import MigFleet
from purser.operator.mig.steps import step
from purser.operator.model import Moves
from purser.operator.upgrade.evicting import Desk


def advance(fleet: MigFleet) -> Moves:
    """What to do next on every node: at most one patch each."""
    desk = Desk(fleet.budgets)
    steps = {each.node.name: step(each, fleet, desk) for each in sorted(fleet.standings, key=lambda s: s.node.name)}
    times = [each.until for each in steps.values() if each.until is not None]
    return Moves(
        patches={name: each.patch for name, each in steps.items() if each.patch is not None},
        evictions=tuple(eviction for each in steps.values() for eviction in each.evictions),
        events=tuple(told for each in steps.values() for told in each.says),
        look_again_s=max(0.0, min(times) - fleet.now) if times else None,
    )
