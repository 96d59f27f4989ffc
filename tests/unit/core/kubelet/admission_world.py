"""A node with two NUMA nodes, four GPUs and eight CPUs on each, and pods for it."""

from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from purser.core.kubelet import cpumanager, memorymanager
from purser.core.kubelet.admission import admit
from purser.core.kubelet.asks import AdmissionOutcome, PreferredAllocation, finish
from purser.core.kubelet.config import (
    CpuPolicy,
    KubeletConfig,
    MemoryPolicy,
    TopologyOptions,
    TopologyPolicy,
    TopologyScope,
)
from purser.core.kubelet.cpuset import format_cpuset
from purser.core.kubelet.devicemanager import held_by, register, update
from purser.core.kubelet.machine import Cpu, Machine, NumaNode
from purser.core.kubelet.pod import KubeletContainer, KubeletPod, qos_class
from purser.core.kubelet.state import DeviceManagerState, KubeletNode, KubeletState, PluginDevice, PluginOptions
from purser.core.pod.manifest import ContainerKind

GPU = "nvidia.com/gpu"
NIC = "nvidia.com/nic"
GIB = 1 << 30


def node(
    policy: str = "restricted",
    scope: str = "container",
    version: str = "v1.36.2",
    *,
    numa_nodes: int = 2,
    cpus_per_node: int = 8,
    threads: int = 1,
    memory: bool = False,
    **config: object,
) -> KubeletNode:
    """One CPU (of NUMA node 0) and 1 GiB of memory are reserved; only the first two nodes hold anything."""
    options = TopologyOptions(max_allowable_numa_nodes=numa_nodes) if numa_nodes > 8 else TopologyOptions()
    kubelet = KubeletConfig(
        version,
        TopologyPolicy(policy),
        TopologyScope(scope),
        options,
        CpuPolicy.STATIC,
        reserved_cpu_millis=1000,
        memory_policy=MemoryPolicy.STATIC if memory else MemoryPolicy.NONE,
        reserved_memory={0: {"memory": GIB}} if memory else {},
    )
    cpus = tuple(
        Cpu(cpu, cpu // cpus_per_node, cpu // cpus_per_node, cpu // threads * threads)
        for cpu in range(2 * cpus_per_node)
    )
    numa = tuple(NumaNode(n, {"memory": 16 * GIB if n < 2 else 0}) for n in range(numa_nodes))
    return KubeletNode(replace(kubelet, **config), Machine(numa, cpus))


def devices(per_node: int = 4, resource: str = GPU, state: DeviceManagerState | None = None) -> DeviceManagerState:
    """Devices ``gpu-0-0`` (of NUMA node 0) and so on, of a plugin that wants to be asked."""
    short = resource.partition("/")[2]
    listed = [PluginDevice(f"{short}-{n}-{i}", numa_nodes=(n,)) for n in range(2) for i in range(per_node)]
    return update(
        register(state or DeviceManagerState(), resource, PluginOptions(preferred_allocation=True)), resource, listed
    )


def fresh(on: KubeletNode, state: DeviceManagerState | None = None) -> KubeletState:
    """The state of a node that runs nothing."""
    return KubeletState(
        devices() if state is None else state,
        cpumanager.start(on),
        memorymanager.start(on) if on.config.memory_policy is MemoryPolicy.STATIC else None,
    )


def container(
    name: str = "c",
    gpus: int = 0,
    cpus: int = 1,
    memory_gib: int = 1,
    kind: ContainerKind = ContainerKind.APP,
    **more: int,
) -> KubeletContainer:
    """A container of a Guaranteed pod."""
    amounts = {"cpu": 1000 * cpus, "memory": memory_gib * GIB} | ({GPU: gpus} if gpus else {}) | more
    return KubeletContainer(name, kind, amounts, amounts)


def pod(uid: str, *containers: KubeletContainer) -> KubeletPod:
    return KubeletPod(uid, containers, qos_class(containers))


def smallest(ask: PreferredAllocation) -> Iterable[str]:
    """A plugin's choice: what must be included, then by name."""
    return [*ask.must_include, *sorted(ask.available - ask.must_include)][: ask.size]


def decide(
    on: KubeletNode,
    state: KubeletState,
    one: KubeletPod,
    active: Collection[str] | None = (),
    running: Sequence[str] = (),
) -> AdmissionOutcome:
    """Admission without a plugin."""
    return finish(admit(on, state, one, active, running), smallest)


def gpus_of(state: KubeletState, uid: str, name: str = "c") -> list[str]:
    held = held_by(state.devices, (uid, name))
    return sorted(held[GPU].device_ids) if GPU in held else []


def cpus_of(state: KubeletState, uid: str, name: str = "c") -> str:
    assert state.cpus is not None
    return format_cpuset(state.cpus.exclusive.get((uid, name), 0))
