"""One device's facts and readings, asked of NVML call by call."""

from ctypes import byref
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from purser.agent.host import sysfs
from purser.agent.nvml.calls import DeviceCalls, Nvml, as_is
from purser.agent.nvml.driver import DeviceReading, Ecc, Gpu, MigMode
from purser.agent.nvml.migs import mig_devices, mig_uuids, total_mib
from purser.core.device.gpus import FabricIds
from purser.core.health.fabric import FabricRegistration, FabricState
from purser.core.health.signs import NvLinks, RecoveryAction, RemappedRows, Slowdown

ARCHITECTURES = {
    2: "kepler",
    3: "maxwell",
    4: "pascal",
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada",
    9: "hopper",
    10: "blackwell",
    13: "rubin",
}
"""nvmlDeviceArchitecture_t. Labels name families by compute capability: `purser.core.features.resources.family`."""

BRANDS = {
    1: "quadro",
    2: "tesla",
    3: "nvs",
    4: "grid",
    5: "geforce",
    6: "titan",
    7: "nvidia-vapps",
    8: "nvidia-vpc",
    9: "nvidia-vcs",
    10: "nvidia-vws",
    11: "nvidia-cloud-gaming",
    12: "quadro-rtx",
    13: "nvidia-rtx",
    14: "nvidia",
    15: "geforce-rtx",
    16: "titan-rtx",
}
"""nvmlBrandType_t."""

SLOWDOWNS = {0x20: Slowdown.SW_THERMAL, 0x40: Slowdown.HW_THERMAL, 0x80: Slowdown.HW_POWER_BRAKE}
"""Bits of nvmlClocksEventReasons."""

NVLINK_ERROR_FIELDS = (
    "NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    "NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
)
"""Those of which DCGM's health check warns from the first one on. CRC errors that matter lead to a replay."""

FABRIC_CALLS = (
    ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t"),
    ("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t"),
)
"""The newer one first."""

FABRIC_STATES = {
    0: FabricState.NOT_SUPPORTED,
    1: FabricState.NOT_STARTED,
    2: FabricState.IN_PROGRESS,
    3: FabricState.COMPLETED,
}
"""nvmlGpuFabricState_t."""


def describe(calls: DeviceCalls, nvml: Nvml, handle: Any, index: int, sysfs_root: Path) -> Gpu:
    """The static facts of a device, without links; what it lacks is in ``calls.fault``."""
    bus_id, pci_device = calls.ask(_pci_identity, "nvmlDeviceGetPciInfo", handle) or ("", "")
    # GPUs that share the machine's memory (GB10, Jetson Thor) support no such question: theirs is not known, 0.
    memory_mib = calls.ask(total_mib, "nvmlDeviceGetMemoryInfo", handle) or 0
    mig = calls.ask(_mig_mode, "nvmlDeviceGetMigMode", handle)
    return Gpu(
        index=index,
        uuid=calls.ask(str, "nvmlDeviceGetUUID", handle),
        name=calls.ask(str, "nvmlDeviceGetName", handle) or "",
        minor=calls.ask(int, "nvmlDeviceGetMinorNumber", handle),
        memory_mib=memory_mib,
        pci_bus_id=bus_id,
        pci_device=pci_device,
        numa_node=sysfs.numa_node(bus_id, sysfs_root) if bus_id else None,
        compute_capability=calls.ask(_dotted, "nvmlDeviceGetCudaComputeCapability", handle) or "",
        architecture=calls.ask(_architecture, "nvmlDeviceGetArchitecture", handle) or "",
        brand=calls.ask(_brand, "nvmlDeviceGetBrand", handle) or "",
        mig=mig,
        migs=mig_devices(calls, handle, memory_mib) if mig is not None and mig.enabled else (),
        fabric=None if calls.is_lost else _ids(_registration(DeviceCalls(nvml), nvml, handle)),
    )


