"""The live fleet as arrays: whatever happened to it, they are as if they had been built from it now."""

import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples
from tests.unit.core.fleet.test_arrays import NAMES

from purser.core.fleet import Fleet, FreeResources
from purser.core.fleet.consistency import violations
from purser.core.fleet.live import LiveArrays
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Grant, GrantState, NodeInventory

arrays_module = importlib.import_module("purser.core.fleet.arrays")

KNOWN = NAMES[:6]
EVENTS = st.tuples(
    st.sampled_from(["inventory", "gone", "grant", "grant", "grant", "end", "room"]),
    st.sampled_from(KNOWN),
    st.integers(0, 4),
    st.integers(0, 3),
)


def apply(fleet: Fleet, what: str, name: str, number: int, more: int) -> None:
    if what == "inventory":
        models = ("T4", "A100")
        devices = tuple(
            Device(f"{name}-{i}", i, models[more % 2], 1000 * (1 + more), slots=1 + more, healthy=i != more)
            for i in range(number)
        )
        fleet.set_inventory(NodeInventory(name, devices, cordoned=(f"{name}-1",) if more == 3 else ()))
    elif what == "gone":
        fleet.remove_node(name)
    elif what == "grant":
        shares = tuple(DeviceShare(f"{name}-{i}", 300 * more, 50 * (more % 3)) for i in range(1 + number % 2))
        part = ContainerGrant("c", ContainerKind.APP, shares)
        fleet.ledger.adopt(Grant(f"pod-{number}-{name}", "ns", "p", name, (part,)), GrantState.BOUND)
    elif what == "end":
        fleet.ledger.release(f"pod-{number}-{name}")
    else:
        fleet.set_free_resources(name, FreeResources(1000 * number, 500 * more, more))


def places(live: LiveArrays) -> dict[str, list[tuple[str, int]]]:
    uuids = [f"{name}-{place}" for name in KNOWN for place in range(4)]
    return {uuid: [(live.arrays.names[row], gpu) for row, gpu in live.places([uuid])] for uuid in uuids}


@examples(150)
@given(batches=st.lists(st.lists(EVENTS, max_size=6), max_size=8))
def test_after_any_events_they_are_as_if_built_now(batches: list[list[tuple[str, str, int, int]]]) -> None:
    fleet = Fleet()
    live, seldom = LiveArrays(fleet), LiveArrays(fleet)
    for number, events in enumerate(batches):
        for event in events:
            apply(fleet, *event)
        live.refresh()
        if number % 3 == 0:
            seldom.refresh()
    seldom.refresh()
    assert violations(fleet, live) == violations(fleet, seldom) == ()
    assert places(live) == places(LiveArrays(fleet)) == places(seldom)
    assert sorted(live.arrays.rows) == fleet.names()


def test_a_node_that_did_not_change_is_not_written_again() -> None:
    fleet = Fleet()
    for name in KNOWN:
        apply(fleet, "inventory", name, 2, 2)
    live = LiveArrays(fleet)
    before = live.refresh().clock
    apply(fleet, "grant", KNOWN[3], 1, 1)
    arrays = live.refresh()
    assert [arrays.names[row] for row in (arrays.changed_at > before).nonzero()[0]] == [KNOWN[3]]


def test_a_node_that_is_of_another_model_each_time_leaves_no_more_than_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays_module, "MAX_NUMBERED_MODELS", 3)
    fleet = Fleet()
    apply(fleet, "inventory", KNOWN[0], 2, 1)
    live = LiveArrays(fleet)
    for number in range(9):
        devices = tuple(Device(f"{KNOWN[1]}-{i}", i, f"model {number + i}", 1000) for i in range(2))
        fleet.set_inventory(NodeInventory(KNOWN[1], devices))
        arrays = live.refresh()
        assert violations(fleet, live) == ()
    assert len(set(arrays.models)) == len(arrays.models) == 3
