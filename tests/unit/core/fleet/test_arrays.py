"""The fleet as arrays: whatever happens to it, it is as if it had been built from what there is now."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule
from tests.tiers import examples
from tests.unit.core.placement.policies import fleets

from purser.core.fleet import node_state
from purser.core.fleet.arrays import POD_KINDS, FleetArrays
from purser.core.fleet.consistency import stale_rows
from purser.core.fleet.facts import CORDONED, FleetNodeFacts, GpuFacts, Take
from purser.core.fleet.live import links_of, node_facts
from purser.core.ledger import Usage
from purser.core.model import Device, Link, NodeInventory, PcieLevel

NAMES = [f"node-{number}" for number in range(40)]
TAKES = st.builds(
    Take,
    cpu_milli=st.integers(0, 3000),
    memory_mib=st.integers(0, 3000),
    gpu_memory_mib=st.integers(0, 1000),
    gpu_memory_percent=st.sampled_from([0, 33]),
    gpu_cores_percent=st.integers(0, 100),
    alone=st.booleans(),
    kind=st.sampled_from([None, 0, 1, 8, 16, 99]),
)


class Events(RuleBasedStateMachine):
    """Nodes come, change and go; pods take and give back."""

    grants = Bundle("grants")

    def __init__(self) -> None:
        super().__init__()
        self.fleet = FleetArrays()
        self.nodes: dict[str, tuple[FleetNodeFacts, int]] = {}
        self.taken: list[tuple[str, tuple[int, ...], Take]] = []

    @rule(name=st.sampled_from(NAMES), data=st.data(), rank=st.integers(0, 3))
    def put(self, name: str, data: st.DataObject, rank: int) -> None:
        node = data.draw(fleets.nodes(name))
        self.taken = [grant for grant in self.taken if grant[0] != name]
        self.nodes[name] = (node, rank)
        self.fleet.put_node(node, rank)

    @rule(name=st.sampled_from(NAMES))
    def remove(self, name: str) -> None:
        self.taken = [grant for grant in self.taken if grant[0] != name]
        self.nodes.pop(name, None)
        self.fleet.remove_node(name)
        assert self.fleet.rows.get(name) is None

    @rule(target=grants, data=st.data(), taken=TAKES)
    def take(self, data: st.DataObject, taken: Take) -> object:
        if not self.nodes:
            return multiple()
        name = data.draw(st.sampled_from(sorted(self.nodes)))
        places = range(len(self.nodes[name][0].gpus))
        gpus = tuple(data.draw(st.lists(st.sampled_from(places), unique=True))) if places else ()
        self.taken.append((name, gpus, taken))
        self.fleet.take(self.row(name), gpus, taken)
        return self.taken[-1]

    @rule(grant=consumes(grants))
    def release(self, grant: tuple[str, tuple[int, ...], Take]) -> None:
        if grant in self.taken:
            self.taken.remove(grant)
            self.fleet.release(self.row(grant[0]), grant[1], grant[2])

    def row(self, name: str) -> int:
        row = self.fleet.rows.get(name)
        assert row is not None
        return row

    @invariant()
    def is_as_if_built_now(self) -> None:
        nodes = [(self.as_it_is(name, node), rank) for name, (node, rank) in self.nodes.items()]
        assert stale_rows(self.fleet, nodes) == ()
        assert len(self.fleet) == len(self.nodes) == self.fleet.live.sum()

    @invariant()
    def order_is_by_rank_and_name(self) -> None:
        wanted = sorted(self.nodes, key=lambda name: (self.nodes[name][1], name))
        assert sorted(self.nodes, key=lambda name: self.fleet.order[self.row(name)]) == wanted

    def as_it_is(self, name: str, node: FleetNodeFacts) -> FleetNodeFacts:
        """What is left, added up again."""
        taken = [(gpus, take) for owner, gpus, take in self.taken if owner == name]
        gpus = tuple(_with(gpu, [take for gpus, take in taken if place in gpus]) for place, gpu in enumerate(node.gpus))
        return msgspec.structs.replace(
            node,
            gpus=gpus,
            cpu_free_milli=node.cpu_free_milli - sum(take.cpu_milli for _, take in taken),
            memory_free_mib=node.memory_free_mib - sum(take.memory_mib for _, take in taken),
            pods_free=node.pods_free - len(taken),
            kinds=tuple((min(take.kind, POD_KINDS - 1), 1) for _, take in taken if take.kind is not None),
        )


def _with(gpu: GpuFacts, takes: list[Take]) -> GpuFacts:
    return msgspec.structs.replace(
        gpu,
        memory_taken_mib=sum(_memory(gpu, take) for take in takes),
        cores_taken_percent=sum(take.gpu_cores_percent for take in takes),
        slots_taken=len(takes),
        alone=sum(take.alone for take in takes),
    )


def _memory(gpu: GpuFacts, take: Take) -> int:
    percent = take.gpu_memory_percent
    return gpu.memory_mib * percent // 100 if percent else take.gpu_memory_mib


TestEvents = Events.TestCase
TestEvents.settings = examples(40, stateful_step_count=40)


@examples(20)
@given(st.lists(st.sampled_from(["put", "remove", "take"]), min_size=1))
def test_every_change_is_stamped_on_its_row_and_on_no_other(events: list[str]) -> None:
    fleet = fleets.fleet_of([FleetNodeFacts(name, (GpuFacts("T4", 1000, 2),)) for name in NAMES])
    for number, event in enumerate(events):
        name, before, clock = NAMES[number % len(NAMES)], fleet.changed_at.copy(), fleet.clock
        row = fleet.rows.get(name)
        if row is None:
            continue
        if event == "put":
            fleet.put_node(FleetNodeFacts(name, ()))
        elif event == "remove":
            fleet.remove_node(name)
        else:
            fleet.take(row, (), Take())
        assert fleet.changed_at[row] == fleet.clock > clock
        assert (np.delete(fleet.changed_at, row) == np.delete(before, row)).all()


@pytest.mark.parametrize(
    ("gpu", "left"),
    [
        pytest.param(GpuFacts("T4", 1000, 10), 1000, id="idle"),
        pytest.param(GpuFacts("T4", 1000, 10, memory_taken_mib=1, slots_taken=1), 999, id="memory is short"),
        pytest.param(GpuFacts("T4", 3, 10, memory_taken_mib=1, slots_taken=1), 666, id="rounded down"),
        pytest.param(GpuFacts("T4", 1000, 10, cores_taken_percent=70, slots_taken=1), 300, id="compute is short"),
        pytest.param(GpuFacts("T4", 1000, 10, memory_taken_mib=1200, slots_taken=1), 0, id="overbooked"),
        pytest.param(GpuFacts("T4", 1000, 1, slots_taken=1), 0, id="no slot"),
        pytest.param(GpuFacts("T4", 1000, 10, slots_taken=1, alone=1), 0, id="held alone"),
        pytest.param(GpuFacts("T4", 1000, 10, closed=CORDONED), 0, id="unhealthy or cordoned"),
        pytest.param(GpuFacts("T4", 0, 10), 0, id="no memory at all"),
    ],
)
def test_what_is_left_of_a_gpu(gpu: GpuFacts, left: int) -> None:
    assert fleets.fleet_of([FleetNodeFacts("node-0", (gpu,))]).left_milli[0, 0] == left


def test_a_row_is_used_again_and_remembers_nothing() -> None:
    fleet = fleets.fleet_of([FleetNodeFacts("node-0", (GpuFacts("T4", 1000, 2),) * 12), FleetNodeFacts("node-1", ())])
    row = fleet.rows.get("node-0")
    fleet.remove_node("node-0")
    assert fleet.put_node(FleetNodeFacts("node-2", ())) == row
    assert not fleet.memory_mib[:, row].any()


def test_facts_of_a_live_node() -> None:
    devices = tuple(
        Device(uuid, index, "T4", 16_000, slots=10, links=(Link(peer, PcieLevel.SINGLE_SWITCH, 2),))
        for index, (uuid, peer) in enumerate([("a", "b"), ("b", "a")])
    )
    state = node_state(NodeInventory("node-0", devices, cordoned=("b",)), {"a": Usage(2, 4000, 30, 2, 0)})
    facts = node_facts(state, links=links_of(state))
    assert facts.gpus == (
        GpuFacts(
            "T4",
            16_000,
            10,
            mode="shared",
            enforcement="none",
            memory_taken_mib=4000,
            cores_taken_percent=30,
            slots_taken=2,
        ),
        GpuFacts("T4", 16_000, 10, mode="shared", enforcement="none", closed=CORDONED),
    )
    assert facts.links is not None
    assert facts.links.scores[0][1] > 0


def test_what_a_node_says_of_itself_is_taken_within_bounds() -> None:
    absurd = Device("a", 0, "T4", 10**30, cores_percent=10**30, slots=10**30)
    state = node_state(NodeInventory("node-0", (absurd,)), {"a": Usage(10**30, 10**31, 10**31, 10**30, 10**30)})
    fleet = fleets.fleet_of([node_facts(state)])
    assert fleet.left_milli[0, 0] == 0
