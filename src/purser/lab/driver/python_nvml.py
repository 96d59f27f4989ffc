"""NVML's functions in Python over a simulated node's state: what stands in for the C library without a compiler.

It has pynvml's names and semantics, so that everything above it, the agent's binding included, is the same code. The C
library is the one that proves the binding; a shared table of tests holds the two equal. MIG is in `python_mig`,
samples are in `python_samples`.
"""

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pynvml

from purser.core.kubernetes.quantities import MIB
from purser.lab.driver.mig import device_name, mig_uuid, profile_of
from purser.lab.driver.parts import NvLinkState, ProcessState
from purser.lab.driver.python_mig import MigHandle, PythonMig, mig_handle
from purser.lab.driver.python_samples import PythonSamples, check_argument, now_us
from purser.lab.driver.readings import FABRIC, SRAM_ERRORS, ReadingError, field_of, number_of, readings_of
from purser.lab.driver.state import (
    SAMPLE_US,
    DriverState,
    GpuState,
    cuda_number,
    number_or_none,
    nvml_version,
)

_POLL_SECONDS = 0.02


class _EventSet:
    def __init__(self) -> None:
        self.cursor = 0
        self.since: dict[int, int] = {}


class _CallShape(msgspec.Struct, frozen=True):
    """A call that gives numbers of `purser.lab.driver.readings`: how many, and under which name if not its own."""

    results: int = 1
    key: str = ""
    in_mig: bool = True
    """Whether a GPU in MIG mode gives them."""


_NUMBERS = {
    "nvmlDeviceGetArchitecture": _CallShape(),
    "nvmlDeviceGetBrand": _CallShape(),
    "nvmlDeviceGetClockInfo": _CallShape(),
    "nvmlDeviceGetComputeMode": _CallShape(),
    "nvmlDeviceGetCudaComputeCapability": _CallShape(2),
    "nvmlDeviceGetCurrentClocksEventReasons": _CallShape(),
    "nvmlDeviceGetCurrentClocksThrottleReasons": _CallShape(key="nvmlDeviceGetCurrentClocksEventReasons"),
    "nvmlDeviceGetDecoderUtilization": _CallShape(2, in_mig=False),
    "nvmlDeviceGetEccMode": _CallShape(2),
    "nvmlDeviceGetEncoderUtilization": _CallShape(2, in_mig=False),
    "nvmlDeviceGetEnforcedPowerLimit": _CallShape(),
    "nvmlDeviceGetMaxClockInfo": _CallShape(),
    "nvmlDeviceGetMaxMigDeviceCount": _CallShape(),
    "nvmlDeviceGetMinorNumber": _CallShape(),
    "nvmlDeviceGetNvLinkErrorCounter": _CallShape(),
    "nvmlDeviceGetPcieReplayCounter": _CallShape(),
    "nvmlDeviceGetPcieThroughput": _CallShape(),
    "nvmlDeviceGetPerformanceState": _CallShape(),
    "nvmlDeviceGetPersistenceMode": _CallShape(),
    "nvmlDeviceGetPowerManagementLimit": _CallShape(),
    "nvmlDeviceGetPowerUsage": _CallShape(),
    "nvmlDeviceGetRemappedRows": _CallShape(4),
    "nvmlDeviceGetRetiredPagesPendingStatus": _CallShape(),
    "nvmlDeviceGetSupportedClocksEventReasons": _CallShape(),
    "nvmlDeviceGetSupportedClocksThrottleReasons": _CallShape(key="nvmlDeviceGetSupportedClocksEventReasons"),
    "nvmlDeviceGetTemperature": _CallShape(),
    "nvmlDeviceGetTotalEccErrors": _CallShape(),
    "nvmlDeviceGetTotalEnergyConsumption": _CallShape(),
    "nvmlDeviceGetVirtualizationMode": _CallShape(),
}


