"""NVML's functions in Python over a simulated node's state: what stands in for the C library without a compiler.

It has pynvml's names and semantics for exactly the calls that `nvml.c` exports, so that everything above it, the
agent's binding included, is the same code. The C library is the one that proves the binding; a shared table of tests
holds the two equal.
"""

import ctypes
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pynvml

from purser.agent.nvml.devices import ARCHITECTURES, BRANDS
from purser.core.kubernetes.quantities import MIB
from purser.lab.driver.state import (
    SAMPLE_US,
    DriverState,
    GpuState,
    NvLinkState,
    ProcessState,
    cuda_number,
    number_of,
    number_or_none,
    nvml_version,
)

_POLL_SECONDS = 0.02


class _EventSet:
    def __init__(self) -> None:
        self.cursor = 0
        self.since: dict[int, int] = {}


class PythonNvml:
    """A stand-in for one driver's pynvml module: functions of its own, constants and errors of the real one."""

    def __init__(self, truth: Path) -> None:
        self._truth = truth
        self._stamp: tuple[int, int] | None = None
        self._lock = threading.Lock()
        self._starts = 0
        self._slots: list[int] = []
        self.nvmlLib = self
        self._refresh()

    def __getattr__(self, name: str) -> Any:
        # Only what is no function: a call that is not simulated must fail as in the C library, not reach pynvml's own.
        if name.startswith(("NVML_", "NVMLError", "nvmlEventType", "nvmlMemory_")):
            return getattr(pynvml, name)
        raise AttributeError(name)

    # The library

    def nvmlInit(self) -> None:
        """Fix the list of devices, or fail as the state says."""
        state = self._refresh()
        if state.init_error:
            raise pynvml.NVMLError(state.init_error)
        self._starts += 1
        self._slots = [index for index, gpu in enumerate(state.gpus) if gpu.present]

    def nvmlShutdown(self) -> None:
        """As in NVML."""
        self._running()
        self._starts -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        """As in NVML."""
        return self._running().driver_version

    def nvmlSystemGetNVMLVersion(self) -> str:
        """As in NVML."""
        state = self._running()
        return nvml_version(state.driver_version, state.cuda_version)

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        """As in NVML."""
        return cuda_number(self._running().cuda_version)

    # Devices

    def nvmlDeviceGetCount(self) -> int:
        """As in NVML."""
        self._running()
        return len(self._slots)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> ctypes.c_void_p:
        """As in NVML; a handle is the slot, counted from one."""
        self._running()
        if index >= len(self._slots):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        handle = ctypes.c_void_p(self._slots[index] + 1)
        self._gpu(handle, "nvmlDeviceGetHandleByIndex")
        return handle

    def nvmlDeviceGetUUID(self, handle: ctypes.c_void_p) -> str:
        """As in NVML."""
        return self._gpu(handle, "nvmlDeviceGetUUID").uuid

    def nvmlDeviceGetName(self, handle: ctypes.c_void_p) -> str:
        """As in NVML."""
        return self._gpu(handle, "nvmlDeviceGetName").model.name

    def nvmlDeviceGetMinorNumber(self, handle: ctypes.c_void_p) -> int:
        """As in NVML."""
        return self._gpu(handle, "nvmlDeviceGetMinorNumber").minor

    def nvmlDeviceGetPciInfo(self, handle: ctypes.c_void_p) -> SimpleNamespace:
        """As in NVML, the address alone."""
        return SimpleNamespace(busId=_bus_id(self._gpu(handle, "nvmlDeviceGetPciInfo").pci))

    def nvmlDeviceGetMemoryInfo(self, handle: ctypes.c_void_p, version: int | None = None) -> SimpleNamespace:
        """As in NVML: the first version counts what the driver reserves as used."""
        gpu = self._gpu(handle, "nvmlDeviceGetMemoryInfo")
        reserved = 0 if version else gpu.model.reserved_mib
        return SimpleNamespace(total=gpu.model.memory_mib * MIB, used=(gpu.total_used_mib + reserved) * MIB)

    def nvmlDeviceGetCudaComputeCapability(self, handle: ctypes.c_void_p) -> tuple[int, int]:
        """As in NVML."""
        major, _, minor = self._gpu(handle, "nvmlDeviceGetCudaComputeCapability").model.compute_capability.partition(
            "."
        )
        return int(major), int(minor)

    def nvmlDeviceGetArchitecture(self, handle: ctypes.c_void_p) -> int:
        """As in NVML."""
        return number_of(ARCHITECTURES, self._gpu(handle, "nvmlDeviceGetArchitecture").model.architecture)

    def nvmlDeviceGetBrand(self, handle: ctypes.c_void_p) -> int:
        """As in NVML."""
        return number_of(BRANDS, self._gpu(handle, "nvmlDeviceGetBrand").model.brand)

    def nvmlDeviceGetMigMode(self, handle: ctypes.c_void_p) -> tuple[int, int]:
        """As in NVML."""
        gpu = self._gpu(handle, "nvmlDeviceGetMigMode")
        _supported(gpu.model.mig_devices > 0)
        return int(gpu.mig_enabled), int(gpu.mig_enabled)

    # Readings

    def nvmlDeviceGetUtilizationRates(self, handle: ctypes.c_void_p) -> SimpleNamespace:
        """As in NVML."""
        gpu = self._gpu(handle, "nvmlDeviceGetUtilizationRates")
        return SimpleNamespace(gpu=gpu.utilisation[0], memory=gpu.utilisation[1])

    def nvmlDeviceGetTemperature(self, handle: ctypes.c_void_p, _sensor: int) -> int:
        """As in NVML."""
        return self._gpu(handle, "nvmlDeviceGetTemperature").temperature_celsius

    def nvmlDeviceGetPowerUsage(self, handle: ctypes.c_void_p) -> int:
        """As in NVML."""
        return self._gpu(handle, "nvmlDeviceGetPowerUsage").power_watts * 1000

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: ctypes.c_void_p) -> int:
        """As in NVML."""
        return self._gpu(handle, "nvmlDeviceGetEnforcedPowerLimit").model.power_limit_watts * 1000

    def nvmlDeviceGetEccMode(self, handle: ctypes.c_void_p) -> tuple[int, int]:
        """As in NVML."""
        self._gpu(handle, "nvmlDeviceGetEccMode")
        return 1, 1

    def nvmlDeviceGetTotalEccErrors(self, handle: ctypes.c_void_p, kind: int, _counter: int) -> int:
        """As in NVML."""
        gpu = self._gpu(handle, "nvmlDeviceGetTotalEccErrors")
        return gpu.ecc_uncorrected if kind == pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED else gpu.ecc_corrected

    def nvmlDeviceGetRemappedRows(self, handle: ctypes.c_void_p) -> tuple[int, int, int, int]:
        """As in NVML."""
        _supported(self._gpu(handle, "nvmlDeviceGetRemappedRows").model.row_remapping)
        return 0, 0, 0, 0

    def nvmlDeviceGetFieldValues(self, handle: ctypes.c_void_p, fields: Sequence[int]) -> list[SimpleNamespace]:
        """As in NVML, for the one field that is simulated."""
        gpu = self._gpu(handle, "nvmlDeviceGetFieldValues")
        return [self._field(gpu, field) for field in fields]

    @staticmethod
    def _field(gpu: GpuState, field: int) -> SimpleNamespace:
        known = field == pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION and gpu.recovery_action is not None
        result = pynvml.NVML_SUCCESS if known else pynvml.NVML_ERROR_NOT_SUPPORTED
        return SimpleNamespace(nvmlReturn=result, value=SimpleNamespace(uiVal=gpu.recovery_action or 0))

    # Processes

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: ctypes.c_void_p) -> list[SimpleNamespace]:
        """As in NVML."""
        gpu = self._gpu(handle, "nvmlDeviceGetComputeRunningProcesses")
        return [_process(each) for each in gpu.processes if not each.graphics]

    def nvmlDeviceGetGraphicsRunningProcesses_v3(self, handle: ctypes.c_void_p) -> list[SimpleNamespace]:
        """As in NVML."""
        gpu = self._gpu(handle, "nvmlDeviceGetGraphicsRunningProcesses")
        return [_process(each) for each in gpu.processes if each.graphics]

    def nvmlDeviceGetProcessUtilization(self, handle: ctypes.c_void_p, last_seen_us: int) -> list[SimpleNamespace]:
        """As in NVML: the last sample of each process that does something; the first one is taken at its start."""
        gpu = self._gpu(handle, "nvmlDeviceGetProcessUtilization")
        _supported(not gpu.mig_enabled)
        sampled_us = time.time_ns() // 1000 // SAMPLE_US * SAMPLE_US
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
        _supported(bool(links))
        if link >= len(links):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return links[link]

    # Events

    def nvmlEventSetCreate(self) -> _EventSet:
        """As in NVML."""
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
        events = self._running().events
        event_set.since.setdefault(_slot(handle), events[-1].sequence if events else 0)

    def nvmlEventSetWait_v2(self, event_set: _EventSet, timeout_ms: int) -> SimpleNamespace:
        """As in NVML, by looking at the state again and again."""
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            for event in self._running().events:
                if event.sequence <= event_set.cursor:
                    continue
                event_set.cursor = event.sequence
                if event.sequence > event_set.since.get(event.gpu, event.sequence):
                    return SimpleNamespace(
                        device=ctypes.c_void_p(event.gpu + 1),
                        eventType=pynvml.nvmlEventTypeXidCriticalError,
                        eventData=event.xid,
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

    def _running(self) -> DriverState:
        if not self._starts:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
        return self._refresh()

    def _gpu(self, handle: ctypes.c_void_p, call: str) -> GpuState:
        """The GPU, unless this call on it fails."""
        gpu = self._running().gpus[_slot(handle)]
        if gpu.lost or not gpu.present:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        for failure in gpu.failures:
            if failure.call == "*" or failure.call.partition("_v")[0] == call:
                raise pynvml.NVMLError(failure.code)
        return gpu


def _slot(handle: ctypes.c_void_p) -> int:
    return (handle.value or 0) - 1


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


def _supported(condition: bool) -> None:
    if not condition:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def _bus_id(pci: str) -> str:
    """As NVML spells it: ``00000000:07:00.0``."""
    return f"0000{pci}".upper()
