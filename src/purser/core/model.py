"""The nouns of the kernel: devices, requests, grants.

All are frozen msgspec Structs: they decode with field-level errors at the rim and need no further validation inside.
What there is one of per device or node is left out of garbage collection: it holds no cycles, and there are thousands.
Memory is in MiB, compute in percent of one device (100 = the whole GPU). Devices are identified by uuid, never by
index.
"""

from enum import StrEnum
from typing import Annotated

import msgspec

from purser.core.device.slicing import SliceAsk, Slicing
from purser.core.kubelet.pod import KubeletPod
from purser.core.names import GPU_RESOURCE
from purser.core.pod.manifest import ContainerKind as ContainerKind

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


class LibraryHold(StrEnum):
    """How much of a container's limits its own spec lets be held by what runs in the container: HAMi-core's library, or
    the CUDA driver as a client of MPS."""

    FULL = "full"
    MEMORY = "memory"
    """Not those of compute, by the library."""
    ADVISORY = "advisory"
    """Whatever variables leave that only kubelet sees."""
    OFF = "off"
    """None: it asks not to be limited."""


class SpecHold(msgspec.Struct, frozen=True):
    """What a container's own spec lets hold it to its share."""

    limits: LibraryHold = LibraryHold.FULL
    by_mps: bool = True
    """Whether it can be a client of MPS: not with a volume of its own at /dev/shm, which hides the daemon's memory."""


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


class GpuNic(StrEnum):
    """How much a container that asks for GPUs and for devices of an SR-IOV pool wants them under one PCIe switch."""

    PREFERRED = "preferred"
    """As many as there are."""
    REQUIRED = "required"
    """As many as it asks for both, or the node does not fit."""


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


class DeviceRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one container asks of its node's devices.

    Exactly one of ``memory_mib`` and ``memory_percent`` is set; both are per device. Of a device that is divided into
    equal parts (`Device.replicas`) only a request for devices without amounts gets any, a part for each.
    """

    count: int
    """How many distinct devices, or parts."""
    memory_mib: int | None = None
    memory_percent: int | None = None
    """1 to 100, of the memory of whichever device is chosen."""
    cores_percent: int = 0
    """Per device. 0: no limit and nothing counted; 100: the device alone; more is 100, as in HAMi's ``Fit``."""
    models_allowed: tuple[str, ...] = ()
    """Case-insensitive substrings of the model, any of which must occur; empty: any model."""
    models_denied: tuple[str, ...] = ()
    uuids_allowed: tuple[str, ...] = ()
    """Empty: any device."""
    uuids_denied: tuple[str, ...] = ()
    uuids_required: tuple[str, ...] = ()
    """Devices that must be among the chosen: those that kubelet would take in any case."""
    numa_bind: bool = False
    """All devices of the container on one NUMA node, or no placement."""
    linked: tuple[tuple[int, ...], ...] = ()
    """Devices that go together, by index: the container gets whole groups of these, or no placement. Empty: any."""
    alike: str = ""
    """What shares of one device must have in common, as their size: none of another word, or of none, is beside it.
    Empty: it goes with those that have no word either. Words with the same text before a colon can be together."""
    joins: tuple[str, ...] = ()
    """Other words that it may come to, whatever these have of the compute."""
    slices: SliceAsk | None = None
    """Of devices that are divided by profiles of their node's (`Device.slicing`), beside which amounts are 0."""
    soft_split: bool = False
    """Only of devices with `Device.soft_split`."""
    modes_allowed: tuple[DeviceMode, ...] = ()
    """Empty: any mode."""
    resource: str = GPU_RESOURCE
    """Of kubelet, under which the devices are listed."""
    held_by: tuple[Enforcement, ...] = ()
    """What must hold shares of the devices, any of these, unless they are its own alone; empty: nothing need."""
    mig_profiles: tuple[str, ...] = ()
    """Of GPUs that are cut on demand, for amounts: MIG profiles (``4g.20gb``) or their compute slices (``4g``), the
    best first. Those that have too little, or that a GPU does not offer, are passed over. Empty: the smallest."""

    def __post_init__(self) -> None:
        if self.cores_percent > WHOLE_PERCENT:
            msgspec.structs.force_setattr(self, "cores_percent", WHOLE_PERCENT)

    def excludes(self, uuid: str) -> bool:
        """Whether the request's UUIDs rule the device out."""
        return uuid in self.uuids_denied or (bool(self.uuids_allowed) and uuid not in self.uuids_allowed)

    @property
    def is_whole(self) -> bool:
        """Whether the container asks for its devices alone."""
        return self.cores_percent >= WHOLE_PERCENT

    @property
    def is_plain(self) -> bool:
        """Whether it asks for devices, and names no amounts."""
        return self.is_whole and self.memory_percent == WHOLE_PERCENT


class ContainerRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """One container of a pod that asks for devices."""

    name: str
    kind: ContainerKind
    devices: DeviceRequest
    hold: SpecHold = SpecHold()
    beside: tuple[tuple[str, int], ...] = ()
    """What it asks for of resources that may be SR-IOV pools, by name."""
    pool_numa_nodes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """By SR-IOV pool, the NUMA nodes of which kubelet would take its devices. A pool that is not here: of any."""


