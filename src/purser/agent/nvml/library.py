"""The real binding: nvidia-ml-py over one copy of libnvidia-ml."""

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from purser.agent.host.sysfs import SYSFS_ROOT
from purser.agent.nvml.calls import DeviceCalls, Nvml, as_is, load_nvml
from purser.agent.nvml.devices import describe, take_reading
from purser.agent.nvml.driver import (
    DeviceReading,
    Driver,
    DriverError,
    DriverInfo,
    Gpu,
    MigCallError,
    MigContents,
    MigTrouble,
    Telemetry,
    XidEvent,
)
from purser.agent.nvml.fresh import DriverProbe
from purser.agent.nvml.instances import create_instance, destroy_instance, fill_instance, mig_contents
from purser.agent.nvml.null import NullDriver
from purser.agent.nvml.nvlinks import NvLinkEndpoint, survey_links
from purser.agent.nvml.telemetry import Meter
from purser.core.health.signs import DeviceFault, FaultKind
from purser.core.model import Link

LIBRARY = "libnvidia-ml.so.1"

PENDING_READINGS_TIMEOUT_S = 5.0
"""How long reopening and closing wait for running readings; one on a failing GPU may never end."""

LIBRARY_FOLDERS = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib/wsl/lib",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib",
)
"""Where distributions and driver containers put the library, below a driver root."""


NVML_INIT = "nvmlInit"
"""At the start of what is said of a library that was loaded, but does not start."""


def open_driver(
    *, library: str | Path | None = None, driver_roots: Sequence[Path] = (), sysfs_root: Path = SYSFS_ROOT
) -> Driver:
    """The node's driver: the given library, or the first one under a driver's root, or the one the loader finds.

    Without one, or when it does not start, a `NullDriver` that says why.
    """
    path = str(library) if library is not None else find_library(driver_roots)
    if path is None:
        return NullDriver(
            f"{LIBRARY} was not found under {' or '.join(map(str, driver_roots))}: is the driver installed there?"
        )
    try:
        return LibraryDriver(load_nvml(path), DriverProbe(path), sysfs_root=sysfs_root)
    except DriverError as error:
        return NullDriver(f"{path}: {error}")


def find_library(driver_roots: Sequence[Path] = ()) -> str | None:
    """The library below the first driver's root that has it (``/run/nvidia/driver``); its bare name, for the loader,
    without any."""
    if not driver_roots:
        return LIBRARY
    paths = (root / folder / LIBRARY for root in driver_roots for folder in LIBRARY_FOLDERS)
    return next((str(path) for path in paths if path.exists()), None)


