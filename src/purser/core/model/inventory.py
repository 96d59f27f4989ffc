"""What a node has: devices, what connects them and what holds their shares, pools of network devices; and the units of
all amounts."""

from enum import StrEnum
from typing import Annotated

import msgspec

from purser.core.device.slicing import Slicing
from purser.core.names import GPU_RESOURCE

NVIDIA = "nvidia"
"""The vendor of devices that Purser's own agents list."""

WHOLE_PERCENT = 100
"""All of a device's compute."""

WHOLE_MILLI = 1000
"""The same in thousandths, as traces and fleets count."""

Amount = Annotated[int, msgspec.Meta(ge=0, le=1 << 30)]
"""Of MiB, percent, slots: nothing is negative, and no sum of decoded amounts overflows the arrays' integers. Decoders
check this, constructors do not."""


class DeviceMode(StrEnum):
    """How a device is handed out."""

    WHOLE = "whole"
    SHARED = "shared"
    """By amounts of memory and compute."""
    TIME_SLICING = "time-slicing"
    """As equal parts, none of which is held to its share."""
    MPS = "mps"
    MIG = "mig"
    """A MIG device, whole; or a GPU that is cut into GPU instances on demand (`Device.mig_kind`)."""


class PcieLevel(StrEnum):
    """How far apart two devices are on PCIe, nearest first (nvmlDeviceGetTopologyCommonAncestor)."""

    SAME_BOARD = "same-board"
    SINGLE_SWITCH = "single-switch"
    MULTI_SWITCH = "multi-switch"
    HOST_BRIDGE = "host-bridge"
    SAME_CPU = "same-cpu"
    CROSS_CPU = "cross-cpu"


class Enforcement(StrEnum):
    """What holds containers to their shares of a device, or one container to its own."""

    NONE = "none"
    """Nothing: the limits are advisory. Of a device: its administrator wants it so; of a container: it does."""
    TIME_SLICING = "time-slicing"
    """The driver gives programs turns; it limits neither memory nor compute, so that the limits are advisory."""
    HAMI_CORE = "hami-core"
    """HAMi-core's preload library inside the container."""
    HAMI_CORE_MEMORY = "hami-core-memory"
    """The library holds the limit of memory; the container has switched that of compute off."""
    HAMI_CORE_ADVISORY = "hami-core-advisory"
    """The library is there, and variables that only kubelet resolves (``envFrom``) may lift its limits."""
    MPS = "mps"
    """The device's MPS daemon, and the CUDA driver as the daemon's client."""
    MPS_ADVISORY = "mps-advisory"
    """The same, and variables that only kubelet resolves may lift the limits."""
    MIG = "mig"
    """The device is a part of a GPU that the GPU itself keeps apart, and the container has it to itself."""
    VENDOR = "vendor"
    """What the device's own vendor brings, by its device plugin."""
    WHOLE_DEVICE = "whole-device"
    """The container has the device to itself; there is nothing to limit."""

    @property
    def has_library(self) -> bool:
        """Whether HAMi-core's library is in the container."""
        return self in (Enforcement.HAMI_CORE, Enforcement.HAMI_CORE_MEMORY, Enforcement.HAMI_CORE_ADVISORY)

    @property
    def is_advisory(self) -> bool:
        """Whether the container is limited only as long as it wants to be."""
        return self in _ADVISORY


_ADVISORY = frozenset(
    (Enforcement.NONE, Enforcement.TIME_SLICING, Enforcement.HAMI_CORE_ADVISORY, Enforcement.MPS_ADVISORY)
)


