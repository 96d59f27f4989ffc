"""Whatever a node says of itself: what is taken for a report can be predicted, in little time and without a crash."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.tiers import examples

from purser.core.kubelet import memorymanager
from purser.core.kubelet.admission import admit
from purser.core.kubelet.asks import finish
from purser.core.kubelet.config import (
    CpuOptions,
    CpuPolicy,
    KubeletConfig,
    MemoryPolicy,
    TopologyOptions,
    TopologyPolicy,
    TopologyScope,
)
from purser.core.kubelet.errors import KubeletStartError
from purser.core.kubelet.hints import Hint
from purser.core.kubelet.machine import Cpu, Machine, NumaNode
from purser.core.kubelet.pod import KubeletContainer, KubeletPod, QosClass
from purser.core.kubelet.report import (
    MAX_REPORT_BYTES,
    ReportError,
    check_coherence,
    decode,
    encode,
    node_of,
    report_of,
    state_of,
)
from purser.core.kubelet.state import (
    Allocation,
    CpuState,
    DeviceManagerState,
    KubeletNode,
    KubeletState,
    MemoryBlock,
    MemoryNode,
    MemoryState,
    MemoryTable,
    PluginDevice,
    PluginOptions,
    PluginResource,
)
from purser.core.pod.manifest import ContainerKind

GPU, NIC = "nvidia.com/gpu", "example.com/nic"
GIB = 1 << 30
HUGE = "hugepages-1Gi"


def machine(*numbers: int, distances: tuple[int, ...] = ()) -> Machine:
    """Four CPUs on each NUMA node."""
    return Machine(
        tuple(NumaNode(number, {"memory": 8 * GIB}, distances) for number in numbers),
        tuple(
            Cpu(4 * place + c, number, number, 4 * place + c) for place, number in enumerate(numbers) for c in range(4)
        ),
    )


def node(on: Machine, version: str = "v1.33.0", **config) -> KubeletNode:
    settings = {
        "topology_policy": TopologyPolicy.BEST_EFFORT,
        "memory_policy": MemoryPolicy.STATIC,
        "reserved_memory": {on.numa_nodes[0].node: {"memory": GIB}},
    }
    return KubeletNode(KubeletConfig(version=version, **settings | config), on)


def memory_state(on: KubeletNode) -> MemoryState:
    return memorymanager.start(on)


def guaranteed(uid: str, memory: int) -> KubeletPod:
    container = KubeletContainer("c", requests={"memory": memory}, limits={"memory": memory})
    return KubeletPod(uid, (container,), QosClass.GUARANTEED)


TABLE = MemoryTable(8 * GIB, 0, 8 * GIB, 0, 8 * GIB)
ODD_MEMORY = {
    "a NUMA node is missing": {0: MemoryNode({"memory": TABLE}, 0b1)},
    "one too many": {n: MemoryNode({"memory": TABLE}, 1 << n) for n in range(3)},
    "more free than there is": {
        0: MemoryNode({"memory": replace(TABLE, free=9 * GIB)}, 0b1),
        1: MemoryNode({"memory": TABLE}, 0b10),
    },
    "free and reserved": {
        0: MemoryNode({"memory": replace(TABLE, reserved=GIB)}, 0b1),
        1: MemoryNode({"memory": TABLE}, 0b10),
    },
    "fewer assignments than none": {
        0: MemoryNode({"memory": TABLE}, 0b1, -1),
        1: MemoryNode({"memory": TABLE}, 0b10),
    },
    "in a group without itself": {
        0: MemoryNode({"memory": TABLE}, 0b10),
        1: MemoryNode({"memory": TABLE}, 0b10),
    },
}


@pytest.mark.parametrize("odd", ODD_MEMORY)
def test_memory_that_no_kubelet_keeps_is_refused(odd) -> None:
    with pytest.raises(ReportError, match="NUMA node"):
        check_coherence(node(machine(0, 1)), KubeletState(memory=MemoryState(ODD_MEMORY[odd])))


def test_groups_that_disagree_are_kubelets_own_doing() -> None:
    """A container over both nodes, then one that the topology manager puts on the first alone."""
    on = node(machine(0, 1))
    state = memory_state(on)
    for pod, hint in ((guaranteed("a", 9 * GIB), Hint(0b11, False)), (guaranteed("b", GIB // 2), Hint(0b10, False))):
        state, error, _ = memorymanager.allocate(on, state, pod, pod.containers[0], hint, {})
        assert error is None
    assert {number: of.group for number, of in state.nodes.items()} == {0: 0b11, 1: 0b10}
    check_coherence(on, KubeletState(memory=state))


SPARSE = machine(0, 3, distances=(10, 21))
CLOSEST = TopologyOptions(prefer_closest_numa_nodes=True)


@pytest.mark.parametrize(
    "on",
    [
        pytest.param(node(SPARSE), id="distances do not matter"),
        pytest.param(node(SPARSE, "v1.25.0", topology_options=CLOSEST), id="no such option yet"),
        pytest.param(node(SPARSE, topology_options=CLOSEST, topology_policy=TopologyPolicy.NONE), id="no alignment"),
        pytest.param(
            node(SPARSE, topology_options=CLOSEST, topology_policy=TopologyPolicy.SINGLE_NUMA_NODE), id="single nodes"
        ),
        pytest.param(node(machine(0, 1, distances=(10, 21)), topology_options=CLOSEST), id="all are there"),
        pytest.param(node(machine(0, 3, distances=(10, 21, 21, 21)), topology_options=CLOSEST), id="told by number"),
    ],
)
def test_numa_nodes_may_have_gaps_in_their_numbers(on) -> None:
    check_coherence(on, KubeletState())


@pytest.mark.parametrize("distances", [(10, 21), (10, 20, 20, -1), (10, 20, 20, 10**400), (10, 20, 20, 256)])
def test_where_kubelet_compares_distances_they_must_be_there(distances) -> None:
    with pytest.raises(ReportError, match="distances"):
        check_coherence(node(machine(0, 3, distances=distances), topology_options=CLOSEST), KubeletState())


def devices_at(places: list[tuple[int, ...]]) -> KubeletState:
    devices = {f"d{n}": PluginDevice(f"d{n}", True, place) for n, place in enumerate(places)}
    return KubeletState(DeviceManagerState({NIC: PluginResource(devices, frozenset(devices), is_listed=True)}))


def sets_of(nodes: int, count: int) -> list[tuple[int, ...]]:
    return [place for width in range(1, nodes + 1) for place in combinations(range(nodes), width)][:count]


def test_devices_may_be_at_as_many_places_as_can_be_counted() -> None:
    on = node(machine(*range(10)))
    check_coherence(on, devices_at(sets_of(10, 64)))
    with pytest.raises(ReportError, match="65 different sets of NUMA nodes"):
        check_coherence(on, devices_at(sets_of(10, 65)))


def test_devices_may_be_on_as_many_nodes_as_can_be_combined() -> None:
    big = Machine(tuple(NumaNode(number) for number in range(34)))
    check_coherence(node(big), devices_at([(number,) for number in range(10)]))
    with pytest.raises(ReportError, match="on 11 NUMA nodes"):
        check_coherence(node(big), devices_at([(number,) for number in range(11)]))
    check_coherence(node(machine(0, 1)), devices_at([(number,) for number in range(11)]))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        pytest.param(lambda cpu: Cpu(cpu, 0, cpu, cpu), "257 sockets", id="sockets"),
        pytest.param(lambda cpu: Cpu(cpu, 0, 0, cpu, cpu), "257 uncore caches", id="caches"),
    ],
)
def test_cpus_may_be_in_as_many_parts_as_can_be_searched(parts, message) -> None:
    def with_cpus(count: int) -> KubeletNode:
        return node(Machine((NumaNode(0),), tuple(parts(cpu) for cpu in range(count))))

    check_coherence(with_cpus(256), KubeletState())
    with pytest.raises(ReportError, match=message):
        check_coherence(with_cpus(257), KubeletState())


def test_a_text_longer_than_an_annotation_may_be_is_not_read() -> None:
    text = encode(report_of(node(machine(0))))
    decode(text + " " * (MAX_REPORT_BYTES - len(text)))
    with pytest.raises(ReportError, match="bytes"):
        decode(text + " " * (MAX_REPORT_BYTES - len(text) + 1))
    with pytest.raises(ReportError, match="bytes"):
        decode(text + "\u00e9" * (MAX_REPORT_BYTES // 2))


# Whatever passes can be predicted

flags = st.booleans()
few = st.integers(0, 3)
sizes = st.sampled_from([0, 1, GIB, 2 * GIB, 8 * GIB])
uids = st.sampled_from(["u", "v", "w"])
names = st.sampled_from(["a", "b"])


@st.composite
def machines(draw) -> Machine:
    numbers = sorted(draw(st.sets(st.integers(0, 5), min_size=draw(st.sampled_from([0, 2, 3])), max_size=4)))
    cpus = [
        Cpu(number, draw(st.sampled_from(numbers)), draw(few), draw(few), draw(few))
        for number in sorted(draw(st.sets(st.integers(0, 15))))
        if numbers
    ]
    rows = st.sampled_from([(), (10,) * 6, (10, 20), (255, 0, 1, 2, 3, 4), (10**400,) * 6])
    return Machine(
        tuple(NumaNode(number, {"memory": draw(sizes)}, draw(rows)) for number in numbers),
        tuple(cpus),
        draw(st.sampled_from([0, 1, 2, 7, -3, 10**30])),
    )


@st.composite
def configs(draw) -> KubeletConfig:
    return KubeletConfig(
        version=draw(st.sampled_from(["v1.20.2", "v1.21.0", "v1.23.1", "v1.27.0", "v1.33.0", "v1.36.2", "v9.0"])),
        topology_policy=draw(st.sampled_from(TopologyPolicy)),
        topology_scope=draw(st.sampled_from(TopologyScope)),
        topology_options=TopologyOptions(draw(flags), 8),
        cpu_policy=draw(st.sampled_from(CpuPolicy)),
        cpu_options=CpuOptions(*(draw(flags) for _ in range(6))),
        memory_policy=draw(st.sampled_from(MemoryPolicy)),
    )


@st.composite
def memories(draw, on: Machine) -> MemoryState:
    """Tables that add up; groups, assignments and blocks as they come."""
    numbers = [numa.node for numa in on.numa_nodes]
    nodes = {}
    for number in draw(st.sampled_from([numbers, numbers, numbers[:-1], numbers[1:]])):
        tables = {}
        for name in draw(st.sampled_from([["memory"], ["memory", HUGE], []])):
            free, reserved = draw(sizes), draw(sizes)
            tables[name] = MemoryTable(draw(sizes), draw(sizes), free + reserved, reserved, free)
        group = 1 << number | sum(1 << other for other in numbers if draw(flags))
        nodes[number] = MemoryNode(tables, group, draw(few))
    masks = st.integers(1, 63).map(lambda mask: mask & on.nodes_mask).filter(bool) if numbers else st.nothing()
    block = st.builds(MemoryBlock, masks, st.sampled_from(["memory", HUGE, "odd"]), sizes)
    held = st.dictionaries(st.tuples(uids, names), st.lists(block, max_size=2).map(tuple), max_size=3)
    return MemoryState(nodes, draw(held) if numbers else {})


@st.composite
def states(draw, on: Machine) -> KubeletState:
    resources, held = {}, {}
    place = st.none() | st.lists(st.integers(0, 7), max_size=2, unique=True).map(sorted).map(tuple)
    for name in draw(st.sets(st.sampled_from([GPU, NIC]))):
        devices = {id_: PluginDevice(id_, draw(flags), draw(place)) for id_ in "pqrst"[: draw(st.integers(0, 5))]}
        healthy = frozenset(id_ for id_, device in devices.items() if device.healthy)
        options = PluginOptions(draw(flags), draw(flags))
        resources[name] = PluginResource(devices, healthy, frozenset(devices) - healthy, draw(flags), options)
    for key in draw(st.lists(st.tuples(uids, names), max_size=3, unique=True)):
        taken = draw(st.sets(st.sampled_from("pqrstx"), min_size=1, max_size=2))
        held[key] = {draw(st.sampled_from([GPU, NIC, "gone.example/x"])): Allocation({0: tuple(taken)})}
    cpusets = st.integers(0, 2**16 - 1).map(lambda cpus: cpus & on.all_cpus)
    cpus = st.builds(CpuState, cpusets, cpusets, st.dictionaries(st.tuples(uids, names), cpusets, max_size=2))
    return KubeletState(DeviceManagerState(resources, held), draw(st.none() | cpus), draw(memories(on)))


@st.composite
def pods(draw) -> KubeletPod:
    containers = []
    for name in draw(st.sampled_from([["a"], ["a", "b"]])):
        amounts = {
            GPU: draw(few),
            NIC: draw(few),
            "gone.example/x": draw(st.integers(0, 1)),
            "cpu": draw(st.sampled_from([0, 500, 1000, 2000, 5000])),
            "memory": draw(sizes),
            HUGE: draw(sizes),
        }
        asked = {resource: amount for resource, amount in amounts.items() if resource == "memory" or draw(flags)}
        containers.append(KubeletContainer(name, draw(st.sampled_from(ContainerKind)), asked, asked))
    return KubeletPod(draw(uids), tuple(containers), draw(st.sampled_from([QosClass.GUARANTEED, QosClass.BURSTABLE])))


@examples(100)
@given(st.data())
def test_whatever_passes_can_be_predicted(data) -> None:
    hardware = data.draw(machines())
    text = encode(report_of(KubeletNode(data.draw(configs()), hardware), data.draw(states(hardware))))
    try:
        report = decode(text)
        on, state = node_of(report), state_of(report)
        check_coherence(on, state)
    except ReportError:
        return
    for pod in data.draw(st.lists(pods(), min_size=1, max_size=3)):
        active = data.draw(st.none() | st.sets(uids))
        try:
            state = finish(admit(on, state, pod, active), lambda ask: sorted(ask.available)[: ask.size]).state
        except KubeletStartError:
            return