_UNNAMED_ERRORS = {
    pynvml.NVML_ERROR_IN_USE: "In use by another client",
    pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES: "Insufficient Resources",
}
"""Errors that pynvml has no name for: it asks the library for one."""


class PythonNvml:
    """A stand-in for one driver's pynvml module: functions of its own, constants and errors of the real one."""

    def __init__(self, truth: Path) -> None:
        self._truth = truth
        self._stamp: tuple[int, int] | None = None
        self._lock = threading.Lock()
        self._starts = 0
        self._slots: list[int] = []
        self._mig = PythonMig(truth.parent, self._at, _slot)
        self._samples = PythonSamples(self._gpu, _slot, self._mig)
        self.nvmlLib = self
        for code, words in _UNNAMED_ERRORS.items():
            pynvml.NVMLError._errcode_to_string.setdefault(code, words)
        self._refresh()

    def __getattr__(self, name: str) -> Any:
        if name in _NUMBERS:
            return partial(self._numbers, name, _NUMBERS[name])
        for part in (self._mig, self._samples) if name.startswith("nvml") else ():
            if hasattr(type(part), name):
                return getattr(part, name)
        # No functions: a call that is not simulated must fail as in the C library, not reach pynvml's own.
        if name.startswith(("NVML_", "NVMLError", "nvmlEventType", "nvmlMemory_", "nvmlClocks", "c_nvml")):
            return getattr(pynvml, name)
        raise AttributeError(name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(name for name in vars(pynvml) if name.startswith("NVML_"))]

    # The library

    def nvmlInit(self) -> None:
        """Fix the list of devices, or fail as the state says."""
        state = self._wait_for_state()
        if state.init_error:
            raise pynvml.NVMLError(state.init_error)
        self._starts += 1
        self._slots = [index for index, gpu in enumerate(state.gpus) if gpu.present]

    def nvmlShutdown(self) -> None:
        """As in NVML."""
        self._require_started()
        self._starts -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        """As in NVML."""
        return self._require_started().driver_version

    def nvmlSystemGetNVMLVersion(self) -> str:
        """As in NVML."""
        state = self._require_started()
        return nvml_version(state.driver_version, state.cuda_version)

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        """As in NVML."""
        return cuda_number(self._require_started().cuda_version)

    # Devices

    def nvmlDeviceGetCount(self) -> int:
        """As in NVML."""
        self._require_started()
        return len(self._slots)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> ctypes.c_void_p:
        """As in NVML; a handle is the slot, counted from one."""
        self._require_started()
        check_argument(index < len(self._slots))
        handle = ctypes.c_void_p(self._slots[index] + 1)
        self._gpu(handle, "nvmlDeviceGetHandleByIndex")
        return handle

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> ctypes.c_void_p:
        """As in NVML: every GPU is asked, so one that is lost spoils the search for those behind it."""
        self._require_started()
        for slot in self._slots:
            gpu = self._at(slot, "nvmlDeviceGetHandleByUUID")
            if gpu.uuid == uuid:
                return ctypes.c_void_p(slot + 1)
            for place in self._mig.state(slot).devices:
                if mig_uuid(gpu.uuid, *place) == uuid:
                    return MigHandle(slot, *place).as_device()
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceGetIndex(self, handle: ctypes.c_void_p) -> int:
        """As in NVML."""
        self._gpu(handle, "nvmlDeviceGetIndex")
        return self._slots.index(_slot(handle))

    def nvmlDeviceGetUUID(self, handle: ctypes.c_void_p) -> str:
        """As in NVML."""
        gpu, place = self._gpu_and_mig(handle, "nvmlDeviceGetUUID")
        return gpu.uuid if place is None else mig_uuid(gpu.uuid, place.instance, place.compute)

    def nvmlDeviceGetName(self, handle: ctypes.c_void_p) -> str:
        """As in NVML."""
        gpu, place = self._gpu_and_mig(handle, "nvmlDeviceGetName")
        if place is None:
            return gpu.model.name
        return f"{gpu.model.name} MIG {device_name(gpu, self._mig.state(place.slot), place.instance, place.compute)}"

    def nvmlDeviceGetPciInfo(self, handle: ctypes.c_void_p) -> SimpleNamespace:
        """As in NVML, address and ids alone."""
        gpu = self._gpu(handle, "nvmlDeviceGetPciInfo")
        ids = {"pciDeviceId": gpu.model.pci_device_id, "pciSubSystemId": gpu.model.pci_subsystem_id}
        return SimpleNamespace(busId=_bus_id(gpu.pci), **ids)

    def nvmlDeviceGetMemoryInfo(self, handle: ctypes.c_void_p, version: int | None = None) -> SimpleNamespace:
        """As in NVML: the first version counts what the driver reserves as used."""
        gpu, place = self._gpu_and_mig(handle, "nvmlDeviceGetMemoryInfo")
        total, reserved, used = gpu.model.memory_mib * MIB, gpu.model.reserved_mib * MIB, gpu.total_used_mib * MIB
        if place is not None:
            profile = profile_of(gpu, self._mig.state(place.slot), place.instance)
            inside = (each.memory_mib for each in gpu.processes if each.gpu_instance == place.instance)
            total, reserved, used = profile.memory_mib * MIB, 0, sum(inside) * MIB
        free = max(0, total - reserved - used)
        if version:
            return SimpleNamespace(total=total, reserved=reserved, used=used, free=free)
        return SimpleNamespace(total=total, used=used + reserved, free=free)

    def nvmlDeviceGetGridLicensableFeatures_v4(self, handle: ctypes.c_void_p) -> Any:
        """As in NVML; no simulated GPU is a vGPU, which would need a licence."""
        self._gpu(handle, "nvmlDeviceGetGridLicensableFeatures")
        return pynvml.c_nvmlGridLicensableFeatures_v4_t()

    def nvmlDeviceGetRowRemapperHistogram(self, handle: ctypes.c_void_p) -> Any:
        """As in NVML."""
        gpu = self._gpu(handle, "nvmlDeviceGetRowRemapperHistogram")
        numbers = [_number(gpu, "nvmlDeviceGetRowRemapperHistogram", which) for which in range(5)]
        return pynvml.c_nvmlRowRemapperHistogramValues(*numbers)

    def nvmlDeviceGetSramEccErrorStatus(self, handle: ctypes.c_void_p, status: Any) -> int:
        """As in NVML: fills the struct that ``status`` refers to."""
        into = getattr(status, "_obj", status)
        if into.version != pynvml.nvmlEccSramErrorStatus_v1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
        gpu = self._gpu(handle, SRAM_ERRORS)
        for which, (name, *_) in enumerate(into._fields_[1:]):
            setattr(into, name, _number(gpu, SRAM_ERRORS, which))
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetGpuFabricInfo(self, handle: ctypes.c_void_p, info: Any) -> int:
        """As in NVML: fills the struct that ``info`` refers to."""
        return self._fill_fabric(handle, "nvmlDeviceGetGpuFabricInfo", getattr(info, "_obj", info))

    def nvmlDeviceGetGpuFabricInfoV(self, handle: ctypes.c_void_p, info: Any) -> int:
        """The same of its second version."""
        into = getattr(info, "_obj", info)
        if into.version != pynvml.nvmlGpuFabricInfo_v2:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
        return self._fill_fabric(handle, "nvmlDeviceGetGpuFabricInfoV", into)

    def _fill_fabric(self, handle: ctypes.c_void_p, call: str, into: Any) -> int:
        gpu = self._gpu(handle, call)
        into.state, into.status, into.cliqueId, high, low = (_number(gpu, FABRIC, which) for which in range(5))
        into.clusterUuid[:] = (high << 64 | low).to_bytes(16)
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetUtilizationRates(self, handle: ctypes.c_void_p) -> SimpleNamespace:
        """As in NVML."""
        gpu = self._whole_gpu(handle, "nvmlDeviceGetUtilizationRates")
        numbers = [_number(gpu, "nvmlDeviceGetUtilizationRates", which) for which in range(2)]
        return SimpleNamespace(gpu=numbers[0], memory=numbers[1])

    def nvmlDeviceGetViolationStatus(self, handle: ctypes.c_void_p, policy: int) -> SimpleNamespace:
        """As in NVML."""
        gpu = self._gpu(handle, "nvmlDeviceGetViolationStatus")
        nanoseconds = _number(gpu, "nvmlDeviceGetViolationStatus", policy)
        return SimpleNamespace(referenceTime=now_us(), violationTime=nanoseconds)

    def nvmlDeviceGetMemoryErrorCounter(self, handle: ctypes.c_void_p, kind: int, counter: int, location: int) -> int:
        """As in NVML."""
        gpu = self._gpu(handle, "nvmlDeviceGetMemoryErrorCounter")
        check_argument(kind in (0, 1) and counter in (0, 1))
        return _number(gpu, "nvmlDeviceGetMemoryErrorCounter", counter * 2 + kind, location)

    def nvmlDeviceGetRetiredPages_v2(self, handle: ctypes.c_void_p, cause: int) -> list[dict[str, int]]:
        """As in NVML: reported by GPUs before those that remap rows."""
        gpu = self._gpu(handle, "nvmlDeviceGetRetiredPages")
        _number(gpu, "nvmlDeviceGetRetiredPagesPendingStatus")
        pages = [page for page in gpu.retired_pages if page.cause == cause and not page.pending]
        return [{"address": page.address, "timestamp": page.time_us} for page in pages]

    def nvmlDeviceGetRetiredPages(self, handle: ctypes.c_void_p, cause: int) -> list[int]:
        """As in NVML."""
        return [page["address"] for page in self.nvmlDeviceGetRetiredPages_v2(handle, cause)]

    def nvmlDeviceGetFieldValues(self, handle: ctypes.c_void_p, fields: Sequence[int | tuple[int, int]]) -> Any:
        """As in NVML."""
        gpu = self._gpu(handle, "nvmlDeviceGetFieldValues")
        values = (pynvml.c_nvmlFieldValue_t * len(fields))()
        readings = readings_of(gpu)
        for value, field in zip(values, fields, strict=True):
            value.fieldId, value.scopeId = field if isinstance(field, tuple) else (field, 0)
            value.timestamp = now_us()
            try:
                value.valueType, number = field_of(gpu, readings, value.fieldId, value.scopeId)
                value.value.ullVal = number
            except ReadingError as error:
                value.nvmlReturn = error.code
        return values

    def _numbers(self, call: str, shape: "_CallShape", handle: ctypes.c_void_p, *arguments: int) -> Any:
        """A call that gives one number, or several."""
        gpu = (self._gpu if shape.in_mig else self._whole_gpu)(handle, call)
        key = shape.key or call
        if shape.results == 1:
            return _number(gpu, key, *arguments)
        return [_number(gpu, key, which) for which in range(shape.results)]

    # Processes

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: ctypes.c_void_p) -> list[SimpleNamespace]:
        """As in NVML."""
        return self._processes(
            handle, "nvmlDeviceGetComputeRunningProcesses", lambda each: not each.graphics and not each.mps
        )

    def nvmlDeviceGetGraphicsRunningProcesses_v3(self, handle: ctypes.c_void_p) -> list[SimpleNamespace]:
        """As in NVML."""
        return self._processes(handle, "nvmlDeviceGetGraphicsRunningProcesses", lambda each: each.graphics)

    def nvmlDeviceGetMPSComputeRunningProcesses_v3(self, handle: ctypes.c_void_p) -> list[SimpleNamespace]:
        """As in NVML."""
        return self._processes(handle, "nvmlDeviceGetMPSComputeRunningProcesses", lambda each: each.mps)

    def _processes(
        self, handle: ctypes.c_void_p, call: str, is_wanted: Callable[[ProcessState], bool]
    ) -> list[SimpleNamespace]:
        gpu, place = self._gpu_and_mig(handle, call)
        found = [each for each in gpu.processes if is_wanted(each)]
        if place is not None:
            inside = (place.instance, place.compute)
            found = [each for each in found if (each.gpu_instance, each.compute_instance) == inside]
        return [_process(each) for each in found]

    def nvmlDeviceGetProcessUtilization(self, handle: ctypes.c_void_p, last_seen_us: int) -> list[SimpleNamespace]:
        """As in NVML: the last sample of each process that does something; the first one is taken at its start."""
        gpu = self._whole_gpu(handle, "nvmlDeviceGetProcessUtilization")
        sampled_us = now_us() // SAMPLE_US * SAMPLE_US
        samples = [_sample(each, max(sampled_us, each.started_us)) for each in gpu.processes if any(each.load)]
        newer = [sample for sample in samples if sample.timeStamp > last_seen_us]
        if not newer:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return newer

    # Topology

    def nvmlDeviceGetTopologyCommonAncestor(self, one: ctypes.c_void_p, other: ctypes.c_void_p) -> int:
        """As in NVML."""
        gpu = self._gpu(one, "nvmlDeviceGetTopologyCommonAncestor")
        self._gpu(other, "nvmlDeviceGetTopologyCommonAncestor")
        return gpu.levels[_slot(other)]

    def nvmlDeviceGetNvLinkState(self, handle: ctypes.c_void_p, link: int) -> int:
        """As in NVML."""
        return int(self._link(handle, link, "nvmlDeviceGetNvLinkState").active)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: ctypes.c_void_p, link: int) -> int:
        """As in NVML."""
        return self._link(handle, link, "nvmlDeviceGetNvLinkRemoteDeviceType").remote_type

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: ctypes.c_void_p, link: int) -> SimpleNamespace:
        """As in NVML, the address alone."""
        return SimpleNamespace(busId=_bus_id(self._link(handle, link, "nvmlDeviceGetNvLinkRemotePciInfo").remote))

    def _link(self, handle: ctypes.c_void_p, link: int, call: str) -> NvLinkState:
        links = self._gpu(handle, call).nvlinks
        _require_supported(bool(links))
        check_argument(link < len(links))
        return links[link]

    # Events

    def nvmlEventSetCreate(self) -> _EventSet:
        """As in NVML."""
        self._require_started()
        return _EventSet()

    def nvmlEventSetFree(self, event_set: _EventSet) -> None:
        """As in NVML."""
        event_set.since.clear()

    def nvmlDeviceGetSupportedEventTypes(self, handle: ctypes.c_void_p) -> int:
        """As in NVML: Xids are."""
        self._gpu(handle, "nvmlDeviceGetSupportedEventTypes")
        return int(pynvml.nvmlEventTypeXidCriticalError)

    def nvmlDeviceRegisterEvents(self, handle: ctypes.c_void_p, _types: int, event_set: _EventSet) -> None:
        """As in NVML: what happened before is not delivered."""
        self._gpu(handle, "nvmlDeviceRegisterEvents")
        events = self._require_started().events
        event_set.since.setdefault(_slot(handle), events[-1].sequence if events else 0)

    def nvmlEventSetWait_v2(self, event_set: _EventSet, timeout_ms: int) -> SimpleNamespace:
        """As in NVML, by looking at the state again and again."""
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            for event in self._require_started().events:
                if event.sequence <= event_set.cursor:
                    continue
                event_set.cursor = event.sequence
                if event.sequence > event_set.since.get(event.gpu, event.sequence):
                    return SimpleNamespace(
                        device=ctypes.c_void_p(event.gpu + 1),
                        eventType=pynvml.nvmlEventTypeXidCriticalError,
                        eventData=event.xid,
                        gpuInstanceId=number_or_none(event.gpu_instance),
                        computeInstanceId=number_or_none(event.compute_instance),
                    )
            left = deadline - time.monotonic()
            if left <= 0:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
            time.sleep(min(left, _POLL_SECONDS))

    # The state

    def _refresh(self) -> DriverState:
        with self._lock:
            status = self._truth.stat()
            stamp = (status.st_ino, status.st_mtime_ns)
            if stamp != self._stamp:
                self._state = msgspec.json.decode(self._truth.read_bytes(), type=DriverState)
                self._stamp = stamp
            return self._state

    def _require_started(self) -> DriverState:
        state = self._wait_for_state()
        if not self._starts:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
        return state

    def _wait_for_state(self, does_hang: Callable[[DriverState], bool] = lambda _: False) -> DriverState:
        """The state, once a call that hangs returns: at the latest when the node's folder is removed."""
        while True:
            try:
                state = self._refresh()
            except FileNotFoundError:
                return self._state
            if not state.hangs and not does_hang(state):
                return state
            time.sleep(_POLL_SECONDS)

    def _gpu(self, handle: ctypes.c_void_p, call: str) -> GpuState:
        """The GPU, unless this call on it fails, or is none on whole GPUs."""
        return self._at(_slot(handle), call)

    def _whole_gpu(self, handle: ctypes.c_void_p, call: str) -> GpuState:
        """The same of a call that is not supported on a GPU in MIG mode."""
        gpu = self._gpu(handle, call)
        _require_supported(not self._mig.state(_slot(handle)).enabled)
        return gpu

    def _gpu_and_mig(self, handle: ctypes.c_void_p, call: str) -> tuple[GpuState, MigHandle | None]:
        """The GPU, and the place on it where the handle is that of a MIG device."""
        place = mig_handle(handle)
        if place is None:
            return self._gpu(handle, call), None
        return self._mig.there(place, call)[0], place

    def _at(self, slot: int, call: str) -> GpuState:
        """The GPU at a place, unless this call on it fails."""
        check_argument(0 <= slot < len(self._require_started().gpus))
        gpu = self._wait_for_state(lambda state: any(_names(each, call) for each in state.gpus[slot].hanging)).gpus[
            slot
        ]
        if gpu.lost or not gpu.present:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        for failure in gpu.failing:
            if _names(failure.call, call):
                raise pynvml.NVMLError(failure.code)
        return gpu


