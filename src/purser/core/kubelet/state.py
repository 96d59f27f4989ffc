"""What a node's kubelet has, knows and has given away. Every value is immutable: a change makes a new one."""

from collections.abc import Mapping

import msgspec

from purser.core.kubelet.config import KubeletConfig
from purser.core.kubelet.cpuset import CpuSet
from purser.core.kubelet.hints import Hint
from purser.core.kubelet.machine import Machine
from purser.core.kubelet.masks import Mask

ContainerKey = tuple[str, str]
"""(pod uid, container name)."""


class KubeletNode(msgspec.Struct, frozen=True):
    """What does not change while kubelet runs."""

    config: KubeletConfig
    machine: Machine


class PluginDevice(msgspec.Struct, frozen=True, gc=False):
    """One device as listed by ListAndWatch."""

    id: str
    healthy: bool = True
    numa_nodes: tuple[int, ...] | None = None
    """None: no topology at all; empty: a topology without nodes. Kubelets before 1.22 distinguish the two."""


class PluginOptions(msgspec.Struct, frozen=True):
    """What a plugin wants to be asked."""

    pre_start_required: bool = False
    preferred_allocation: bool = False


class PluginResource(msgspec.Struct, frozen=True):
    """One resource of a device plugin."""

    devices: Mapping[str, PluginDevice] = {}
    healthy: frozenset[str] = frozenset()
    unhealthy: frozenset[str] = frozenset()
    is_listed: bool = False
    """Whether the first list came, or the checkpoint named the resource: only then has the node a capacity of it."""
    options: PluginOptions = PluginOptions()
    stopped_at: float | None = None
    """When its plugin went away; None while there is one."""


class Allocation(msgspec.Struct, frozen=True):
    """What one container holds of one resource."""

    devices_per_numa: Mapping[int, tuple[str, ...]]
    """A device on two NUMA nodes stands under both; for one without a node see `versions.Behaviour`."""
    response: bytes = b""
    """The plugin's serialized ContainerAllocateResponse."""

    @property
    def device_ids(self) -> frozenset[str]:
        """Every device, once."""
        return frozenset(id_ for ids in self.devices_per_numa.values() for id_ in ids)


class DeviceManagerState(msgspec.Struct, frozen=True):
    """The device manager's."""

    resources: Mapping[str, PluginResource] = {}
    held: Mapping[ContainerKey, Mapping[str, Allocation]] = {}
    allocated: Mapping[str, frozenset[str]] = {}
    """Devices that count as taken, by resource: those held, and those that a failed admission left behind until the
    next count."""
    removed: frozenset[str] = frozenset()
    """Resources whose plugin stayed away for too long: the node says 0 of them."""


class CpuState(msgspec.Struct, frozen=True):
    """The CPU manager's, policy static."""

    default: CpuSet
    """The shared pool, reserved CPUs included unless strict-cpu-reservation is on."""
    reserved: CpuSet
    exclusive: Mapping[ContainerKey, CpuSet] = {}


class MemoryBlock(msgspec.Struct, frozen=True):
    """What one container holds of one kind of memory."""

    nodes: Mask
    resource: str
    """``memory`` or ``hugepages-<size>``."""
    size: int
    """Bytes."""


class MemoryTable(msgspec.Struct, frozen=True):
    """One kind of memory on one NUMA node, in bytes."""

    total: int
    system_reserved: int
    allocatable: int
    reserved: int
    free: int


class MemoryNode(msgspec.Struct, frozen=True):
    """One NUMA node as the memory manager sees it."""

    tables: Mapping[str, MemoryTable]
    group: Mask
    """The nodes that allocations here span; its own bit alone while it is used alone or not at all."""
    assignments: int = 0


class MemoryState(msgspec.Struct, frozen=True):
    """The memory manager's, policy Static."""

    nodes: Mapping[int, MemoryNode]
    blocks: Mapping[ContainerKey, tuple[MemoryBlock, ...]] = {}


class KubeletState(msgspec.Struct, frozen=True):
    """Everything that admission reads and changes."""

    devices: DeviceManagerState = DeviceManagerState()
    cpus: CpuState | None = None
    """None: policy none."""
    memory: MemoryState | None = None
    """None: policy None."""
    hints: Mapping[ContainerKey, Hint] = {}
    """The topology manager's merged hint of each container that was aligned."""