class LibraryDriver:
    """A driver behind pynvml functions of its own. Thread-safe: so is NVML, and readings do not wait for one another.

    Devices are asked by the handles of the last scan, never by uuid: NVML looks a uuid up by asking every GPU, and
    one lost GPU makes that fail for all of them.
    """

    def __init__(
        self, nvml: Nvml, answering_uuids: Callable[[], tuple[str | None, ...]], *, sysfs_root: Path = SYSFS_ROOT
    ) -> None:
        """``answering_uuids`` does what `Driver.answering_uuids` says."""
        self._nvml = nvml
        self._answering_uuids = answering_uuids
        self._sysfs_root = sysfs_root
        self._lock = threading.RLock()
        self._events_lock = threading.Lock()  # held by a wait; taken before the other lock where both are needed
        self._readings = threading.Condition()  # taken last; counts what NVML must not be shut down under
        self._under_way: list[str] = []
        self._closed = threading.Event()
        self._gpus: tuple[Gpu, ...] = ()
        self._handles: dict[str, Any] = {}
        self._meters: dict[str, Meter] = {}
        self._watched: dict[int, str] = {}
        self._event_set: Any = None
        self._start()
        self._info = self._read_info()

    def info(self) -> DriverInfo:
        """The versions at the time of opening."""
        return self._info

    def scan(self) -> tuple[Gpu, ...]:
        """See `Driver.scan`."""
        with self._lock:
            self._check_open()
            calls = [DeviceCalls(self._nvml) for _ in range(self._count())]
            seen = [self._read_gpu(index, each) for index, each in enumerate(calls)]
            self._gpus = self._with_links(self._identify(seen), calls)
            return self._gpus

    def read(self, uuid: str) -> DeviceReading:
        """See `Driver.read`."""
        with self._reading(uuid) as handle:
            if handle is None:
                return DeviceReading(
                    uuid=uuid, fault=DeviceFault(FaultKind.GONE, "scan", "the driver does not list this device")
                )
            return take_reading(DeviceCalls(self._nvml), self._nvml, handle, uuid)

    def telemetry(self, uuid: str) -> Telemetry:
        """See `Driver.telemetry`."""
        with self._reading(uuid) as handle:
            if handle is None:
                return Telemetry(uuid=uuid)
            if uuid not in self._meters:
                self._meters[uuid] = Meter(self._nvml, handle, uuid)
            return self._meters[uuid].read()

    def mig_contents(self, uuid: str) -> MigContents:
        """See `Driver.mig_contents`."""
        with self._known_device(uuid) as handle:
            return mig_contents(self._nvml, handle)

    def create_instance(self, uuid: str, number: int, start: int, size: int) -> int:
        """See `Driver.create_instance`."""
        with self._known_device(uuid) as handle:
            return create_instance(self._nvml, handle, number, start, size)

    def fill_instance(self, uuid: str, instance: int) -> None:
        """See `Driver.fill_instance`."""
        with self._known_device(uuid) as handle:
            fill_instance(self._nvml, handle, instance)

    def destroy_instance(self, uuid: str, instance: int) -> None:
        """See `Driver.destroy_instance`."""
        with self._known_device(uuid) as handle:
            destroy_instance(self._nvml, handle, instance)

    def wait_event(self, timeout_ms: int) -> XidEvent | None:
        """See `Driver.wait_event`."""
        with self._events_lock:
            self._check_open()
            if self._event_set is None:
                self._closed.wait(timeout_ms / 1000)
                return None
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._event_set, timeout_ms)
            except self._nvml.NVMLError as error:
                if error.value == self._nvml.NVML_ERROR_TIMEOUT:
                    return None
                raise DriverError(f"nvmlEventSetWait: {error}") from error
            if event.eventType != self._nvml.nvmlEventTypeXidCriticalError:
                return None
            return XidEvent(self._watched.get(_address(event.device)), int(event.eventData))

    def answering_uuids(self) -> tuple[str | None, ...]:
        """See `Driver.answering_uuids`."""
        return self._answering_uuids()

    def reopen(self) -> tuple[Gpu, ...]:
        """See `Driver.reopen`."""
        self.while_closed(lambda: None)
        return self._gpus

    def while_closed(self, action: Callable[[], None]) -> None:
        """See `Driver.while_closed`."""
        with self._events_lock, self._lock:
            self._check_open()
            with self._without_readings():
                self._stop()
                try:
                    action()
                finally:
                    self._start()
                    self.scan()

    def close(self) -> None:
        """See `Driver.close`."""
        if self._closed.is_set():
            return
        self._closed.set()
        with self._events_lock, self._lock:
            try:
                with self._without_readings():
                    self._stop()
            except DriverError:
                return  # a call that never returns keeps the library: it ends with the process

    @contextmanager
    def _reading(self, uuid: str) -> Iterator[Any]:
        """The device's handle, None where there is none; NVML is not shut down meanwhile."""
        with self._readings:
            handle = None if self._closed.is_set() else self._handles.get(uuid)
            self._under_way.append(uuid)
        try:
            yield handle
        finally:
            with self._readings:
                self._under_way.remove(uuid)
                self._readings.notify_all()

    @contextmanager
    def _known_device(self, uuid: str) -> Iterator[Any]:
        """The same, of a device that has to be there. Raises `MigCallError`."""
        with self._reading(uuid) as handle:
            if handle is None:
                raise MigCallError(MigTrouble.GONE, "the driver does not list this GPU")
            yield handle

    @contextmanager
    def _without_readings(self) -> Iterator[None]:
        """No reading is under way and none begins. Raises `DriverError` where one does not end."""
        with self._readings:
            if not self._readings.wait_for(lambda: not self._under_way, PENDING_READINGS_TIMEOUT_S):
                gpus = ", ".join(dict.fromkeys(self._under_way))
                raise DriverError(f"NVML cannot be shut down: calls for {gpus} have not returned")
            yield

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise DriverError("NVML has been shut down")

    def _start(self) -> None:
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise DriverError(f"{NVML_INIT}: {error}") from error
        self._event_set = self._create_event_set()

    def _stop(self) -> None:
        event_set, self._event_set = self._event_set, None
        for meter in self._meters.values():
            meter.close()
        self._meters.clear()
        self._handles.clear()
        self._watched.clear()
        try:
            if event_set is not None:
                self._nvml.nvmlEventSetFree(event_set)
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            # A driver that is gone cannot be shut down; what is ours to release is released.
            return

    def _create_event_set(self) -> Any:
        """An event set, or None from a driver without events (or from before R450, whose wait has another layout)."""
        if not hasattr(self._nvml.nvmlLib, "nvmlEventSetWait_v2"):
            return None
        try:
            return self._nvml.nvmlEventSetCreate()
        except self._nvml.NVMLError:
            return None  # shown by Gpu.watches_xids; probes still find what is broken

    def _read_info(self) -> DriverInfo:
        calls = DeviceCalls(self._nvml)
        return DriverInfo(
            version=calls.ask(str, "nvmlSystemGetDriverVersion"),
            cuda_version=calls.ask(_cuda_version, "nvmlSystemGetCudaDriverVersion_v2"),
            nvml_version=calls.ask(str, "nvmlSystemGetNVMLVersion"),
        )

    def _count(self) -> int:
        try:
            return int(self._nvml.nvmlDeviceGetCount())
        except self._nvml.NVMLError as error:
            raise DriverError(f"nvmlDeviceGetCount: {error}") from error

    def _read_gpu(self, index: int, calls: DeviceCalls) -> Gpu:
        """The facts of a device; its handle is kept, its Xids are watched from now on."""
        handle = calls.ask(as_is, "nvmlDeviceGetHandleByIndex", index)
        if handle is None:
            return Gpu(index=index, fault=calls.fault)
        gpu = describe(calls, self._nvml, handle, index, self._sysfs_root)
        if gpu.uuid is not None:
            self._handles[gpu.uuid] = handle
            gpu = msgspec.structs.replace(gpu, watches_xids=self._watch(calls, handle, gpu.uuid))
        return msgspec.structs.replace(gpu, fault=calls.fault)

    def _watch(self, calls: DeviceCalls, handle: Any, uuid: str) -> bool:
        if _address(handle) in self._watched:
            return True
        xid = self._nvml.nvmlEventTypeXidCriticalError
        supported = calls.ask(int, "nvmlDeviceGetSupportedEventTypes", handle) or 0
        if self._event_set is None or not supported & xid:
            return False
        if not calls.ask(lambda _: True, "nvmlDeviceRegisterEvents", handle, xid, self._event_set):
            return False
        self._watched[_address(handle)] = uuid
        return True

    def _identify(self, seen: list[Gpu]) -> list[Gpu]:
        """Give devices without a readable identity the identity and facts of earlier scans, and others those facts that
        were read before and not now."""
        named = {gpu.uuid for gpu in seen if gpu.uuid is not None}
        before = {gpu.uuid: gpu for gpu in self._gpus}
        return [
            self._restore_identity(gpu, named) if gpu.fault is not None else _with_known(gpu, before.get(gpu.uuid, gpu))
            for gpu in seen
        ]

    def _restore_identity(self, gpu: Gpu, named: set[str]) -> Gpu:
        if gpu.uuid is not None:
            known = next((old for old in self._gpus if old.uuid == gpu.uuid), gpu)
        else:
            # By PCI address where it still reports that, else by index. An index means another GPU after one was
            # removed; a uuid that another GPU of this scan bears shows that.
            free = [old for old in self._gpus if old.uuid not in named]
            same_slot = (old for old in free if gpu.pci_bus_id and old.pci_bus_id == gpu.pci_bus_id)
            same_index = (old for old in free if not gpu.pci_bus_id and old.index == gpu.index)
            known = next(same_slot, None) or next(same_index, gpu)
        return msgspec.structs.replace(known, index=gpu.index, fault=gpu.fault)

    def _with_links(self, gpus: list[Gpu], calls: list[DeviceCalls]) -> tuple[Gpu, ...]:
        endpoints = [
            NvLinkEndpoint(gpu.uuid, gpu.pci_bus_id, self._handles[gpu.uuid], each)
            for gpu, each in zip(gpus, calls, strict=True)
            if gpu.fault is None and gpu.uuid is not None
        ]
        fresh = survey_links(self._nvml, endpoints)
        before = {gpu.uuid: {link.peer: link for link in gpu.links} for gpu in self._gpus}
        return tuple(
            msgspec.structs.replace(
                gpu,
                fault=gpu.fault or each.fault,
                links=_ordered({**before.get(gpu.uuid, {}), **fresh.get(gpu.uuid or "", {})}, gpus),
            )
            for gpu, each in zip(gpus, calls, strict=True)
        )


_LASTING_FACTS = ("minor", "pci_bus_id", "pci_device", "numa_node", "compute_capability", "architecture", "brand")
"""What stays the same as long as the driver runs."""


def _with_known(gpu: Gpu, before: Gpu) -> Gpu:
    known = {name: getattr(before, name) for name in _LASTING_FACTS if getattr(gpu, name) in ("", None)}
    return msgspec.structs.replace(gpu, **known)


def _ordered(links: dict[str, Link], gpus: list[Gpu]) -> tuple[Link, ...]:
    """Links to the devices of this scan, in its order; what a removed GPU was connected to is forgotten."""
    return tuple(links[gpu.uuid] for gpu in gpus if gpu.uuid is not None and gpu.uuid in links)


def _address(handle: Any) -> int:
    """The number behind an opaque handle: NVML gives the same one in events."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _cuda_version(number: Any) -> str:
    return f"{int(number) // 1000}.{int(number) % 1000 // 10}"
