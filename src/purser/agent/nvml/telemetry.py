"""One GPU's sensors, counters, memory and processes, asked of NVML call by call.

What a call does not give is missing, and nothing else with it: a GPU or driver may lack any of them. Health is judged
elsewhere (`devices.take_reading`): nothing here makes a GPU faulty.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from purser.agent.nvml.calls import DeviceCalls, Nvml, as_is
from purser.agent.nvml.driver import GpuProcess, InstanceTelemetry, Telemetry
from purser.agent.nvml.gpm import PerformanceMonitor
from purser.agent.nvml.migs import mig_handles
from purser.core.kubernetes.quantities import MIB
from purser.core.monitoring.accounts import GpuMemory

ALL_LINKS = 0xFFFFFFFF
"""As scope of a field: the sum over a GPU's NVLinks."""

MAX_CELSIUS = 200
"""Drivers report more where there is no sensor, or it fails; DCGM leaves that out, too."""

FIRST_SAMPLES_US = 1_000_000
"""How far back the first question for processes' utilization goes."""


class SensorCall(msgspec.Struct, frozen=True):
    """One call, and which of DCGM's fields its answer has."""

    names: tuple[str, ...]
    call: str
    convert: Callable[[Any], tuple[float, ...]]
    constants: tuple[str, ...] = ()
    """Arguments, by NVML's name of their value."""


def _single_value(value: Any) -> tuple[float, ...]:
    return (float(value),)


def _celsius(value: Any) -> tuple[float, ...]:
    return (float(value),) if int(value) <= MAX_CELSIUS else ()


def _first(values: Any) -> tuple[float, ...]:
    return (float(values[0]),)


def _license_status(features: Any) -> tuple[float, ...]:
    """Of a vGPU: whether it is licensed; the feature's code is NVML_GRID_LICENSE_FEATURE_CODE_VGPU."""
    if not features.isGridLicenseSupported:
        return (0.0,)
    known = features.gridLicensableFeatures[: features.licensableFeaturesCount]
    return (float(any(each.featureCode == 1 and each.featureState for each in known)),)


SENSOR_CALLS: tuple[SensorCall, ...] = (
    SensorCall(("DCGM_FI_DEV_SM_CLOCK",), "nvmlDeviceGetClockInfo", _single_value, ("NVML_CLOCK_SM",)),
    SensorCall(("DCGM_FI_DEV_MEM_CLOCK",), "nvmlDeviceGetClockInfo", _single_value, ("NVML_CLOCK_MEM",)),
    SensorCall(("DCGM_FI_DEV_GPU_TEMP",), "nvmlDeviceGetTemperature", _celsius, ("NVML_TEMPERATURE_GPU",)),
    SensorCall(("DCGM_FI_DEV_POWER_USAGE",), "nvmlDeviceGetPowerUsage", lambda milliwatts: (int(milliwatts) / 1000,)),
    SensorCall(("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",), "nvmlDeviceGetTotalEnergyConsumption", _single_value),
    SensorCall(("DCGM_FI_DEV_PCIE_REPLAY_COUNTER",), "nvmlDeviceGetPcieReplayCounter", _single_value),
    SensorCall(
        ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL"),
        "nvmlDeviceGetUtilizationRates",
        lambda rates: (float(rates.gpu), float(rates.memory)),
    ),
    SensorCall(("DCGM_FI_DEV_ENC_UTIL",), "nvmlDeviceGetEncoderUtilization", _first),
    SensorCall(("DCGM_FI_DEV_DEC_UTIL",), "nvmlDeviceGetDecoderUtilization", _first),
    SensorCall(("DCGM_FI_DEV_VGPU_LICENSE_STATUS",), "nvmlDeviceGetGridLicensableFeatures_v4", _license_status),
    SensorCall(
        (
            "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
            "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
            "DCGM_FI_DEV_ROW_REMAP_FAILURE",
        ),
        "nvmlDeviceGetRemappedRows",
        lambda rows: (float(rows[0]), float(rows[1]), float(bool(rows[3]))),
    ),
)

