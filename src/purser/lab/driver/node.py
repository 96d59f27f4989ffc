"""One simulated node's driver: a folder, and the faults and loads that are put into it.

The folder holds ``libnvidia-ml.so.1`` (where a C compiler was at hand), ``node.state`` that the library reads,
``node.json`` that is the truth behind it, ``profile.json``, and ``sys/``, a sysfs tree for the agent.
"""

import re
import time
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec.structs import asdict, replace

from purser.agent.mig.hardware import HardwareError, MigHardware, NoHardware
from purser.agent.mig.nvml import NvmlHardware, open_mig
from purser.agent.nvml import Driver, DriverError, LibraryDriver, NullDriver, open_driver
from purser.agent.nvml.library import LIBRARY
from purser.core.health.catalogue import action_of
from purser.core.health.signs import RecoveryAction
from purser.core.health.state import HealthState, after_action
from purser.lab.driver import profiles
from purser.lab.driver.changes import (
    after_reset,
    with_ecc_errors,
    with_failure,
    with_hanging,
    with_nvlink,
    with_nvlink_errors,
    with_process,
    with_remapped_rows,
    with_retired_page,
    without_process,
)
from purser.lab.driver.compile import compiled_library
from purser.lab.driver.files import TRUTH_FILE, load, lock_folder, save, write_atomically
from purser.lab.driver.mig import MIG_FILE
from purser.lab.driver.node_mig import is_mig_uuid, mig_place, process_place, reset_mig, room_mib
from purser.lab.driver.parts import (
    BankSpares,
    CallFailure,
    ClocksLimit,
    Fabric,
    GpuLoad,
    MemoryLocation,
    NvLinkError,
    ProcessLoad,
    ProcessState,
    RetiredPage,
)
from purser.lab.driver.profiles import NodeProfile
from purser.lab.driver.python_nvml import PythonNvml
from purser.lab.driver.state import (
    MAX_KEPT_EVENTS,
    DriverState,
    EventState,
    GpuState,
    initial_state,
    settled,
)
from purser.lab.driver.sysfs_tree import remove_device, write_gpu, write_sysfs

_PROFILE_FILE = "profile.json"
_NO_EVENT = EventState(0, 0, 0)
_CALL = re.compile(r"\*|[A-Za-z][A-Za-z0-9_]{0,99}", re.ASCII)
_RECOVERY_ACTIONS = {
    HealthState.NEEDS_RESET: RecoveryAction.GPU_RESET,
    HealthState.NEEDS_REBOOT: RecoveryAction.NODE_REBOOT,
}
"""The recovery action after an Xid, of drivers that report one."""


class DriverKind(StrEnum):
    """What stands behind NVML's functions."""

    LIBRARY = "library"
    """The C library, through the real bindings."""
    PYTHON = "python"
    """The same functions in Python, where no C compiler is at hand."""


