"""One round of MIG changes over the whole fleet."""

from purser.operator.mig.machine import next_step, would_empty
from purser.operator.mig.states import MigFleet, change_of, trouble_of, wanted_profile
from purser.operator.model import Moves, Standing
from purser.operator.nodework.bounds import unavailable_bound
from purser.operator.nodework.disruption import DisruptionLedger
from purser.operator.nodework.steps import Step, moves_of


def advance(fleet: MigFleet) -> Moves:
    """What to do next on every node: at most one patch each."""
    return moves_of({each.node.name: step for each, step in _steps(fleet)}, fleet.now)


def waiting_of(fleet: MigFleet) -> dict[str, str]:
    """By node: what its MIG change waits for, in one sentence. What went wrong is told by `trouble_of`."""
    waiting = ((each, step.waits) for each, step in _steps(fleet) if step.waits and not trouble_of(each.node))
    return {each.node.name: f"MIG layout {_profile(each, fleet)}: {why}" for each, why in waiting}


def _profile(standing: Standing, fleet: MigFleet) -> str:
    change = change_of(standing.node)
    return change.profile if change is not None else wanted_profile(standing, fleet.spec)


def _steps(fleet: MigFleet) -> list[tuple[Standing, Step]]:
    ledger, nodes = DisruptionLedger(fleet.budgets), sorted(fleet.standings, key=lambda each: each.node.name)
    may_empty = _turn(nodes, fleet)
    return [(each, next_step(each, fleet, ledger, may_empty)) for each in nodes]


def _turn(nodes: list[Standing], fleet: MigFleet) -> frozenset[str]:
    """Nodes that may be emptied now: those that are unavailable anyway, and as many others as there is room for."""
    wanting = [each.node.name for each in nodes if would_empty(each, fleet)]
    others = [name for name in wanting if name not in fleet.unavailable]
    room = unavailable_bound(fleet.policy, len(nodes)) - len(fleet.unavailable)
    return frozenset(wanting) & fleet.unavailable | frozenset(others[: max(0, room)])
