"""What a pod asks for."""

from enum import StrEnum

import msgspec

from purser.core.device.slicing import SliceAsk
from purser.core.kubelet.pod import KubeletPod
from purser.core.model.inventory import WHOLE_PERCENT, DeviceMode, Enforcement
from purser.core.model.policies import GpuPolicy, ScoreWeights
from purser.core.names import GPU_RESOURCE
from purser.core.pod.manifest import ContainerKind


class GpuNic(StrEnum):
    """How much a container that asks for GPUs and for devices of an SR-IOV pool wants them under one PCIe switch."""

    PREFERRED = "preferred"
    """As many as there are."""
    REQUIRED = "required"
    """As many as it asks for both, or the node does not fit."""


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
