"""What is wrong inside the scheduler's state is found, whichever part of it is wrong."""

from collections.abc import Callable

import msgspec
import pytest

from purser.core.consistency import Invariant
from purser.core.fleet import Fleet
from purser.core.fleet.consistency import violations
from purser.core.fleet.live import LiveArrays
from purser.core.grant.quota import Demand
from purser.core.ledger import NO_USAGE, Usage
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Grant, NodeInventory


def world() -> tuple[Fleet, LiveArrays]:
    fleet = Fleet()
    for node in ("n", "m"):
        fleet.set_inventory(NodeInventory(node, (Device(f"{node}0", 0, "T4", 1000, slots=4),)))
        part = ContainerGrant("c", ContainerKind.APP, (DeviceShare(f"{node}0", 100, 10),))
        fleet.ledger.adopt(Grant(f"pod-{node}", "ns", "p", node, (part,)))
    live = LiveArrays(fleet)
    fleet.node("n")
    return fleet, live


def usage(fleet: Fleet, live: LiveArrays) -> None:
    fleet.ledger._usage["n"]["n0"] = Usage(1, 99, 10, 1)
    fleet.ledger.on_change("n")


def demand(fleet: Fleet, live: LiveArrays) -> None:
    fleet.ledger._namespaces["ns", ""] = Demand(1, 1)


def forgotten_demand(fleet: Fleet, live: LiveArrays) -> None:
    fleet.ledger._namespaces["gone", ""] = Demand(1, 1)


def unlisted(fleet: Fleet, live: LiveArrays) -> None:
    del fleet.ledger._by_node["n"]["pod-n"]
    fleet.ledger.on_change("n")


def state(fleet: Fleet, live: LiveArrays) -> None:
    node = fleet._nodes["n"]
    stale = tuple(msgspec.structs.replace(each, usage=NO_USAGE) for each in node.devices)
    fleet._nodes["n"] = msgspec.structs.replace(node, devices=stale)


def inventory(fleet: Fleet, live: LiveArrays) -> None:
    fleet.ledger.forget_node("n")


def row(fleet: Fleet, live: LiveArrays) -> None:
    live.arrays.memory_free_mib[0, live.arrays.rows["n"]] += 1


def lost_row(fleet: Fleet, live: LiveArrays) -> None:
    live.arrays.remove_node("n")


def left_row(fleet: Fleet, live: LiveArrays) -> None:
    del fleet._nodes["n"]


@pytest.mark.parametrize(
    ("corrupt", "found"),
    [
        pytest.param(usage, {(Invariant.NODE_USAGE, "n")}, id="usage"),
        pytest.param(demand, {(Invariant.NAMESPACE_DEMAND, "ns")}, id="demand"),
        pytest.param(forgotten_demand, {(Invariant.NAMESPACE_DEMAND, "gone")}, id="demand of a namespace without pods"),
        pytest.param(unlisted, {(Invariant.GRANT_INDEX, "pod-n"), (Invariant.NODE_USAGE, "n")}, id="not listed"),
        pytest.param(state, {(Invariant.NODE_STATE, "n"), (Invariant.ARRAY_ROWS, "n")}, id="a stale state"),
        pytest.param(inventory, {(Invariant.NODE_STATE, "n")}, id="devices in the ledger"),
        pytest.param(row, {(Invariant.ARRAY_ROWS, "n")}, id="a row"),
        pytest.param(lost_row, {(Invariant.ARRAY_ROWS, "n")}, id="no row"),
        pytest.param(left_row, {(Invariant.ARRAY_ROWS, "n")}, id="a row without a node"),
    ],
)
def test_a_corrupted_state_is_found(
    corrupt: Callable[[Fleet, LiveArrays], None], found: set[tuple[Invariant, str]]
) -> None:
    fleet, live = world()
    assert violations(fleet, live) == ()
    corrupt(fleet, live)
    wrong = violations(fleet, live)
    assert {(each.invariant, each.subject) for each in wrong} == found
    assert all(each.kept != each.recounted for each in wrong)


def test_a_grant_that_is_listed_under_another_node_is_found() -> None:
    fleet, _ = world()
    fleet.ledger._by_node["m"]["pod-n"] = None
    (found,) = violations(fleet)
    assert (found.subject, found.kept, found.recounted) == ("pod-n", "listed under m", "granted on n")
