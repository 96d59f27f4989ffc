"""The interface of a GPU driver, and the plain values that cross it.

``None`` in an optional field means that this driver or this GPU does not report the value; it never means zero.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Protocol

import msgspec

from purser.core.device.counting import is_usable_by_pods
from purser.core.device.gpus import FabricIds, NodeGpu, NodeMigDevice
from purser.core.health.fabric import FabricRegistration
from purser.core.health.signs import DeviceFault, NvLinks, RecoveryAction, RemappedRows, Slowdown
from purser.core.mig import kind_of_device
from purser.core.model import Link
from purser.core.monitoring.accounts import GpuMemory


class DriverError(Exception):
    """The driver as a whole refused a call; a single device's trouble is a `DeviceFault` instead."""


class DriverInfo(msgspec.Struct, frozen=True):
    """Versions of the driver, or why there is none."""

    version: str | None = None
    cuda_version: str | None = None
    """Newest CUDA that the driver supports, as ``12.4``."""
    nvml_version: str | None = None
    absent: str | None = None
    """Why no driver could be opened; None where there is one."""


class MigTrouble(StrEnum):
    """Why NVML did not do what it was asked about GPU instances."""

    IN_USE = "in-use"
    NO_ROOM = "no-room"
    """Something else is in the place."""
    NOT_OFFERED = "not-offered"
    OFF = "off"
    """The GPU is not in MIG mode."""
    NO_PERMISSION = "no-permission"
    GONE = "gone"
    """The GPU or the instance is not there any more."""
    LOST = "lost"
    """The GPU or the driver does not work."""
    OTHER = "other"


class MigCallError(Exception):
    """NVML refused a call about GPU instances; the message says in a sentence what was asked, and why."""

    def __init__(self, trouble: MigTrouble, message: str) -> None:
        super().__init__(message)
        self.trouble = trouble


class MigMode(msgspec.Struct, frozen=True):
    """Whether a GPU is cut into MIG devices now, and after its next reset."""

    enabled: bool
    pending: bool