PROCESS_LISTS = (
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
)
"""A process may be in several of them."""


class Meter:
    """Asks one GPU. What is a rate needs the reading before: it is missing in the first one."""

    def __init__(self, nvml: Nvml, handle: Any, uuid: str) -> None:
        self._nvml = nvml
        self._handle = handle
        self._uuid = uuid
        self._traffic: tuple[float, int] | None = None
        self._samples_seen_us = 0
        self._monitors: dict[int | None, PerformanceMonitor] = {}
        """By GPU instance of MIG; None: of the GPU."""

    def read(self) -> Telemetry:
        """What the GPU says now. Never raises."""
        calls = DeviceCalls(self._nvml)
        memory = self._memory(calls, self._handle)
        fields = {**self._sensors(calls), **self._by_field_number(calls), **memory_fields(memory)}
        instances = self._instances(calls)
        self._close_monitors({None, *(each.id for each in instances)})
        if not calls.is_lost:
            fields |= self._monitor(None).read()
        processes = None if instances else self._processes(calls, self._handle, self._utilizations(calls))
        return Telemetry(uuid=self._uuid, fields=fields, memory=memory, processes=processes, instances=instances)

    def close(self) -> None:
        """Give back what NVML keeps for this: before NVML is shut down."""
        self._close_monitors(set())

    def _sensors(self, calls: DeviceCalls) -> dict[str, float]:
        found: dict[str, float] = {}
        for asked in SENSOR_CALLS:
            constants = [getattr(self._nvml, name) for name in asked.constants]
            values = calls.ask(asked.convert, asked.call, self._handle, *constants)
            found.update(zip(asked.names, values or (), strict=False))
        return found

    def _memory(self, calls: DeviceCalls, handle: Any) -> GpuMemory | None:
        version = getattr(self._nvml, "nvmlMemory_v2", None)
        told = calls.ask(_memory, "nvmlDeviceGetMemoryInfo", handle, version)
        if told is None:  # a driver before R510
            told = calls.ask(_memory, "nvmlDeviceGetMemoryInfo", handle)
        return told

    def _by_field_number(self, calls: DeviceCalls) -> dict[str, float]:
        nvml = self._nvml
        wanted = [
            nvml.NVML_FI_DEV_MEMORY_TEMP,
            (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ALL_LINKS),
            (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ALL_LINKS),
        ]
        now = time.monotonic()
        values = calls.ask(as_is, "nvmlDeviceGetFieldValues", self._handle, wanted)
        if values is None:
            return {}
        temperature, *ways = ((each.value, each.nvmlReturn == nvml.NVML_SUCCESS) for each in values)
        found: dict[str, float] = {}
        if temperature[1] and temperature[0].uiVal <= MAX_CELSIUS:
            found["DCGM_FI_DEV_MEMORY_TEMP"] = float(temperature[0].uiVal)
        if all(is_there for _, is_there in ways):
            found.update(self._link_rate(now, sum(int(value.ullVal) for value, _ in ways)))
        return found

    def _link_rate(self, now: float, total_kib: int) -> Iterator[tuple[str, float]]:
        """As DCGM has it: KiB a second divided by 1000."""
        before, self._traffic = self._traffic, (now, total_kib)
        if before is not None and now > before[0] and total_kib >= before[1]:
            yield "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", (total_kib - before[1]) / (now - before[0]) / 1000

    def _processes(
        self, calls: DeviceCalls, handle: Any, used: Mapping[int, int] | None
    ) -> tuple[GpuProcess, ...] | None:
        """None: the driver lists none. ``used``: percent by pid, of those that did anything."""
        lists = [calls.ask(list, call, handle) for call in PROCESS_LISTS]
        if lists[0] is None:
            return None
        memory: dict[int, int | None] = {}
        for process in (process for each in lists for process in each or ()):
            pid, told = int(process.pid), process.usedGpuMemory
            known = memory.get(pid)
            memory[pid] = known if told is None else max(int(told), known or 0)
        return tuple(
            GpuProcess(pid, amount, None if used is None else used.get(pid, 0))
            for pid, amount in sorted(memory.items())
        )

    def _utilizations(self, calls: DeviceCalls) -> dict[int, int] | None:
        """Percent of the GPU's compute by pid, since the last reading; None: the driver does not report it."""
        if calls.is_lost:
            return None
        since = self._samples_seen_us or time.time_ns() // 1000 - FIRST_SAMPLES_US
        try:
            samples = self._nvml.nvmlDeviceGetProcessUtilization(self._handle, since)
            found = {int(each.pid): (int(each.timeStamp), int(each.smUtil)) for each in _oldest_first(samples)}
        except self._nvml.NVMLError as error:
            # No process was active: an error, or success with a count of zero, which the binding raises as well.
            return {} if error.value in (self._nvml.NVML_ERROR_NOT_FOUND, self._nvml.NVML_SUCCESS) else None
        except Exception:  # rubbish, or a binding without this function
            return None
        self._samples_seen_us = max((at for at, _ in found.values()), default=since)
        return {pid: percent for pid, (_, percent) in found.items() if percent <= 100}

    def _instances(self, calls: DeviceCalls) -> tuple[InstanceTelemetry, ...]:
        """GPU instances with the MIG devices in them; none without MIG."""
        is_on = calls.ask(lambda modes: bool(modes[0]), "nvmlDeviceGetMigMode", self._handle)
        if not is_on:
            return ()
        found: dict[int, InstanceTelemetry] = {}
        for device in mig_handles(calls, self._handle):
            number = calls.ask(int, "nvmlDeviceGetGpuInstanceId", device)
            if number is not None:
                found[number] = self._with_device(calls, device, number, found.get(number))
        return tuple(found[number] for number in sorted(found))

    def _with_device(
        self, calls: DeviceCalls, device: Any, number: int, before: InstanceTelemetry | None
    ) -> InstanceTelemetry:
        """A GPU instance with one more of its MIG devices, which share its memory."""
        uuid = calls.ask(str, "nvmlDeviceGetUUID", device) or ""
        told = self._processes(calls, device, None)
        processes = None if told is None else tuple(msgspec.structs.replace(each, device=uuid) for each in told)
        if before is not None:
            is_known = processes is not None and before.processes is not None
            together = (*(before.processes or ()), *(processes or ())) if is_known else None
            return msgspec.structs.replace(before, devices=(*before.devices, uuid), processes=together)
        memory = self._memory(calls, device)
        return InstanceTelemetry(
            id=number,
            devices=(uuid,),
            fields={**memory_fields(memory), **self._monitor(number).read()},
            memory=memory,
            processes=processes,
        )

    def _monitor(self, instance: int | None) -> PerformanceMonitor:
        if instance not in self._monitors:
            self._monitors[instance] = PerformanceMonitor(self._nvml, self._handle, instance)
        return self._monitors[instance]

    def _close_monitors(self, kept: Iterable[int | None]) -> None:
        for instance in self._monitors.keys() - set(kept):
            self._monitors.pop(instance).close()


def memory_fields(memory: GpuMemory | None) -> dict[str, float]:
    """Memory as DCGM's fields."""
    if memory is None:
        return {}
    found = {"DCGM_FI_DEV_FB_FREE": memory.free // MIB, "DCGM_FI_DEV_FB_USED": memory.used // MIB}
    if memory.reserved is not None:
        found["DCGM_FI_DEV_FB_RESERVED"] = memory.reserved // MIB
    return {name: float(value) for name, value in found.items()}


def _memory(told: Any) -> GpuMemory:
    reserved = getattr(told, "reserved", None)
    return GpuMemory(int(told.total), int(told.free), int(told.used), None if reserved is None else int(reserved))


def _oldest_first(samples: Any) -> list[Any]:
    return sorted(samples, key=lambda each: int(each.timeStamp))
