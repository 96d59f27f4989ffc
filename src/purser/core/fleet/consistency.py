"""What holds of a fleet: its ledger (`purser.core.consistency`), the state of each node, and its row in the arrays."""

from collections.abc import Iterable, Iterator

from purser.core.consistency import (
    Invariant,
    InvariantViolation,
    differences_text,
    ledger_sweep,
    node_usage_violations,
    slices,
)
from purser.core.fleet.arrays import FleetArrays
from purser.core.fleet.facts import FleetNodeFacts
from purser.core.fleet.fleet import Fleet, node_state
from purser.core.fleet.live import LiveArrays

NODES_AT_ONCE = 4
"""Between two results of `sweep`: a millisecond or two."""


def violations(fleet: Fleet, live: LiveArrays | None = None) -> tuple[InvariantViolation, ...]:
    """Everything that does not hold, at once; without ``live`` the arrays are left out."""
    return tuple(found for some in sweep(fleet, live) for found in some)


def sweep(fleet: Fleet, live: LiveArrays | None = None) -> Iterator[tuple[InvariantViolation, ...]]:
    """Everything that does not hold, some nodes or grants at a time: the fleet may change between two results."""
    for some in ledger_sweep(fleet.ledger):
        yield tuple(some)
    names = {*fleet.names(), *fleet.ledger.nodes(), *(() if live is None else live.arrays.rows)}
    for batch in slices(sorted(names), NODES_AT_ONCE):
        yield (
            *(found for name in batch for found in node_usage_violations(fleet.ledger, name)),
            *(found for name in batch for found in _state_violations(fleet, name)),
            *(() if live is None else _row_violations(fleet, live, batch)),
        )


def stale_rows(arrays: FleetArrays, nodes: Iterable[tuple[FleetNodeFacts, int]]) -> tuple[InvariantViolation, ...]:
    """The rows that are not what these facts and ranks of nodes give."""
    rebuilt, found = FleetArrays(), []
    for facts, rank in nodes:
        wanted = rebuilt.contents(rebuilt.put_node(facts, rank))
        row = arrays.rows.get(facts.name)
        kept = {} if row is None else arrays.contents(row)
        if kept != wanted:
            fields = [field for field in wanted if kept.get(field) != wanted[field]]
            have, expected = ({field: each.get(field) for field in fields} for each in (kept, wanted))
            found.append(InvariantViolation(Invariant.ARRAY_ROWS, facts.name, str(have), str(expected)))
    return tuple(found)


def _state_violations(fleet: Fleet, name: str) -> Iterator[InvariantViolation]:
    node = fleet.node(name)
    if node is None:
        return
    wanted = node_state(node.inventory, fleet.ledger.usage(name), fleet.disputes(name))
    if node.devices != wanted.devices:
        kept, recounted = ({each.device.uuid: each for each in state.devices} for state in (node, wanted))
        yield InvariantViolation(Invariant.NODE_STATE, name, *differences_text(kept, recounted))
    if dict(fleet.ledger.devices(name)) != {device.uuid: device for device in node.inventory.devices}:
        yield InvariantViolation(
            Invariant.NODE_STATE,
            name,
            f"devices in the ledger: {sorted(fleet.ledger.devices(name))}",
            f"devices in the inventory: {sorted(device.uuid for device in node.inventory.devices)}",
        )


def _row_violations(fleet: Fleet, live: LiveArrays, names: Iterable[str]) -> Iterator[InvariantViolation]:
    arrays = live.refresh()
    known = [node for name in names if (node := fleet.node(name)) is not None]
    yield from stale_rows(arrays, [(live.facts(node), 0) for node in known])
    for name in set(names) - {node.name for node in known}:
        if name in arrays.rows:
            yield InvariantViolation(Invariant.ARRAY_ROWS, name, f"row {arrays.rows[name]}", "no row")
