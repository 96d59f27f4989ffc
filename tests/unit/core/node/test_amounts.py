"""What a node lists of the amounts that pods ask for: a condition that whatever Purser places meets."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from purser.core.dialects import DialectError, parse
from purser.core.fleet import Fleet
from purser.core.ledger import Usage, pod_usage
from purser.core.model import ContainerKind, Device, NodeInventory
from purser.core.node.amounts import AMOUNTS, Holder, asked_amounts, changed_amounts, listed_amounts
from purser.core.placement import Placement, place, to_grant
from purser.core.pod.manifest import ContainerSpec, PodManifest

INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP
GPU, MEM, PERCENT, CORES, PRIORITY = (
    f"nvidia.com/{word}" for word in ("gpu", "gpumem", "gpumem-percentage", "gpucores", "priority")
)
VMEM, VNUM, VGPU = "volcano.sh/gpu-memory", "volcano.sh/gpu-number", "volcano.sh/vgpu"


def cards(*memory: int, slots: int = 10) -> tuple[Device, ...]:
    return tuple(Device(f"d{i}", i, "NVIDIA", mib, slots=slots) for i, mib in enumerate(memory))


def listed(inventory: NodeInventory, *holders: Holder) -> dict[str, int]:
    return listed_amounts(inventory, holders)


def test_a_node_lists_the_totals_of_its_gpus() -> None:
    assert listed(NodeInventory("n", cards(16000, 8000))) == {
        MEM: 24000,
        PERCENT: 2000,
        CORES: 200,
        PRIORITY: 20,
        VMEM: 24000,
        VNUM: 2,
        f"{VGPU}-number": 20,
        f"{VGPU}-memory": 24000,
        f"{VGPU}-memory-percentage": 2000,
        f"{VGPU}-cores": 200,
        "aliyun.com/gpu-mem": 15 + 7,
        "aliyun.com/gpu-count": 2,
    }


def test_a_node_without_devices_lists_nothing() -> None:
    assert listed(NodeInventory("n")) == {}


@pytest.mark.parametrize("why", ["sick", "cordoned", "gone"])
def test_of_a_gpu_that_takes_no_grants_is_listed_what_its_pods_ask_for(why: str) -> None:
    left, lost = cards(16000, 8000)
    inventory = {
        "sick": NodeInventory("n", (left, msgspec.structs.replace(lost, healthy=False))),
        "cordoned": NodeInventory("n", (left, lost), cordoned=(lost.uuid,)),
        "gone": NodeInventory("n", (left,)),
    }[why]
    on_lost = Holder({MEM: 5000, CORES: 30}, {lost.uuid: Usage(1, 5000, 30, pods=1)})
    on_left = Holder({MEM: 4000}, {left.uuid: Usage(1, 4000, 0, pods=1)})
    found = listed(inventory, on_lost, on_left)
    assert (found[MEM], found[CORES], found[VMEM], found[VNUM]) == (21000, 130, 16000, 1)
    assert listed(inventory, on_left)[MEM] == 16000


def test_a_node_whose_gpus_are_all_gone_lists_what_pods_still_ask_for() -> None:
    assert listed(NodeInventory("n"), Holder({MEM: 5000}, {"d0": Usage(1, 5000, 0)})) == {MEM: 5000}


def test_what_pods_without_a_grant_ask_for_is_listed_on_top() -> None:
    """Nobody placed them there, and what they take of the count is not taken of any card."""
    found = listed(NodeInventory("n", cards(16000)), Holder({MEM: 9000, PRIORITY: 1 << 40}))
    assert (found[MEM], found[PRIORITY]) == (25000, 10 + (1 << 40))


def test_what_a_pod_asks_for_whose_grant_is_to_come_is_not_listed_on_top() -> None:
    """It is granted out of the total, and Volcano would take one more of its ``gpu-number`` for one more GPU."""
    inventory = NodeInventory("n", cards(16000, 16000))
    on_first = Holder({VNUM: 1}, {"d0": Usage(1, 16000, 100, pods=1, exclusive=1)})
    assert listed(inventory, on_first, Holder({VNUM: 1}, awaits=True))[VNUM] == 2
    assert listed(inventory, on_first, Holder({VNUM: 2}, awaits=True))[VNUM] == 3  # kubelet would refuse it


def test_never_less_is_listed_than_pods_ask_for() -> None:
    """kubelet would refuse them at its next start: of a card that is overcommitted, too."""
    both = [Holder({MEM: 12000}, {"d0": Usage(1, 12000, 0)})] * 2
    assert listed(NodeInventory("n", cards(16000)), *both)[MEM] == 24000


@pytest.mark.parametrize(
    ("containers", "amount"),
    [
        pytest.param([(APP, "10"), (APP, "5")], 15, id="app containers run together"),
        pytest.param([(INIT, "20"), (INIT, "30"), (APP, "10")], 30, id="init containers run one by one before them"),
        pytest.param([(SIDECAR, "10"), (INIT, "40"), (APP, "20")], 50, id="sidecars stay beside those after them"),
        pytest.param([(INIT, "40"), (SIDECAR, "10"), (APP, "20")], 40, id="but not beside those before them"),
        pytest.param([(APP, "16k")], 16000, id="as the API server spells it"),
        pytest.param([(APP, "nonsense")], 0, id="what is not a quantity"),
        pytest.param([(APP, "-3")], 0, id="less than nothing"),
    ],
)
def test_pods_ask_for_what_they_ask_for_at_one_time(containers: list[tuple[ContainerKind, str]], amount: int) -> None:
    parts = tuple(ContainerSpec("c", kind, {MEM: text, "cpu": "4"}, {MEM: text}) for kind, text in containers)
    assert asked_amounts(PodManifest("u", "ns", "p", {}, parts)) == ({MEM: amount} if amount else {})


@pytest.mark.parametrize(
    ("there", "changes"),
    [
        pytest.param({MEM: "16k", CORES: "100", "cpu": "4", "a/b": "1"}, {}, id="as it should be, in other words"),
        pytest.param({}, {MEM: "16000", CORES: "100"}, id="nothing yet"),
        pytest.param({MEM: "0", CORES: "0"}, {MEM: "16000", CORES: "100"}, id="kubelet zeroed them"),
        pytest.param({MEM: "16k", CORES: "100", VMEM: "0"}, {VMEM: None}, id="one that is not listed any more"),
        pytest.param({MEM: "x", CORES: "100"}, {MEM: "16000"}, id="what is not a quantity"),
    ],
)
def test_only_what_differs_is_written(there: dict[str, str], changes: dict[str, str | None]) -> None:
    assert changed_amounts({MEM: 16000, CORES: 100}, there) == changes


def some(amounts: st.SearchStrategy[int]) -> st.SearchStrategy[str | None]:
    return st.one_of(st.none(), amounts.map(str))


hami = st.fixed_dictionaries(
    {
        GPU: st.integers(1, 3).map(str),
        MEM: some(st.integers(1, 5000)),
        PERCENT: some(st.integers(1, 100)),
        CORES: some(st.integers(0, 100)),
        PRIORITY: some(st.integers(0, 1)),
    }
)
volcano = st.one_of(
    st.fixed_dictionaries({VMEM: st.integers(1, 5000).map(str)}),
    st.fixed_dictionaries({VNUM: st.integers(1, 2).map(str)}),
)
vgpu = st.fixed_dictionaries(
    {
        f"{VGPU}-number": st.integers(1, 3).map(str),
        f"{VGPU}-memory": some(st.integers(1, 5000)),
        f"{VGPU}-memory-percentage": some(st.integers(1, 100)),
        f"{VGPU}-cores": some(st.integers(0, 100)),
    }
)
gpushare = st.fixed_dictionaries({"aliyun.com/gpu-mem": st.integers(1, 4).map(str)})
words = st.one_of(hami, volcano, vgpu, gpushare).map(
    lambda found: {name: text for name, text in found.items() if text is not None}
)
bodies = st.lists(st.tuples(st.sampled_from([INIT, SIDECAR, APP]), words), min_size=1, max_size=3)
ignored_percentage = {GPU: "1", MEM: "10", PERCENT: "90"}
rounded_percentage = {GPU: "1", PERCENT: "1"}
inventories = st.builds(
    lambda memory, slots: NodeInventory("n", cards(*memory, slots=slots)),
    st.lists(st.integers(50, 5000), min_size=1, max_size=3),
    st.sampled_from([1, 3, 200]),
)


@pytest.mark.parametrize(
    ("memory_mib", "limits", "count"), [(50, ignored_percentage, 5), (1099, rounded_percentage, 109)]
)
def test_percentages_of_one_gpu_may_come_to_more_than_a_hundred(
    memory_mib: int, limits: dict[str, str], count: int
) -> None:
    """Beside ``gpumem`` they count for nothing, and they are rounded down to MiB."""
    inventory = NodeInventory("n", cards(memory_mib, slots=count))
    fleet = Fleet()
    fleet.set_inventory(inventory)
    for number in range(count):
        spec = PodManifest(f"u{number}", "ns", f"p{number}", {}, (ContainerSpec("c", APP, limits),))
        request, state = parse(spec), fleet.node("n")
        assert request is not None and state is not None
        found = place(state, request)
        assert isinstance(found, Placement), found
        fleet.ledger.reserve(to_grant(found, request, inventory))
        assert (number + 1) * asked_amounts(spec)[PERCENT] <= listed(inventory)[PERCENT]


@given(inventories, st.lists(bodies, max_size=12), st.data())
def test_whatever_is_placed_fits_what_the_node_lists(
    inventory: NodeInventory, pods: list[list[tuple[ContainerKind, dict[str, str]]]], data: st.DataObject
) -> None:
    fleet = Fleet()
    there: list[Holder] = []
    for number, containers in enumerate(pods):
        inventory = data.draw(st.one_of(st.just(inventory), lost(inventory)))
        fleet.set_inventory(inventory)
        parts = tuple(ContainerSpec(f"c{i}", kind, limits) for i, (kind, limits) in enumerate(containers))
        spec = PodManifest(f"u{number}", "ns", f"p{number}", {}, parts)
        asks, now = asked_amounts(spec), listed_amounts(inventory, there)
        taken = {name: sum(pod.asks.get(name, 0) for pod in there) for name in AMOUNTS}
        assert all(now.get(name, 0) >= amount for name, amount in taken.items())
        state = fleet.node("n")
        try:
            request = parse(spec)
        except DialectError:
            request = None
        if request is None or state is None or number % 5 == 4:
            there.append(Holder(asks))  # somebody brought it past the scheduler
            continue
        found = place(state, request)
        if isinstance(found, Placement):
            assert {name: amount for name, amount in asks.items() if taken[name] + amount > now[name]} == {}
            grant = to_grant(found, request, inventory)
            fleet.ledger.reserve(grant)
            there.append(Holder(asks, pod_usage(grant)))


def lost(inventory: NodeInventory) -> st.SearchStrategy[NodeInventory]:
    """One card less, or one that is sick or well again, or cordoned."""

    def without(place: int, how: str) -> NodeInventory:
        if how == "cordoned":
            return msgspec.structs.replace(inventory, cordoned=(inventory.devices[place].uuid,))
        devices = list(inventory.devices)
        if how == "gone" and len(devices) > 1:
            del devices[place]
        else:
            devices[place] = msgspec.structs.replace(devices[place], healthy=not devices[place].healthy)
        return msgspec.structs.replace(inventory, devices=tuple(devices))

    return st.builds(without, st.integers(0, len(inventory.devices) - 1), st.sampled_from(["cordoned", "gone", "sick"]))
