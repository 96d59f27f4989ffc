"""Random machines, kubelets and cards."""

from random import Random
from typing import NamedTuple

import msgspec

from purser.core.device.ids import device_ids
from purser.core.kubelet import cpumanager, memorymanager
from purser.core.kubelet.config import (
    CpuOptions,
    CpuPolicy,
    KubeletConfig,
    MemoryPolicy,
    TopologyOptions,
    TopologyPolicy,
    TopologyScope,
)
from purser.core.kubelet.devicemanager import register, update
from purser.core.kubelet.errors import KubeletStartError
from purser.core.kubelet.machine import Cpu, Machine, NumaNode
from purser.core.kubelet.state import DeviceManagerState, KubeletNode, KubeletState, PluginDevice, PluginOptions
from purser.core.kubelet.versions import Behaviour, behaviour
from purser.core.model import Device, DeviceMode, NodeInventory
from purser.core.names import GPU_RESOURCE

NIC_RESOURCE = "example.com/nic"
NODE = "n"
GIB = 1 << 30
CARD_MIB = 40000

_NOT_TOGETHER = (
    {"full_pcpus_only", "distribute_cpus_across_cores"},
    {"distribute_cpus_across_numa", "distribute_cpus_across_cores"},
    {"prefer_align_cpus_by_uncorecache", "distribute_cpus_across_cores"},
    {"prefer_align_cpus_by_uncorecache", "distribute_cpus_across_numa"},
)


class Hardware(NamedTuple):
    """A node on which nothing runs yet."""

    node: KubeletNode
    state: KubeletState
    inventory: NodeInventory


def hardware(rng: Random) -> Hardware:
    """A node whose kubelet starts."""
    machine = _machine(rng)
    while True:
        node = KubeletNode(_config(rng, machine), machine)
        try:
            cpus = cpumanager.start(node)
            memory = memorymanager.start(node) if node.config.memory_policy is MemoryPolicy.STATIC else None
        except KubeletStartError:
            continue
        inventory = _inventory(rng, machine)
        return Hardware(node, KubeletState(_plugins(rng, inventory, machine), cpus, memory), inventory)


def _machine(rng: Random) -> Machine:
    count, threads = rng.choice((1, 2, 2, 2, 3, 4)), rng.choice((1, 2))
    per_node = threads * rng.randint(2 // threads, 16 // threads)
    per_socket = 2 if count % 2 == 0 and rng.random() < 0.3 else 1
    uncores = rng.choice((1, 2))
    cpus = []
    for number in range(count * per_node):
        numa, place = divmod(number, per_node)
        core = number - place % threads
        uncore = numa * uncores + place * uncores // per_node
        cpus.append(Cpu(number, numa, numa // per_socket, core, uncore))
    if threads == 2 and rng.random() < 0.5:
        cpus = _siblings_last(cpus)
    numa_nodes = tuple(NumaNode(n, _memory(rng), _distances(n, count)) for n in range(count))
    return Machine(numa_nodes, tuple(cpus), -(-count // per_socket))


def _siblings_last(cpus: list[Cpu]) -> list[Cpu]:
    """As Linux numbers them: first threads of all cores, then all second ones."""
    half = len(cpus) // 2
    numbers = {cpu.cpu: cpu.cpu // 2 + (half if cpu.cpu % 2 else 0) for cpu in cpus}
    renamed = [msgspec.structs.replace(cpu, cpu=numbers[cpu.cpu], core=numbers[cpu.core]) for cpu in cpus]
    return sorted(renamed, key=lambda cpu: cpu.cpu)


def _memory(rng: Random) -> dict[str, int]:
    hugepages = {"hugepages-2Mi": rng.randint(1, 4) * GIB} if rng.random() < 0.2 else {}
    return {"memory": rng.randint(6, 32) * GIB, **hugepages}


def _distances(node: int, count: int) -> tuple[int, ...]:
    return tuple(10 if node == other else 12 + 9 * (node // 2 != other // 2) for other in range(count))


def _config(rng: Random, machine: Machine) -> KubeletConfig:
    version = f"v1.{rng.randint(20, 36)}.{rng.choice((0, 2, 5, 12))}"
    rules = behaviour(KubeletConfig(version).parsed_version)
    by_name = rng.random() < 0.3
    static_memory = rules.has_memory_manager and rng.random() < 0.4
    return KubeletConfig(
        version,
        rng.choice(list(TopologyPolicy)),
        rng.choice(list(TopologyScope)),
        TopologyOptions(prefer_closest_numa_nodes=rules.has_policy_options and rng.random() < 0.3),
        CpuPolicy.STATIC if rng.random() < 0.75 else CpuPolicy.NONE,
        _cpu_options(rng, rules),
        reserved_cpus="0" if by_name else "",
        reserved_cpu_millis=0 if by_name else rng.choice((500, 1000, 1500)),
        memory_policy=MemoryPolicy.STATIC if static_memory else MemoryPolicy.NONE,
        reserved_memory={rng.choice(machine.numa_nodes).node: {"memory": GIB}} if static_memory else {},
    )


def _cpu_options(rng: Random, rules: Behaviour) -> CpuOptions:
    known = sorted(rules.cpu_policy_options)
    chosen = {name.replace("-", "_") for name in known if rng.random() < 0.2}
    for pair in _NOT_TOGETHER:
        if pair <= chosen:
            chosen -= pair
    return CpuOptions(**dict.fromkeys(chosen, True))


def _inventory(rng: Random, machine: Machine) -> NodeInventory:
    slots = rng.choice((1, 1, 2, 3, 4))
    mode = DeviceMode.WHOLE if slots == 1 else DeviceMode.SHARED
    places = _places(rng, machine, rng.randint(1, 8))
    devices = tuple(
        Device(
            f"GPU-{'abcdefgh'[index]}",
            index,
            "NVIDIA",
            CARD_MIB,
            slots=slots,
            numa_nodes=numa_nodes,
            mode=mode,
            healthy=rng.random() > 0.03,
        )
        for index, numa_nodes in enumerate(places)
    )
    cordoned = tuple(device.uuid for device in devices if rng.random() < 0.03)
    return NodeInventory(NODE, devices, cordoned=cordoned)


def _places(rng: Random, machine: Machine, count: int) -> list[tuple[int, ...]]:
    """The NUMA nodes of devices: in equal blocks as on most machines, anywhere, or unknown."""
    nodes = [numa.node for numa in machine.numa_nodes]
    kind = rng.random()
    if kind < 0.05:
        return [()] * count
    if kind < 0.7:
        return [(nodes[place * len(nodes) // count],) for place in range(count)]
    found = [(rng.choice(nodes),) for _ in range(count)]
    if kind > 0.95:
        found[0] = tuple(nodes[:2])
    return sorted(found)


def _plugins(rng: Random, inventory: NodeInventory, machine: Machine) -> DeviceManagerState:
    cards = [
        PluginDevice(id_, device.healthy, device.numa_nodes or None)
        for device in inventory.devices
        for id_ in device_ids(device)
    ]
    asks = PluginOptions(pre_start_required=True, preferred_allocation=True)
    state = update(register(DeviceManagerState(), GPU_RESOURCE, asks), GPU_RESOURCE, cards)
    if rng.random() < 0.6:
        return state
    places = _places(rng, machine, rng.randint(1, 4))
    nics = [PluginDevice(f"nic{n}", True, numa_nodes or None) for n, numa_nodes in enumerate(places)]
    return update(register(state, NIC_RESOURCE, PluginOptions()), NIC_RESOURCE, nics)