class Link(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What connects a device with one other device of the same node."""

    peer: str
    """uuid of the other device."""
    pcie: PcieLevel | None
    nvlinks: Amount = 0
    """Active NVLinks between the two, through an NVSwitch as well."""


class MigPlacement(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    """A GPU instance on its GPU."""

    profile: Annotated[str, msgspec.Meta(max_length=64)]
    start: Annotated[int, msgspec.Meta(ge=0, le=255)]
    """Its first memory slice."""


PcieSwitches = Annotated[
    tuple[Annotated[str, msgspec.Meta(max_length=32)], ...],
    msgspec.Meta(max_length=8),
]
"""The bridges above a device, from its root port down, by PCI address; without the port that it is plugged in, which no
device of another slot is below. Empty: it is below no switch, or that is not known."""


class PoolPlace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Devices of one pool that are under the same PCIe switch."""

    switches: PcieSwitches
    count: Amount
    """Without those that take no pods, and without those that containers hold of which no grant says so."""
    numa_node: int | None = None
    """As kubelet is told."""

    @property
    def id(self) -> str:
        """Of a node's places of one pool: the nearest switch; of devices below none their NUMA node."""
        if self.switches:
            return self.switches[-1]
        return "" if self.numa_node is None else f"numa-{self.numa_node}"


class NodePool(msgspec.Struct, frozen=True, gc=False):
    """An SR-IOV pool of a node."""

    resource: Annotated[str, msgspec.Meta(max_length=320)]
    """Of kubelet."""
    places: Annotated[tuple[PoolPlace, ...], msgspec.Meta(max_length=32)] = ()


class Device(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One physical or MIG device, as the node reports it."""

    uuid: str
    index: Amount
    """NVML's index, for people; never an identity."""
    model: str
    """Product name as NVML gives it."""
    memory_mib: Amount
    cores_percent: Amount = 100
    slots: Amount = 1
    """How many containers may hold a share of it at once; 1 where it is handed out whole."""
    numa_nodes: tuple[int, ...] = ()
    pci_bus_id: str = ""
    links: tuple[Link, ...] = ()
    mode: DeviceMode = DeviceMode.SHARED
    healthy: bool = True
    unhealthy_reason: str = ""
    degraded_reason: str = ""
    """What is wrong with it, in a sentence, although it takes new pods."""
    vendor: str = NVIDIA
    compute_capability: str = ""
    enforcement: Enforcement = Enforcement.NONE
    """What holds shares of it to their limits."""
    resource: str = GPU_RESOURCE
    """Of kubelet, under which it is listed."""
    parent: str = ""
    """uuid of its GPU, of a MIG device."""
    compute_slices: Amount = 0
    """Of a MIG device."""
    gpu_compute_slices: Amount = 0
    """Of its whole GPU. 0: agents of older versions do not say."""
    replicas: Annotated[int, msgspec.Meta(ge=1, le=1 << 30)] = 1
    """Into how many equal parts NVIDIA's device plugin would divide it (time-slicing, MPS). Where it is more than one a
    container takes whole parts, and there are as many slots. 1: amounts of it are handed out, or the whole."""
    one_each: bool = False
    """No container gets two parts, be they of two devices (``failRequestsGreaterThanOne``)."""
    packed: bool = False
    """Of several that are divided, which part goes first: of the one with the most taken, else of the one with the
    fewest (``sharedDevicesAllocationPolicy``)."""
    mig_kind: str = ""
    """Of a GPU that is cut into GPU instances on demand: the name of its `purser.core.mig.MigKind`. Containers get the
    instances that their grants name, as many as have places. Empty: the device is handed out as it is."""
    mig_held: Annotated[tuple[MigPlacement, ...], msgspec.Meta(max_length=16)] = ()
    """Instances of such a GPU that exist and that no grant made: the administrator's."""
    pcie: PcieSwitches = ()
    """Only nodes with SR-IOV pools say."""
    cores: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    """Of another vendor's, how many cores it has that are handed out by number; 0: they have no numbers."""
    ring: bool = False
    """Of another vendor's: the node's devices are linked in a row, and any so many neighbours will do."""
    slicing: Slicing | None = None
    """Of another vendor's that is divided by profiles; None: it is not."""
    soft_split: bool = False
    """Of another vendor's: a library of the node's can hold shares of any size."""

    @property
    def gpu_part(self) -> float:
        """Which part of a GPU's compute it is: 1, but for a MIG device whose slices are known."""
        return min(self.compute_slices / self.gpu_compute_slices, 1.0) if self.gpu_compute_slices else 1.0

    @property
    def is_mig(self) -> bool:
        """Whether containers get MIG devices of it, or parts of one, and not the GPU."""
        return bool(self.mig_kind or self.parent) or self.mode is DeviceMode.MIG

    @property
    def replica_mib(self) -> int:
        """The memory of one part."""
        return self.memory_mib // self.replicas

    @property
    def takes_amounts(self) -> bool:
        """Whether containers can have a share of it that they name by amounts of memory and compute."""
        return self.replicas == 1 and self.resource == GPU_RESOURCE


class PartitionedGpu(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A GPU in MIG mode whose MIG devices are listed, and not the GPU."""

    uuid: str
    model: str
    memory_mib: Amount
    """Of the whole GPU."""
    healthy: bool = True
    index: int | None = None
    """None: of an agent that does not say."""


class NodeInventory(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What one node has: the content of the node's inventory annotation."""

    node: str
    devices: tuple[Device, ...] = ()
    cut: Annotated[tuple[PartitionedGpu, ...], msgspec.Meta(max_length=256)] = ()
    """The GPUs that are there as MIG devices alone, or as none. Agents of older versions do not say."""
    enforcement: Enforcement = Enforcement.NONE
    """``hami-core`` where that holds shares of all devices, else ``none``: for schedulers that do not read it per
    device, and the only value that older agents wrote (see `purser.adapters.nodes`)."""
    driver_version: str = ""
    agent_version: str = ""
    cordoned: tuple[str, ...] = ()
    """uuids of devices that take no new grants. Agents do not know: it stands in annotations of the node's own."""
    pools: Annotated[tuple[NodePool, ...], msgspec.Meta(max_length=16)] = ()
    """Its SR-IOV pools that have devices."""