def take_reading(calls: DeviceCalls, nvml: Nvml, handle: Any, uuid: str) -> DeviceReading:
    """Probe a device. Of most calls it only matters whether they fail: `telemetry` has what they say."""
    calls.ask(as_is, "nvmlDeviceGetMemoryInfo", handle)
    calls.ask(as_is, "nvmlDeviceGetUtilizationRates", handle)
    calls.ask(as_is, "nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU)
    calls.ask(as_is, "nvmlDeviceGetPowerUsage", handle)
    reading = DeviceReading(
        uuid=uuid,
        ecc=_ecc(calls, nvml, handle),
        remapped_rows=calls.ask(_remapped_rows, "nvmlDeviceGetRemappedRows", handle),
        recovery_action=_recovery_action(calls, nvml, handle),
    )
    if calls.fault is not None:
        return msgspec.structs.replace(reading, fault=calls.fault)
    optional_calls = DeviceCalls(nvml)  # what fails here says nothing of the GPU
    mig = optional_calls.ask(_mig_mode, "nvmlDeviceGetMigMode", handle)
    is_partitioned = mig is not None and mig.enabled
    return msgspec.structs.replace(
        reading,
        sram_threshold_exceeded=_exceeds_sram_threshold(optional_calls, nvml, handle),
        remapped_rows=_with_exhausted_banks(optional_calls, handle, reading.remapped_rows),
        nvlinks=None if is_partitioned else _nvlinks(optional_calls, nvml, handle),  # there are none in MIG mode
        slowdowns=_slowdowns(optional_calls, handle),
        migs=frozenset(mig_uuids(optional_calls, handle)) if is_partitioned else None,
        registration=_registration(optional_calls, nvml, handle),
    )


def _registration(calls: DeviceCalls, nvml: Nvml, handle: Any) -> FabricRegistration | None:
    """With the NVLink domain that the GPU has joined by the rules of NVIDIA's GPU feature discovery: its registration
    is complete and without an error, and the cluster has a UUID. GPUs of a machine that is a domain of its own have
    none. None: the driver knows no such registration of this GPU.
    """
    for call, struct in FABRIC_CALLS:
        info = getattr(nvml, struct)()
        if calls.ask(as_is, call, handle, byref(info)) is None:
            continue
        state = FABRIC_STATES.get(info.state & 0xFF)  # a byte in nvml.h, an int in the binding
        if state is not FabricState.COMPLETED:
            return None if state is None else FabricRegistration(state)
        if info.status != nvml.NVML_SUCCESS:
            return FabricRegistration(FabricState.FAILED, error=str(nvml.NVMLError(info.status)))
        cluster = bytes(info.clusterUuid)
        return FabricRegistration(
            state, FabricIds(str(UUID(bytes=cluster)), int(info.cliqueId)) if any(cluster) else None
        )
    return None


def _ids(registration: FabricRegistration | None) -> FabricIds | None:
    return None if registration is None else registration.ids


def _nvlinks(calls: DeviceCalls, nvml: Nvml, handle: Any) -> NvLinks | None:
    """None: the GPU has none."""
    links = range(nvml.NVML_NVLINK_MAX_LINKS)
    answers = {link: calls.ask(bool, "nvmlDeviceGetNvLinkState", handle, link) for link in links}
    if all(is_up is None for is_up in answers.values()):
        return None
    return NvLinks(
        up=frozenset(link for link, is_up in answers.items() if is_up),
        down=frozenset(link for link, is_up in answers.items() if is_up is False),
        errors=_nvlink_errors(calls, nvml, handle),
    )


def _nvlink_errors(calls: DeviceCalls, nvml: Nvml, handle: Any) -> int | None:
    """The sum of those that the GPU counts; None where any of them could not be read: the others say no more then."""
    fields = [getattr(nvml, name) for name in NVLINK_ERROR_FIELDS]
    values = calls.ask(list, "nvmlDeviceGetFieldValues", handle, fields)
    if values is None or any(each.nvmlReturn != nvml.NVML_SUCCESS for each in values):
        return None
    return sum(int(each.value.ullVal) for each in values)


def _slowdowns(calls: DeviceCalls, handle: Any) -> frozenset[Slowdown]:
    reasons = calls.ask(int, "nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reasons is None:  # a driver before R535
        reasons = calls.ask(int, "nvmlDeviceGetCurrentClocksThrottleReasons", handle) or 0
    return frozenset(each for bit, each in SLOWDOWNS.items() if reasons & bit)


def _ecc(calls: DeviceCalls, nvml: Nvml, handle: Any) -> Ecc | None:
    enabled = calls.ask(lambda modes: bool(modes[0]), "nvmlDeviceGetEccMode", handle)
    if enabled is None:
        return None

    def errors(kind: int) -> int | None:
        return calls.ask(int, "nvmlDeviceGetTotalEccErrors", handle, kind, nvml.NVML_VOLATILE_ECC)

    if not enabled:
        return Ecc(enabled=False)
    return Ecc(
        enabled=True,
        corrected=errors(nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
        uncorrected=errors(nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
    )


def _exceeds_sram_threshold(calls: DeviceCalls, nvml: Nvml, handle: Any) -> bool:
    status = nvml.c_nvmlEccSramErrorStatus_v1_t()
    answer = calls.ask(as_is, "nvmlDeviceGetSramEccErrorStatus", handle, byref(status))
    return answer is not None and bool(status.bThresholdExceeded)


def _recovery_action(calls: DeviceCalls, nvml: Nvml, handle: Any) -> RecoveryAction | None:
    field = getattr(nvml, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", None)
    if field is None:
        return None
    action = calls.ask(lambda values: _field_value(nvml, values), "nvmlDeviceGetFieldValues", handle, [field])
    if action is None:
        return None
    return RecoveryAction(action) if action in RecoveryAction.__members__.values() else RecoveryAction.OTHER


def _field_value(nvml: Nvml, values: Any) -> int | None:
    value = values[0]
    return int(value.value.uiVal) if value.nvmlReturn == nvml.NVML_SUCCESS else None


def _pci_identity(info: Any) -> tuple[str, str]:
    """Address and device id; NVML has the vendor in the lower half of the id."""
    return sysfs.pci_address(str(info.busId)), f"{int(info.pciDeviceId) >> 16:04x}"


def _dotted(capability: Any) -> str:
    major, minor = capability
    return f"{major}.{minor}"


def _architecture(number: Any) -> str:
    return ARCHITECTURES.get(int(number), "")


def _brand(number: Any) -> str:
    return BRANDS.get(int(number), "")


def _mig_mode(modes: Any) -> MigMode:
    current, pending = modes
    return MigMode(enabled=bool(current), pending=bool(pending))


def _with_exhausted_banks(calls: DeviceCalls, handle: Any, rows: RemappedRows | None) -> RemappedRows | None:
    if rows is None or not rows.correctable + rows.uncorrectable:  # every bank has all of its spare rows
        return rows
    exhausted = calls.ask(lambda banks: int(banks.none), "nvmlDeviceGetRowRemapperHistogram", handle) or 0
    return msgspec.structs.replace(rows, exhausted_banks=exhausted)


def _remapped_rows(rows: Any) -> RemappedRows:
    correctable, uncorrectable, pending, failed = rows
    return RemappedRows(int(correctable), int(uncorrectable), bool(pending), bool(failed))