class SimulatedDriver:
    """A node's driver. Every method changes the folder's state atomically; drivers that are open see it at once.

    GPUs are named by their place in the profile or by uuid. An unknown one is a ``LookupError``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._profile = msgspec.json.decode((folder / _PROFILE_FILE).read_bytes(), type=NodeProfile)

    @classmethod
    def create(
        cls, folder: Path, node: str, profile: NodeProfile | str | Path, *, kind: DriverKind | None = None
    ) -> "SimulatedDriver":
        """Set up a healthy, idle node in a folder. ``kind``: the library where one can be compiled, by default.

        Raises:
            ProfileError: the profile cannot be used.
            RuntimeError: the library was asked for and cannot be compiled.
        """
        if not isinstance(profile, NodeProfile):
            profile = profiles.load(profile)
        folder.mkdir(parents=True, exist_ok=True)
        library = None if kind is DriverKind.PYTHON else compiled_library()
        if library is not None:
            # A copy, not a link: the loader takes two names of one file for one library.
            write_atomically(folder / LIBRARY, library.read_bytes())
        elif kind is DriverKind.LIBRARY:
            raise RuntimeError(
                "the simulated NVIDIA library cannot be compiled: install gcc or clang, or see the log for the error"
            )
        else:
            (folder / LIBRARY).unlink(missing_ok=True)
        write_atomically(folder / _PROFILE_FILE, msgspec.json.encode(profile))
        write_sysfs(folder / "sys", profile)
        (folder / MIG_FILE).unlink(missing_ok=True)
        save(folder, initial_state(node, profile))
        return cls(folder)

    @property
    def kind(self) -> DriverKind:
        """Whether a driver that is opened here is the C library or its stand-in."""
        return DriverKind.LIBRARY if self.library.exists() else DriverKind.PYTHON

    @property
    def library(self) -> Path:
        """Where the C library is, if there is one."""
        return self.folder / LIBRARY

    @property
    def sysfs_root(self) -> Path:
        """The node's own /sys."""
        return self.folder / "sys"

    @property
    def state(self) -> DriverState:
        """What the driver reports now."""
        return load(self.folder)

    @property
    def uuids(self) -> tuple[str, ...]:
        """The uuids of the node's GPUs in the order of the profile, present or not."""
        return tuple(gpu.uuid for gpu in self.state.gpus)

    def open(self) -> Driver:
        """The driver as the node's agent opens it; `NullDriver`, which says why, where nvmlInit fails."""
        if self.kind is DriverKind.LIBRARY:
            return open_driver(library=self.library, sysfs_root=self.sysfs_root)
        try:
            return self._open_python()
        except DriverError as error:
            return NullDriver(str(error))

    def _open_python(self) -> LibraryDriver:
        def answering_uuids() -> tuple[str | None, ...]:
            fresh = self._open_python()
            return tuple(gpu.uuid if gpu.fault is None else None for gpu in fresh.scan())

        return LibraryDriver(PythonNvml(self.folder / TRUTH_FILE), answering_uuids, sysfs_root=self.sysfs_root)

    def open_mig(self) -> MigHardware:
        """The driver as the node's MIG manager opens it; `NoHardware`, which says why, where nvmlInit fails."""
        if self.kind is DriverKind.LIBRARY:
            return open_mig(self.library, ())
        try:
            return NvmlHardware(PythonNvml(self.folder / TRUTH_FILE))
        except HardwareError as error:
            return NoHardware(str(error))

    def lose_gpu(self, gpu: int | str, *, xid: int | None = 79) -> None:
        """A GPU falls off the bus: every call on it fails from now on, and the driver reports this Xid, if any."""
        self._change(gpu, lambda old: replace(old, lost=True))
        if xid is not None:
            self.inject_xid(gpu, xid)

    def recover_gpu(self, gpu: int | str) -> None:
        """The GPU was reset: it answers again, its processes and MIG devices are gone, a pending MIG mode is in force,
        rows and pages that waited for that are replaced and given up, and the driver asks for no recovery any more."""
        self._change(gpu, after_reset)
        reset_mig(self.folder, gpu)

    def remove_gpu(self, gpu: int | str) -> None:
        """Take the GPU out of its slot. As with NVML an open driver sees it lost, one opened later does not list it."""
        index = self._change(gpu, lambda old: replace(old, present=False))
        remove_device(self.sysfs_root, self._profile.gpus[index].pci)

    def restore_gpu(self, gpu: int | str) -> None:
        """Put a removed GPU back into its slot."""
        index = self._change(gpu, lambda old: replace(old, present=True, lost=False))
        write_gpu(self.sysfs_root, self._profile, index)

    def inject_xid(self, gpu: int | str, xid: int) -> None:
        """The driver reports an Xid, of a GPU or a MIG device. After one that needs a reset or a reboot, newer drivers
        report that recovery action."""
        asked = _RECOVERY_ACTIONS.get(after_action(action_of(xid)))
        place = mig_place(self.folder, str(gpu)) if is_mig_uuid(gpu) else None

        def report(state: DriverState) -> DriverState:
            index = state.index_of(gpu) if place is None else place.gpu
            sequence = (state.events[-1] if state.events else _NO_EVENT).sequence + 1
            event = EventState(sequence, index, xid)
            if place is not None:
                event = replace(event, gpu_instance=place.instance, compute_instance=place.compute)
            old = state.gpus[index]
            if asked is not None and old.recovery_action is not None:
                old = replace(old, recovery_action=int(asked))
            return replace(_with_gpu(state, index, old), events=(*state.events, event)[-MAX_KEPT_EVENTS:])

        self._update(report)

    def fail_call(self, gpu: int | str, call: str, code: int) -> None:
        """One NVML call on the GPU fails with this code from now on; ``*`` for every call. Raises ValueError for
        what is no call's name."""
        self._change(gpu, lambda old: with_failure(old, CallFailure(_checked(call), code)))

    def hang_call(self, gpu: int | str, call: str) -> None:
        """One NVML call on the GPU does not return from now on; ``*`` for every call. `clear_failures` and
        `recover_gpu` end it, and so does removing the folder. Raises ValueError for what is no call's name."""
        self._change(gpu, lambda old: with_hanging(old, _checked(call)))

    def clear_failures(self, gpu: int | str) -> None:
        """Undo `fail_call` and `hang_call`."""
        self._change(gpu, lambda old: replace(old, failures=(), hanging=()))

    def set_hanging(self, hangs: bool) -> None:
        """Whether no call at all returns, nvmlInit included."""
        self._update(lambda state: replace(state, hangs=hangs))

    def set_init_error(self, code: int) -> None:
        """nvmlInit fails with this code from now on; 0 for not."""
        self._update(lambda state: replace(state, init_error=code))

    def end_hanging(self) -> None:
        """Every call that hangs returns."""

        def end(state: DriverState) -> DriverState:
            return replace(state, hangs=False, gpus=tuple(replace(gpu, hanging=()) for gpu in state.gpus))

        self._update(end)

    def set_memory_used(self, gpu: int | str, memory_mib: int) -> None:
        """Memory in use beside that of the listed processes."""
        self._change(gpu, lambda old: replace(old, memory_used_mib=memory_mib))

    def add_process(self, gpu: int | str, pid: int, load: ProcessLoad) -> None:
        """A process starts on the GPU or MIG device, or changes what it uses there.

        Raises ValueError where there is no room for it, or where a GPU in MIG mode is named instead of a MIG device.
        """
        place = process_place(self.folder, gpu)
        process = ProcessState(
            **asdict(load),
            pid=pid,
            started_us=time.time_ns() // 1000,
            gpu_instance=None if place is None else place.instance,
            compute_instance=None if place is None else place.compute,
        )
        room = None if place is None else room_mib(self.folder, place)
        self._change(gpu if place is None else place.gpu, lambda old: with_process(old, process, room))

    def remove_process(self, gpu: int | str, pid: int) -> None:
        """A process ends."""
        self._change(gpu, lambda old: without_process(old, pid))

    def set_load(self, gpu: int | str, load: GpuLoad) -> None:
        """Change what the GPU's sensors say; what is None there stays as it was, or follows the GPU's processes."""
        changes = {name: value for name, value in asdict(load).items() if value is not None}
        self._change(gpu, lambda old: replace(old, load=replace(old.load, **changes)))

    def clear_load(self, gpu: int | str) -> None:
        """Undo `set_load`: the sensors follow the GPU's processes again."""
        self._change(gpu, lambda old: replace(old, load=GpuLoad()))

    def set_slowdowns(self, gpu: int | str, slowdowns: Iterable[ClocksLimit]) -> None:
        """The GPU runs at lower clocks for these reasons, and for no other one."""
        self._change(gpu, lambda old: replace(old, slowdowns=tuple(dict.fromkeys(slowdowns))))

    def add_ecc_errors(
        self, gpu: int | str, *, place: MemoryLocation = MemoryLocation.DRAM, corrected: int = 0, uncorrected: int = 0
    ) -> None:
        """ECC found errors. Xids that a driver reports beside uncorrected ones come by `inject_xid`."""
        self._change(gpu, lambda old: with_ecc_errors(old, place, corrected, uncorrected))

    def remap_rows(
        self,
        gpu: int | str,
        *,
        correctable: int = 0,
        uncorrectable: int = 0,
        pending: bool | None = None,
        failed: bool | None = None,
        spares: BankSpares = BankSpares.HIGH,
    ) -> None:
        """More rows of memory are replaced; the replacing waits for a reset, or has failed. None: as it was.
        ``spares``: what their banks have left.

        Raises ValueError where the GPU is older than row remapping, or has no more banks.
        """
        self._change(gpu, lambda old: with_remapped_rows(old, correctable, uncorrectable, pending, failed, spares))

    def set_sram_threshold_exceeded(self, gpu: int | str, exceeded: bool) -> None:
        """Whether uncorrected ECC errors in SRAM are more than NVIDIA tolerates."""
        self._change(gpu, lambda old: replace(old, sram_threshold_exceeded=exceeded))

    def retire_page(self, gpu: int | str, address: int, *, double_bit: bool = True) -> None:
        """A page of memory is given up at the next reset. Raises ValueError where the GPU replaces rows instead, or has
        given up too many."""
        page = RetiredPage(address, int(double_bit), time.time_ns() // 1000, pending=True)
        self._change(gpu, lambda old: with_retired_page(old, page))

    def replay_pcie(self, gpu: int | str, count: int) -> None:
        """So many transfers over PCIe had to be repeated."""
        self._change(gpu, lambda old: replace(old, pcie_replays=old.pcie_replays + count))

    def set_nvlink(self, gpu: int | str, link: int, *, active: bool) -> None:
        """Bring one NVLink of a GPU up or down at its end. Raises LookupError where it has no such link."""
        self._change(gpu, lambda old: with_nvlink(old, link, active=active))

    def add_nvlink_errors(self, gpu: int | str, link: int, error: NvLinkError, count: int) -> None:
        """A link of the GPU counts errors. Raises LookupError where it has no such link."""
        self._change(gpu, lambda old: with_nvlink_errors(old, link, error, count))

    def set_fabric(self, gpu: int | str, fabric: Fabric) -> None:
        """What the GPU reports of its NVLink domain."""
        self._change(gpu, lambda old: replace(old, fabric=fabric))

    def _change(self, gpu: int | str, change: Callable[[GpuState], GpuState]) -> int:
        index = self.state.index_of(gpu)
        now_us = time.time_ns() // 1000
        self._update(lambda state: _with_gpu(state, index, change(settled(state.gpus[index], now_us))))
        return index

    def _update(self, change: Callable[[DriverState], DriverState]) -> None:
        with lock_folder(self.folder):
            save(self.folder, change(load(self.folder)))


def _checked(call: str) -> str:
    """The state of a node is a text of lines, which the driver's library reads. Raises ValueError."""
    if not _CALL.fullmatch(call):
        raise ValueError(f"{call[:40]!a} is not an NVML call: use a name such as nvmlDeviceGetTemperature, or *")
    return call


def _with_gpu(state: DriverState, index: int, gpu: GpuState) -> DriverState:
    return replace(state, gpus=(*state.gpus[:index], gpu, *state.gpus[index + 1 :]))
