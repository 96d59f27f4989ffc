"""NVML's calls for what is measured and counted of a device, in Python: a part of `python_nvml`."""

import ctypes
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pynvml

from purser.lab.driver.python_mig import PythonMig
from purser.lab.driver.python_state import PythonState, check_argument, now_us
from purser.lab.driver.readings import FABRIC, SRAM_ERRORS, ReadingError, field_of, number_of, readings_of
from purser.lab.driver.state import GpuState


class _CallShape(msgspec.Struct, frozen=True):
    """A call that gives numbers of `purser.lab.driver.readings`: how many, and under which name if not its own."""

    results: int = 1
    key: str = ""
    in_mig: bool = True
    """Whether a GPU in MIG mode gives them."""


NUMBER_CALLS = {
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
"""What gives nothing but numbers."""


class PythonReadings:
    """The calls on one node's GPUs."""

    def __init__(self, node: PythonState, mig: PythonMig) -> None:
        self._node = node
        self._mig = mig

    def nvmlDeviceGetRowRemapperHistogram(self, handle: ctypes.c_void_p) -> Any:
        """As in NVML."""
        gpu = self._node.gpu(handle, "nvmlDeviceGetRowRemapperHistogram")
        numbers = [_number(gpu, "nvmlDeviceGetRowRemapperHistogram", which) for which in range(5)]
        return pynvml.c_nvmlRowRemapperHistogramValues(*numbers)

    def nvmlDeviceGetSramEccErrorStatus(self, handle: ctypes.c_void_p, status: Any) -> int:
        """As in NVML: fills the struct that ``status`` refers to."""
        into = getattr(status, "_obj", status)
        if into.version != pynvml.nvmlEccSramErrorStatus_v1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
        gpu = self._node.gpu(handle, SRAM_ERRORS)
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
        gpu = self._node.gpu(handle, call)
        into.state, into.status, into.cliqueId, high, low = (_number(gpu, FABRIC, which) for which in range(5))
        into.clusterUuid[:] = (high << 64 | low).to_bytes(16)
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetUtilizationRates(self, handle: ctypes.c_void_p) -> SimpleNamespace:
        """As in NVML."""
        gpu = self._mig.whole_gpu(handle, "nvmlDeviceGetUtilizationRates")
        numbers = [_number(gpu, "nvmlDeviceGetUtilizationRates", which) for which in range(2)]
        return SimpleNamespace(gpu=numbers[0], memory=numbers[1])

    def nvmlDeviceGetViolationStatus(self, handle: ctypes.c_void_p, policy: int) -> SimpleNamespace:
        """As in NVML."""
        gpu = self._node.gpu(handle, "nvmlDeviceGetViolationStatus")
        nanoseconds = _number(gpu, "nvmlDeviceGetViolationStatus", policy)
        return SimpleNamespace(referenceTime=now_us(), violationTime=nanoseconds)

    def nvmlDeviceGetMemoryErrorCounter(self, handle: ctypes.c_void_p, kind: int, counter: int, location: int) -> int:
        """As in NVML."""
        gpu = self._node.gpu(handle, "nvmlDeviceGetMemoryErrorCounter")
        check_argument(kind in (0, 1) and counter in (0, 1))
        return _number(gpu, "nvmlDeviceGetMemoryErrorCounter", counter * 2 + kind, location)

    def nvmlDeviceGetRetiredPages_v2(self, handle: ctypes.c_void_p, cause: int) -> list[dict[str, int]]:
        """As in NVML: reported by GPUs before those that remap rows."""
        gpu = self._node.gpu(handle, "nvmlDeviceGetRetiredPages")
        _number(gpu, "nvmlDeviceGetRetiredPagesPendingStatus")
        pages = [page for page in gpu.retired_pages if page.cause == cause and not page.pending]
        return [{"address": page.address, "timestamp": page.time_us} for page in pages]

    def nvmlDeviceGetRetiredPages(self, handle: ctypes.c_void_p, cause: int) -> list[int]:
        """As in NVML."""
        return [page["address"] for page in self.nvmlDeviceGetRetiredPages_v2(handle, cause)]

    def nvmlDeviceGetFieldValues(self, handle: ctypes.c_void_p, fields: Sequence[int | tuple[int, int]]) -> Any:
        """As in NVML."""
        gpu = self._node.gpu(handle, "nvmlDeviceGetFieldValues")
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

    def numbers(self, call: str, handle: ctypes.c_void_p, *arguments: int) -> Any:
        """One of `NUMBER_CALLS`: gives one number, or several."""
        shape = NUMBER_CALLS[call]
        gpu = (self._node.gpu if shape.in_mig else self._mig.whole_gpu)(handle, call)
        key = shape.key or call
        if shape.results == 1:
            return _number(gpu, key, *arguments)
        return [_number(gpu, key, which) for which in range(shape.results)]


def _number(gpu: GpuState, call: str, first: int = 0, second: int = 0) -> int:
    try:
        return number_of(gpu, readings_of(gpu), call, first, second)
    except ReadingError as error:
        raise pynvml.NVMLError(error.code) from None
