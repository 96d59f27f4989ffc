"""One round of MIG changes over the whole fleet: what is done, and what is waited for."""

from purser.operator.maintenance import DisruptionLedger, planned_changes_of
from purser.operator.mig.machine import next_step, would_empty
from purser.operator.mig.states import MigFleet, change_of, failure_of, wanted_profile
from purser.operator.model import NodeProgress, PlannedChanges
from purser.operator.wording import natural


def advance(fleet: MigFleet) -> PlannedChanges:
    """What to do next on every node: at most one patch each."""
    ledger, nodes = (
        DisruptionLedger(fleet.budgets),
        sorted(fleet.node_progress, key=lambda each: natural(each.node.name)),
    )
    may_empty = _turn(nodes, fleet)
    return planned_changes_of({each.node.name: next_step(each, fleet, ledger, may_empty) for each in nodes}, fleet.now)


def waiting_of(fleet: MigFleet, planned: PlannedChanges) -> dict[str, str]:
    """By node: what its MIG change waits for, in one sentence, by the moves of the round. What went wrong is told by
    `failure_of`."""
    waiting = (each for each in fleet.node_progress if each.node.name in planned.waits and not failure_of(each.node))
    return {
        each.node.name: f"MIG layout {_profile(each, fleet)}: {planned.waits[each.node.name]}"
        for each in sorted(waiting, key=lambda each: natural(each.node.name))
    }


def _profile(progress: NodeProgress, fleet: MigFleet) -> str:
    change = change_of(progress.node)
    return change.profile if change is not None else wanted_profile(progress, fleet.spec)


def _turn(nodes: list[NodeProgress], fleet: MigFleet) -> frozenset[str]:
    """Nodes that may be emptied now: those that are unavailable anyway, and as many others as there is room for."""
    wanting = [each.node.name for each in nodes if would_empty(each, fleet)]
    others = [name for name in wanting if name not in fleet.unavailable]
    room = fleet.max_unavailable - len(fleet.unavailable)
    return frozenset(wanting) & fleet.unavailable | frozenset(others[: max(0, room)])
