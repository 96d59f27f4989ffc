"""What the agent publishes of its kubelet: the twin's values come back as they were, whatever the text says."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.texts import any_text
from tests.tiers import examples

from purser.core.kubelet.config import (
    CpuOptions,
    CpuPolicy,
    KubeletConfig,
    MemoryPolicy,
    TopologyOptions,
    TopologyPolicy,
    TopologyScope,
)
from purser.core.kubelet.machine import Cpu, Machine, NumaNode
from purser.core.kubelet.report import (
    MAX_REPORT_BYTES,
    ReportError,
    aligns,
    compact_state,
    decode,
    encode,
    node_of,
    report_of,
    state_of,
)
from purser.core.kubelet.report.idlists import compact_ids, expand_ids
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

GPU = "nvidia.com/gpu"
GIB = 1 << 30

ids = st.one_of(
    st.builds("GPU-{}::{}".format, st.integers(0, 3), st.integers(0, 30)),
    st.builds("0000:{:02x}:00.{}".format, st.integers(0, 255), st.integers(0, 7)),
    any_text(max_size=8),
)
cpusets = st.integers(0, 2**40 - 1)
masks = st.integers(1, 2**34 - 1)
sizes = st.integers(0, 2**62)
numa = st.one_of(st.none(), st.lists(st.integers(0, 33), unique=True, max_size=3).map(sorted).map(tuple))
amounts = st.dictionaries(st.sampled_from(["memory", "hugepages-2Mi", "hugepages-1Gi"]), sizes)
keys = st.tuples(st.uuids().map(str), st.sampled_from(["main", "sidecar"]))
flags = st.booleans()


@st.composite
def configs(draw):
    return KubeletConfig(
        version=f"v1.{draw(st.integers(20, 36))}.3",
        topology_policy=draw(st.sampled_from(TopologyPolicy)),
        topology_scope=draw(st.sampled_from(TopologyScope)),
        topology_options=TopologyOptions(draw(flags), draw(st.integers(8, 64))),
        cpu_policy=draw(st.sampled_from(CpuPolicy)),
        cpu_options=CpuOptions(*(draw(flags) for _ in range(6))),
        reserved_cpus=draw(st.sampled_from(["", "0-1,8"])),
        reserved_cpu_millis=draw(st.integers(0, 9000)),
        memory_policy=draw(st.sampled_from(MemoryPolicy)),
        reserved_memory=draw(st.dictionaries(st.integers(0, 33), amounts, max_size=3)),
    )


@st.composite
def machines(draw):
    cpus = {}
    for number in draw(st.lists(st.integers(0, 200), unique=True, max_size=12)):
        small = st.integers(0, 3)
        cpus[number] = Cpu(number, draw(small), draw(small), draw(st.integers(0, number)), draw(small))
    nodes = [
        NumaNode(number, draw(amounts), tuple(draw(st.lists(st.integers(10, 255), max_size=4))))
        for number in sorted(draw(st.sets(st.integers(0, 33), max_size=5)))
    ]
    return Machine(tuple(nodes), tuple(cpus[number] for number in sorted(cpus)), draw(st.integers(0, 4)))


@st.composite
def states(draw, version):
    """What a report can carry: held devices are filed as kubelet files them, nothing is left over from failures."""
    nowhere = -1 if version >= (1, 23, 0) else 0
    resources = {}
    for name in draw(st.sets(st.sampled_from([GPU, "example.com/nic", "intel.com/qat"]))):
        devices = {i: PluginDevice(i, draw(flags), draw(numa)) for i in draw(st.lists(ids, unique=True, max_size=12))}
        healthy = frozenset(i for i, device in devices.items() if device.healthy)
        options = PluginOptions(draw(flags), draw(flags))
        resources[name] = PluginResource(devices, healthy, frozenset(devices) - healthy, draw(flags), options)
    held, allocated = {}, {}
    for key in draw(st.lists(keys, max_size=4, unique=True)):
        for name, resource in resources.items():
            listed = (
                st.lists(st.sampled_from(sorted(resource.devices)), unique=True) if resource.devices else st.just([])
            )
            gone = set(draw(st.lists(ids, max_size=1))) - set(resource.devices)
            per_numa = {}
            for i in sorted([*draw(listed), *gone]):
                device = resource.devices.get(i)
                for node in (device and device.numa_nodes) or (nowhere,):
                    per_numa.setdefault(node, []).append(i)
            one = Allocation({node: tuple(of) for node, of in sorted(per_numa.items())})
            held.setdefault(key, {})[name] = one
            allocated[name] = allocated.get(name, frozenset()) | one.device_ids
    cpus = CpuState(draw(cpusets), draw(cpusets), draw(st.dictionaries(keys, cpusets.filter(bool), max_size=3)))
    return KubeletState(
        DeviceManagerState(resources, held, allocated),
        draw(st.one_of(st.none(), st.just(cpus))),
        draw(st.one_of(st.none(), memories())),
    )


@st.composite
def memories(draw):
    tables = st.dictionaries(st.sampled_from(["memory", "hugepages-1Gi"]), st.builds(MemoryTable, *[sizes] * 5))
    nodes = draw(
        st.dictionaries(st.integers(0, 33), st.builds(MemoryNode, tables, masks, st.integers(0, 9)), max_size=3)
    )
    blocks = st.lists(st.builds(MemoryBlock, masks, st.just("memory"), sizes), max_size=2).map(tuple)
    return MemoryState(nodes, draw(st.dictionaries(keys, blocks, max_size=3)))


@examples(40)
@given(st.data())
def test_what_is_reported_comes_back_exactly(data):
    node = KubeletNode(data.draw(configs()), data.draw(machines()))
    state = data.draw(states(node.config.parsed_version))
    text = encode(report_of(node, state))
    report = decode(text)
    assert node_of(report) == node
    assert state_of(report) == state
    assert encode(report_of(node_of(report), state_of(report))) == text


@examples(100)
@given(st.lists(ids, max_size=60))
def test_ids_are_only_written_shorter(found):
    assert sorted(expand_ids(compact_ids(found), 1000)) == sorted(set(found))


def shape(state: KubeletState):
    """How many devices of which kind each container holds of each resource, and how many nobody does."""
    counts = {}
    for name, resource in state.devices.resources.items():
        holder = {i: key for key, held in state.devices.held.items() if name in held for i in held[name].device_ids}
        for i, device in resource.devices.items():
            what = (name, device.numa_nodes, i in resource.healthy, holder.get(i))
            counts[what] = counts.get(what, 0) + 1
    return counts


@examples(60)
@given(st.data())
def test_anonymous_devices_are_as_many_as_before_and_held_by_the_same(data):
    state = data.draw(states((1, 36, 2)))
    hidden = compact_state(state, keep={GPU})
    assert shape(hidden) == shape(state)
    assert hidden.devices.resources.get(GPU) == state.devices.resources.get(GPU)
    assert {k: {n: len(a.device_ids) for n, a in of.items()} for k, of in hidden.devices.held.items()} == {
        k: {n: len(a.device_ids) for n, a in of.items()} for k, of in state.devices.held.items()
    }
    node = KubeletNode(KubeletConfig(), Machine())
    assert state_of(report_of(node, hidden)) == hidden


def test_a_common_node_has_a_short_report():
    """Two sockets of 64 cores with two threads, eight cards in ten slots each."""
    cpus = tuple(Cpu(n, n % 128 // 64, n % 128 // 64, n % 128, n % 128 // 8) for n in range(256))
    machine = Machine(tuple(NumaNode(n, {"memory": 512 * GIB}, (10, 20)) for n in (0, 1)), cpus, 2)
    uuids = [f"GPU-{n:08d}-aaaa-bbbb-cccc-123456789abc" for n in range(8)]
    devices = {f"{u}::{s}": PluginDevice(f"{u}::{s}", True, (n // 4,)) for n, u in enumerate(uuids) for s in range(10)}
    state = KubeletState(
        DeviceManagerState({GPU: PluginResource(devices, frozenset(devices), is_listed=True)}),
        CpuState(machine.all_cpus, 1),
    )
    node = KubeletNode(KubeletConfig(cpu_policy=CpuPolicy.STATIC), machine)
    assert len(encode(report_of(node, state))) < 2048


def test_a_kubelet_that_aligns_nothing_reports_its_configuration_only():
    config = KubeletConfig(version="v1.30.1", reserved_cpu_millis=500)
    report = report_of(KubeletNode(config, Machine(cpus=(Cpu(0, 0, 0, 0),))))
    assert not aligns(config)
    assert decode(encode(report)) == report
    assert node_of(report) == KubeletNode(config, Machine())
    assert state_of(report) == KubeletState()


def test_a_kubelet_that_aligns_cannot_be_predicted_by_its_configuration_alone():
    report = report_of(KubeletNode(KubeletConfig(topology_policy=TopologyPolicy.RESTRICTED), Machine()))
    with pytest.raises(ReportError, match="cannot be predicted"):
        node_of(decode(encode(report)))


@pytest.mark.parametrize(
    "config",
    [
        KubeletConfig(topology_policy=TopologyPolicy.BEST_EFFORT),
        KubeletConfig(cpu_policy=CpuPolicy.STATIC),
        KubeletConfig(memory_policy=MemoryPolicy.STATIC),
    ],
)
def test_any_manager_with_a_policy_aligns(config):
    assert aligns(config)


def test_the_version_is_written_whatever_the_default_is():
    assert '"version":"v1.36.2"' in encode(report_of(KubeletNode(KubeletConfig(), Machine())))


def text_with(**changes) -> str:
    body = {"format": 1, "version": "v1.30.0", "config": {}} | changes
    return msgspec.json.encode(body).decode()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "kubelet report", id="empty"),
        pytest.param("[]", "kubelet report", id="a list"),
        pytest.param(b"\xff", "kubelet report", id="no UTF-8"),
        pytest.param("[" * 100_000, "kubelet report", id="deep"),
        pytest.param(" " * (MAX_REPORT_BYTES + 1), f"more than the maximum of {MAX_REPORT_BYTES}", id="too long"),
        pytest.param(text_with(format=2), "format 2, but only format 1 is", id="of the future"),
        pytest.param(text_with(version="newest"), "not a kubelet version", id="no version"),
        pytest.param(text_with(config={"topology_policy": "strict"}), "kubelet report", id="unknown policy"),
    ],
)
def test_a_text_that_is_no_report_is_an_error(text, message):
    with pytest.raises(ReportError, match=message):
        decode(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"resources": {"a/b": {"groups": [[None, True, [["x", "0-999999"]]]]}}}, "too many", id="many"),
        pytest.param({"held": [["u", f"c{n}", {"a/b": [["x", "0-65535"]]}] for n in range(9)]}, "too many", id="held"),
        pytest.param({"held": [["u", "c", {"a/b": [["x", "7-3"]]}]]}, "not a range", id="a backward range"),
        pytest.param({"held": [["u", "c", {"a/b": [["x", "1,,2"]]}]]}, "not a range", id="an empty range"),
        pytest.param({"resources": {"a/b": {"groups": [[[9999], True, []]]}}}, "NUMA node 9999", id="node"),
        pytest.param({"cpus": {"default": "0-99999", "reserved": ""}}, "CPU list", id="many CPUs"),
        pytest.param({"memory": [[0, [-1], 0, {}]]}, "NUMA node -1", id="a negative node"),
    ],
)
def test_a_report_that_makes_no_sense_is_an_error_and_costs_nothing(changes, message):
    report = decode(text_with(**changes))
    with pytest.raises(ReportError, match=message):
        state_of(report)


@pytest.mark.parametrize(
    "group",
    [
        pytest.param([0, 0, 0, "0-3", [[0, 3]]], id="fewer cores than CPUs"),
        pytest.param([0, 0, 0, "0-3", [[0, 10**12], [0, 4 - 10**12]]], id="endless runs that cancel out"),
        pytest.param([5000, 0, 0, "0", [[0, 1]]], id="an impossible NUMA node"),
        pytest.param([0, 0, 0, "zero", [[0, 1]]], id="no CPU list"),
    ],
)
def test_a_machine_that_makes_no_sense_is_an_error(group):
    report = decode(text_with(machine={"numa_nodes": [], "cpus": [group], "num_sockets": 1}))
    with pytest.raises(ReportError):
        node_of(report)
