"""The report out of what was read."""

import msgspec
import pytest

from purser.agent.inventory.building import KubeletDevice
from purser.agent.kubelet.facts.assembling import assemble
from purser.agent.kubelet.facts.reading import Found
from purser.core.kubelet.config import CpuPolicy, KubeletConfig, MemoryPolicy, TopologyPolicy
from purser.core.kubelet.devicemanager.checkpoint import DeviceManagerCheckpoint
from purser.core.kubelet.machine import Cpu, Machine, NumaNode
from purser.core.kubelet.memorymanager import start as start_memory
from purser.core.kubelet.report import MAX_REPORT_BYTES, ReportError, decode, node_of, state_of
from purser.core.kubelet.state import Allocation, CpuState, KubeletNode, KubeletState, PluginDevice

GPU, NIC, FPGA = "nvidia.com/gpu", "example.com/nic", "example.com/fpga"
GIB = 1 << 30
CONFIG = KubeletConfig(
    version="v1.33.0",
    topology_policy=TopologyPolicy.RESTRICTED,
    cpu_policy=CpuPolicy.STATIC,
    reserved_cpu_millis=1000,
    memory_policy=MemoryPolicy.STATIC,
    reserved_memory={0: {"memory": GIB}},
)
MACHINE = Machine(
    (NumaNode(0, {"memory": 8 * GIB}), NumaNode(1, {"memory": 8 * GIB})),
    tuple(Cpu(n, n // 4, n // 4, n) for n in range(8)),
    2,
)
MEMORY = start_memory(KubeletNode(CONFIG, MACHINE))
HELD = {("uid", "main"): {GPU: Allocation({1: ("GPU-b::0",)}, b"x"), FPGA: Allocation({-1: ("f7",)})}}
SAVED = DeviceManagerCheckpoint(HELD, {GPU: ("GPU-a::0", "GPU-a::1"), NIC: ("n0", "n1"), FPGA: ("f7", "f8")})
ALLOCATABLE = {NIC: {"n0": (0,), "n1": (0, 1), "n2": (1,)}, FPGA: {"f7": None, "f8": None, "f9": None}}
OWN = (
    KubeletDevice("GPU-a::0", True, (0,)),
    KubeletDevice("GPU-a::1", True, (0,)),
    KubeletDevice("GPU-b::0", False, (1,)),
)


def found(**changes) -> Found:
    cpus = CpuState(default=0b11111101, reserved=0, exclusive={("uid", "main"): 0b10})
    return msgspec.structs.replace(Found(CONFIG, MACHINE, SAVED, cpus, MEMORY), **changes)


def state_from(what: Found) -> KubeletState:
    return state_of(decode(assemble(what, ALLOCATABLE, OWN).text))


def test_everything_that_was_read_is_in_the_report():
    assembled = assemble(found(), ALLOCATABLE, OWN)
    report = decode(assembled.text)
    assert assembled.problems == {}
    assert node_of(report) == KubeletNode(CONFIG, MACHINE)
    state = state_of(report)
    assert state.cpus == CpuState(0b11111101, reserved=0b1, exclusive={("uid", "main"): 0b10})
    assert state.memory == MEMORY
    assert state.devices.held["uid", "main"][GPU] == Allocation({1: ("GPU-b::0",)})


def test_health_is_what_kubelet_says_and_numa_nodes_are_what_the_best_source_says():
    resources = state_from(found()).devices.resources
    assert resources[GPU].devices == {
        "GPU-a::0": PluginDevice("GPU-a::0", True, (0,)),
        "GPU-a::1": PluginDevice("GPU-a::1", True, (0,)),
        "GPU-b::0": PluginDevice("GPU-b::0", False, (1,)),
    }
    assert resources[GPU].options.preferred_allocation
    assert resources[NIC].devices == {
        "n0": PluginDevice("n0", True, (0,)),
        "n1": PluginDevice("n1", True, (0, 1)),
        "n2": PluginDevice("n2", False, (1,)),
    }


def test_devices_without_a_numa_node_are_counted_without_their_names():
    devices = state_from(found()).devices
    assert [sorted(devices.resources[FPGA].healthy), sorted(devices.resources[FPGA].unhealthy)] == [["1", "2"], ["0"]]
    [held] = devices.held["uid", "main"][FPGA].device_ids
    assert held in devices.resources[FPGA].healthy


def test_an_old_kubelet_lists_numa_nodes_of_allocated_devices_only():
    held = {("uid", "main"): {NIC: Allocation({0: ("n0",), 1: ("n0",)})}}
    old = found(devices=DeviceManagerCheckpoint(held, {NIC: ("n0", "n1")}))
    devices = state_of(decode(assemble(old, {}, ()).text)).devices.resources[NIC].devices
    assert {id_: device.numa_nodes for id_, device in devices.items()} == {"n0": (0, 1), "n1": None}


def test_a_kubelet_that_aligns_nothing_is_its_configuration():
    config = KubeletConfig(version="v1.33.0")
    assembled = assemble(found(config=config), ALLOCATABLE, OWN)
    assert node_of(decode(assembled.text)) == KubeletNode(config, Machine())
    assert state_of(decode(assembled.text)) == KubeletState()


def test_nothing_is_reported_without_a_configuration():
    assembled = assemble(Found(problems={"config": "no such file"}), {}, ())
    assert (assembled.text, assembled.problems) == ("", {"config": "no such file"})


@pytest.mark.parametrize(
    ("changes", "part", "message"),
    [
        pytest.param({"cpus": CpuState(0b1, 0)}, "cpus", "current set of available CPUs", id="CPUs that were added"),
        pytest.param(
            {"memory": start_memory(KubeletNode(CONFIG, Machine((NumaNode(0, {"memory": 8 * GIB}),))))},
            "memory",
            "different from the real one",
            id="a NUMA node that was added",
        ),
    ],
)
def test_with_a_state_file_of_another_machine_nothing_can_be_predicted(changes, part, message):
    assembled = assemble(found(**changes), ALLOCATABLE, OWN)
    assert message in assembled.problems[part]
    cannot_be_predicted(assembled.text)


@pytest.mark.parametrize("part", ["machine", "devices", "cpus", "memory"])
def test_without_a_part_that_is_needed_nothing_can_be_predicted(part):
    """Pods that hold something of it would count as on their way for ever."""
    assembled = assemble(found(**{part: None}, problems={part: "x"}), ALLOCATABLE, OWN)
    assert assembled.problems == {part: "x"}
    assert decode(assembled.text).config == CONFIG
    cannot_be_predicted(assembled.text)


def cannot_be_predicted(text: str) -> None:
    with pytest.raises(ReportError, match="cannot be predicted"):
        node_of(decode(text))
    assert state_of(decode(text)) == KubeletState()


def test_ten_thousand_named_devices_lose_their_names_before_the_text_is_too_long():
    names = {f"{n * 2654435761 % 2**32:08x}-{n % 7}a": (n % 2,) for n in range(10_000)}
    big = found(devices=DeviceManagerCheckpoint({}, {NIC: tuple(names), GPU: ("GPU-a::0",)}))
    assembled = assemble(big, {NIC: names}, OWN)
    assert assembled.problems == {}
    assert len(assembled.text) < MAX_REPORT_BYTES
    resources = state_of(decode(assembled.text)).devices.resources
    on_node_1 = [device for device in resources[NIC].devices.values() if device.numa_nodes == (1,)]
    assert (len(resources[NIC].devices), len(on_node_1)) == (10_000, 5_000)
    assert "GPU-a::0" in resources[GPU].devices


def test_the_length_of_a_text_is_that_in_bytes():
    held = {(f"uid-{n}", "\u00e9" * 100): {NIC: Allocation({0: ("n0",)})} for n in range(600)}
    assembled = assemble(found(devices=DeviceManagerCheckpoint(held, {NIC: ("n0",)})), ALLOCATABLE, OWN)
    assert "so only the configuration" in assembled.problems["devices"]
    decode(assembled.text)


def test_what_is_too_long_all_the_same_is_not_published():
    held = {(f"uid-{n}", "c" * 300): {NIC: Allocation({0: ("n0",)})} for n in range(1000)}
    assembled = assemble(found(devices=DeviceManagerCheckpoint(held, {NIC: ("n0",)})), ALLOCATABLE, OWN)
    assert "so only the configuration" in assembled.problems["devices"]
    assert state_of(decode(assembled.text)) == KubeletState()