class GpuInstance(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU instance of MIG."""

    id: int
    """NVML's, on its GPU."""
    number: int
    """Its profile, of NVML's constants ``NVML_GPU_INSTANCE_PROFILE_*``."""
    start: int
    """Its first memory slice."""
    size: int
    """In memory slices."""
    computes: int
    """How many compute instances are in it: none where a process was killed between the two, or is about to create
    it."""


class MigContents(msgspec.Struct, frozen=True):
    """What a GPU in MIG mode is cut into at one moment."""

    instances: tuple[GpuInstance, ...] = ()
    """By id."""
    devices: tuple[NodeMigDevice, ...] = ()
    """Its MIG devices: a compute instance each."""


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One physical GPU: the facts that only a driver restart changes.

    A GPU that stops answering keeps the facts of the last scan and gains a ``fault``.
    """

    index: int
    """NVML's index of this scan, for people; no identity, but for `purser.agent.inventory.known_gpus`."""
    uuid: str | None = None
    """None only while a GPU has never been readable since this process opened the driver."""
    fault: DeviceFault | None = None
    name: str = ""
    minor: int | None = None
    """The number in /dev/nvidia<minor>."""
    memory_mib: int = 0
    pci_bus_id: str = ""
    """As sysfs spells it: ``0000:07:00.0``."""
    pci_device: str = ""
    """Its PCI device id, four hexadecimal digits: ``20b0``."""
    numa_node: int | None = None
    compute_capability: str = ""
    """As ``8.0``."""
    architecture: str = ""
    """Lower case: ``ampere``."""
    brand: str = ""
    mig: MigMode | None = None
    """None where the GPU knows no MIG."""
    migs: tuple[NodeMigDevice, ...] = ()
    """Its MIG devices."""
    fabric: FabricIds | None = None
    """The NVLink domain that it has joined."""
    links: tuple[Link, ...] = ()
    watches_xids: bool = False
    """Whether the driver reports this GPU's Xid errors through `Driver.wait_event`."""

    @property
    def label(self) -> str:
        """The GPU as people know it: by the index of nvidia-smi, and by uuid."""
        return f"GPU {self.index} ({self.uuid})"

    @property
    def is_partitioned(self) -> bool:
        """Whether it is in MIG mode, and so of no use but as MIG devices."""
        return self.mig is not None and self.mig.enabled

    def as_node_gpu(self, pci_class: int | None = None) -> NodeGpu:
        """What devices of kubelet and labels of the node are made of."""
        kind = None if self.mig is None else kind_of_device(self.pci_device)
        major, _, minor = self.compute_capability.partition(".")
        is_known = major.isdecimal() and minor.isdecimal() and int(major) > 0
        return NodeGpu(
            uuid=self.uuid or "",
            index=self.index,
            model=self.name,
            memory_mib=self.memory_mib,
            compute_capability=(int(major), int(minor)) if is_known else None,
            can_mig=self.mig is not None,
            mig_enabled=self.is_partitioned,
            migs=self.migs,
            mig_kind="" if kind is None else kind.name,
            pci_class=pci_class,
            fabric=self.fabric,
        )


def for_pods(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """The GPUs that pods may get, with their links to one another alone; see `purser.core.device.counting`."""
    listed = [gpu for gpu in gpus if is_usable_by_pods(gpu.name)]
    known = {gpu.uuid for gpu in listed}
    return tuple(
        msgspec.structs.replace(gpu, links=tuple(link for link in gpu.links if link.peer in known)) for gpu in listed
    )


class Ecc(msgspec.Struct, frozen=True):
    """Memory error correction: its mode and the errors since the driver was loaded."""

    enabled: bool
    corrected: int | None = None
    uncorrected: int | None = None


class DeviceReading(msgspec.Struct, frozen=True, kw_only=True):
    """What one device shows of its health right now."""

    uuid: str
    fault: DeviceFault | None = None
    ecc: Ecc | None = None
    sram_threshold_exceeded: bool = False
    """NVML's flag for uncorrectable errors in SRAM, of the GPU's whole life."""
    remapped_rows: RemappedRows | None = None
    recovery_action: RecoveryAction | None = None
    nvlinks: NvLinks | None = None
    slowdowns: frozenset[Slowdown] = frozenset()
    migs: frozenset[str] | None = None
    """uuids of its MIG devices; None: it is not in MIG mode."""
    registration: FabricRegistration | None = None
    """With its NVLink domain; None: the driver does not report it."""

    @property
    def fabric(self) -> FabricIds | None:
        """The NVLink domain that it has joined."""
        return None if self.registration is None else self.registration.ids


class GpuProcess(msgspec.Struct, frozen=True):
    """A process on a GPU, whether it computes or draws."""

    pid: int
    """In the PID namespace of this process: 0, or not listed at all, where that is not the host's."""
    memory: int | None
    """Bytes; None: the driver does not report it."""
    sm_percent: int | None
    """Of the GPU's compute, lately; None: the driver does not report it."""
    device: str = ""
    """UUID of its MIG device; empty: the whole GPU."""


class InstanceTelemetry(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU instance of MIG."""

    id: int
    devices: tuple[str, ...]
    """UUIDs of its MIG devices, which `Gpu.migs` has more of."""
    fields: Mapping[str, float]
    memory: GpuMemory | None
    processes: tuple[GpuProcess, ...] | None
    """None: the driver does not list them of one of its MIG devices."""


class Telemetry(msgspec.Struct, frozen=True, kw_only=True):
    """What a GPU's sensors and counters say, its memory, and who uses it. Values that the driver does not report are
    missing."""

    uuid: str
    fields: Mapping[str, float] = {}
    """By DCGM's name, in DCGM's unit (`purser.core.monitoring.dcgm`)."""
    memory: GpuMemory | None = None
    processes: tuple[GpuProcess, ...] | None = None
    """None: the driver does not list them, or in MIG mode, where instances have them."""
    instances: tuple[InstanceTelemetry, ...] = ()

    @property
    def lists_processes(self) -> bool:
        """Whether the driver listed who uses the GPU; if not, nothing is reported of its users."""
        if self.instances:
            return all(each.processes is not None for each in self.instances)
        return self.processes is not None


class XidEvent(msgspec.Struct, frozen=True):
    """The driver reported an Xid error of a device."""

    uuid: str | None
    """None when the driver cannot say which device."""
    xid: int


class Driver(Protocol):
    """A GPU driver. All calls block and may come from several threads; run them off the event loop."""

    def info(self) -> DriverInfo:
        """Versions, or why there is no driver. Never raises."""
        ...

    def scan(self) -> tuple[Gpu, ...]:
        """Every device that the driver lists, and watch its Xids from now on.

        One bad device never spoils the list: it is in it with a fault.

        Raises:
            DriverError: not even the number of devices could be read.
        """
        ...

    def read(self, uuid: str) -> DeviceReading:
        """Probe one device. Never raises: what is wrong is in the reading's ``fault``."""
        ...

    def telemetry(self, uuid: str) -> Telemetry:
        """Measure one device; one call at a time for each. Never raises: what fails is missing."""
        ...

    def mig_contents(self, uuid: str) -> MigContents:
        """What one GPU is cut into. Raises `MigCallError`, as the three below."""
        ...

    def create_instance(self, uuid: str, number: int, start: int, size: int) -> int:
        """Make a GPU instance of the profile with NVML's ``number`` on the memory slices from ``start`` on. It has no
        compute instance yet. Its id."""
        ...

    def fill_instance(self, uuid: str, instance: int) -> None:
        """Make the compute instance that is all of a GPU instance: the two are a MIG device then."""
        ...

    def destroy_instance(self, uuid: str, instance: int) -> None:
        """Remove a GPU instance with what is in it, unless processes run on it. One that is gone is not an error."""
        ...

    def wait_event(self, timeout_ms: int) -> XidEvent | None:
        """Block until a scanned device has an Xid error; None after ``timeout_ms`` without one.

        Raises:
            DriverError: the driver cannot wait now. Pause, `scan`, and wait again.
        """
        ...

    def answering_uuids(self) -> tuple[str | None, ...]:
        """The uuids of the devices that a process sees which opens the driver now, None for each that does not answer
        it. This binding stays open, with all its handles and events.

        Raises:
            DriverError: such a process cannot list the devices, or does not end in time.
        """
        ...

    def reopen(self) -> tuple[Gpu, ...]:
        """Reopen the binding and scan, so that added, removed and recovered GPUs are seen.

        NVML fixes its list of devices when it is initialised. This waits for a running `wait_event` to return, so
        wait in slices of a second or so. Xids of all GPUs during the call are missed, as they are when an agent
        restarts: ask `answering_uuids` first whether it would show more.

        Raises:
            DriverError: the driver does not come up, or a reading under way does not end.
        """
        ...

    def while_closed(self, action: Callable[[], None]) -> None:
        """Run an operation during which no process may have a GPU open, including this one, and reopen the binding.

        Raises:
            DriverError: a reading under way does not end, or the driver does not come up again.
        """
        ...

    def close(self) -> None:
        """Let go of the driver. Any call but `info` is an error afterwards."""
        ...