class NodePolicy(StrEnum):
    """Which of the nodes that fit is best; several can be weighed (`purser.core.policy.words`)."""

    RANDOM = "random"
    BINPACK = "binpack"
    SPREAD = "spread"
    BEST_FIT = "best-fit"
    DOT_PRODUCT = "dot-product"
    PACKING = "packing"
    CLUSTERING = "clustering"
    FRAGMENTATION = "fragmentation"
    PURSER = "purser"


class GpuPolicy(StrEnum):
    """One word of the chain that orders, filters or names a node's devices."""

    BINPACK = "binpack"
    SPREAD = "spread"
    MUTEX = "mutex"
    NUMA = "numa"
    TOPOLOGY_AWARE = "topology-aware"
    RANDOM = "random"
    BEST_FIT = "best-fit"
    FRAGMENTATION = "fragmentation"
    PURSER = "purser"


class ScoreWeights(msgspec.Struct, frozen=True):
    """Weights of slots, compute and memory in a device's score."""

    slot: int = 1
    core: int = 1
    memory: int = 1


class PodRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a pod asks for: only the containers that ask for devices, in kubelet's order (init and sidecars first)."""

    uid: str
    namespace: str
    name: str
    containers: tuple[ContainerRequest, ...]
    node_policy: str = ""
    """As `purser.core.policy.words.canonical_node_policy` writes it; empty: the scheduler's default."""
    gpu_policy: tuple[GpuPolicy, ...] = ()
    """Empty: the scheduler's default."""
    weights: ScoreWeights = ScoreWeights()
    priority: int = 0
    kubelet_pod: KubeletPod | None = None
    """The pod as its node's kubelet will see it; None where kubelet's admission is not predicted."""
    cpu_milli: int = 0
    """Of the whole pod, as kube-scheduler counts; for policies, 0 where it cannot be read."""
    memory_mib: int = 0
    """The same."""
    systems: tuple[str, ...] = ()
    """In whose words its containers ask, beside NVIDIA's own: keys of `purser.core.dialects.SHARING`, or a family of
    other vendors' devices."""
    family: str = ""
    """Of other vendors' devices, the resource that their family is known by."""
    gpu_nic: GpuNic | None = None
    """None: no container asks for GPUs and for what may be a pool, or it is not looked at which are near which."""

    @property
    def key(self) -> str:
        """The pod, as informers key it."""
        return f"{self.namespace}/{self.name}"


class DeviceShare(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of one device: what one container holds of it."""

    uuid: str
    memory_mib: Amount
    cores_percent: Amount
    """0: not limited, and not counted against the device."""
    mig: MigPlacement | None = None
    """The GPU instance, on a GPU that is cut on demand; amounts are then the instance's."""
    family: str = ""
    """Of another vendor's device, the resource that its family is known by: quotas are by family."""
    alike: str = ""
    """See `DeviceRequest.alike`."""
    core_numbers: Annotated[tuple[int, ...], msgspec.Meta(max_length=64)] = ()
    """Of a device whose cores have numbers (`Device.cores`), those it has."""
    profile: str = ""
    """Of a device that is divided by profiles (`Device.slicing`), the name of the one it has."""

    @property
    def is_whole(self) -> bool:
        """Whether the container has the device alone."""
        return self.cores_percent >= WHOLE_PERCENT


class ContainerGrant(msgspec.Struct, frozen=True):
    """What one container of a pod holds: one share on each of its devices."""

    container: str
    kind: ContainerKind
    shares: tuple[DeviceShare, ...]
    enforcement: Enforcement = Enforcement.NONE

    @property
    def uuids(self) -> tuple[str, ...]:
        """The device of each share, in the order in which the container sees them; a device of which it has two parts
        appears twice."""
        return tuple(share.uuid for share in self.shares)

    @property
    def is_whole(self) -> bool:
        """Whether the container has its devices alone."""
        return all(share.is_whole for share in self.shares)


class PoolShare(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """From where a container gets devices of an SR-IOV pool."""

    container: str
    resource: str
    place: str
    """`PoolPlace.id`."""
    count: Amount


class Grant(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one pod holds on one node: the content of the grant annotation."""

    pod_uid: str
    namespace: str
    pod: str
    node: str
    containers: tuple[ContainerGrant, ...]
    enforcement_required: bool = False
    """Whether no container may start whose share nothing holds to its limits."""
    pools: tuple[PoolShare, ...] = ()
    """Of containers with GPUs, the devices of SR-IOV pools that they get beside these."""
    pairs_required: bool = False
    """Whether no container may start whose GPUs and network devices are not below the same switches, as far as it has
    both."""

    @property
    def key(self) -> str:
        """The pod, as informers key it."""
        return f"{self.namespace}/{self.pod}"

    @property
    def family(self) -> str:
        """See `DeviceShare.family`: a pod has devices of one; empty: NVIDIA's."""
        return next((share.family for part in self.containers for share in part.shares), "")

    @property
    def uuids(self) -> frozenset[str]:
        """All devices that it is about."""
        return frozenset(uuid for part in self.containers for uuid in part.uuids)

    def of(self, container: str) -> ContainerGrant | None:
        """The part of the container with this name."""
        return next((part for part in self.containers if part.container == container), None)


class GrantState(StrEnum):
    """How far a grant has come, from the scheduler's decision to the pod's end."""

    RESERVED = "reserved"
    BOUND = "bound"
    ALLOCATED = "allocated"
    RUNNING = "running"
    RELEASED = "released"