def _names(name: str, call: str) -> bool:
    """A call is named with or without its version."""
    return name in ("*", call) or name.partition("_v")[0] == call.partition("_v")[0]


def _slot(handle: Any) -> int:
    """The place of a whole GPU; others are at none."""
    return (ctypes.cast(handle, ctypes.c_void_p).value or 0) - 1


def _process(process: ProcessState) -> SimpleNamespace:
    return SimpleNamespace(
        pid=process.pid,
        usedGpuMemory=process.memory_mib * MIB,
        gpuInstanceId=number_or_none(process.gpu_instance),
        computeInstanceId=number_or_none(process.compute_instance),
    )


def _sample(process: ProcessState, time_us: int) -> SimpleNamespace:
    names = ("smUtil", "memUtil", "encUtil", "decUtil")
    return SimpleNamespace(pid=process.pid, timeStamp=time_us, **dict(zip(names, process.load, strict=True)))


def _number(gpu: GpuState, call: str, first: int = 0, second: int = 0) -> int:
    try:
        return number_of(gpu, readings_of(gpu), call, first, second)
    except ReadingError as error:
        raise pynvml.NVMLError(error.code) from None


def _require_supported(condition: bool) -> None:
    if not condition:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def _bus_id(pci: str) -> str:
    """As NVML spells it: ``00000000:07:00.0``."""
    return f"0000{pci}".upper()
