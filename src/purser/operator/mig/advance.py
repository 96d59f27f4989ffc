"""One round of MIG changes over the whole fleet."""

from purser.operator.mig.machine import next_step, would_empty
from purser.operator.mig.states import MigFleet, change_of, trouble_of, wanted_profile
from purser.operator.model import Moves, Standing
from purser.operator.nodework.disruption import DisruptionLedger
from purser.operator.nodework.steps import moves_of
from purser.operator.wording import natural


def advance(fleet: MigFleet) -> Moves:
    """What to do next on every node: at most one patch each."""
    ledger, nodes = DisruptionLedger(fleet.budgets), sorted(fleet.standings, key=lambda each: natural(each.node.name))
    may_empty = _turn(nodes, fleet)
    return moves_of({each.node.name: next_step(each, fleet, ledger, may_empty) for each in nodes}, fleet.now)


def waiting_of(fleet: MigFleet, moves: Moves) -> dict[str, str]:
    """By node: what its MIG change waits for, in one sentence, by the moves of the round. What went wrong is told by
    `trouble_of`."""
    waiting = (each for each in fleet.standings if each.node.name in moves.waits and not trouble_of(each.node))
    return {
        each.node.name: f"MIG layout {_profile(each, fleet)}: {moves.waits[each.node.name]}"
        for each in sorted(waiting, key=lambda each: natural(each.node.name))
    }


def _profile(standing: Standing, fleet: MigFleet) -> str:
    change = change_of(standing.node)
    return change.profile if change is not None else wanted_profile(standing, fleet.spec)


def _turn(nodes: list[Standing], fleet: MigFleet) -> frozenset[str]:
    """Nodes that may be emptied now: those that are unavailable anyway, and as many others as there is room for."""
    wanting = [each.node.name for each in nodes if would_empty(each, fleet)]
    others = [name for name in wanting if name not in fleet.unavailable]
    room = fleet.max_unavailable - len(fleet.unavailable)
    return frozenset(wanting) & fleet.unavailable | frozenset(others[: max(0, room)])
