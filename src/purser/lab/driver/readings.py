"""The numbers that a simulated driver reports for a GPU, by NVML's name of the call and its arguments.

`readings_of` defines the result of each call. The C library gets its table in the state file, the stand-in in Python
calls it. Numbers per GPU, or per GPU and one or two small arguments, are a line here; calls with other results (names,
processes, links, instances) have functions of their own in both.

Counters that grow with time (energy, traffic, time under a limit) are a value and its increase per second.
"""

import time
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import or_

import msgspec
import pynvml

from purser.agent.nvml.devices import ARCHITECTURES, BRANDS
from purser.lab.driver.gpm import ENGINE_METRICS, KEY, TRAFFIC_METRICS, counter, has_gpm, instances_with_counters
from purser.lab.driver.parts import ECC_LOCATIONS, NVLINK_ERRORS, BankSpares, ClocksLimit, MemoryLocation
from purser.lab.driver.state import MEMORY_BANKS, NO_INSTANCE, SAMPLE_US, GpuState, rates_of

ALL_LINKS = NO_INSTANCE
"""As scope of a field: the sum over the links."""

FIELD = "field-"
"""Before the number of a field (NVML_FI_*): its readings have the scope as first argument, and its type as second."""

_UINT, _ULONG_LONG = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
"""nvmlValueType_t."""


def _field_number(name: str) -> int:
    """By its name without NVML_FI_DEV_."""
    return int(getattr(pynvml, f"NVML_FI_DEV_{name}"))


_CLOCKS_REASONS = "nvmlDeviceGetCurrentClocksEventReasons"
_GPU_IDLE = 0x1
_ALL_REASONS = 0x1FF

_PENDING_PAGES = "nvmlDeviceGetRetiredPagesPendingStatus"

_ECC_COUNTERS = ("SBE_VOL", "DBE_VOL", "SBE_AGG", "DBE_AGG")
"""In the order of `EccErrors.counts`, as they are in names of fields."""
_ECC_TOTALS = tuple(_field_number(f"ECC_{counter}_TOTAL") for counter in _ECC_COUNTERS)
_ECC_FIELDS: Mapping[MemoryLocation, tuple[int, ...]] = {
    place: tuple(_field_number(f"ECC_{counter}_{name}") for counter in _ECC_COUNTERS)
    for place, name in (
        (MemoryLocation.L1, "L1"),
        (MemoryLocation.L2, "L2"),
        (MemoryLocation.DRAM, "DEV"),
        (MemoryLocation.REGISTER_FILE, "REG"),
        (MemoryLocation.TEXTURE, "TEX"),
    )
}

_LINKS_WITH_FIELDS = 12
"""Later links have no fields of their own."""
_LINK_ERROR_NAMES = tuple(f"NVLINK_{error.upper().replace('-', '_')}_ERROR_COUNT" for error in NVLINK_ERRORS)
_LINK_ERROR_FIELDS = tuple(
    tuple(_field_number(f"{name}_L{link}") for link in range(_LINKS_WITH_FIELDS)) for name in _LINK_ERROR_NAMES
)
_LINK_ERROR_TOTALS = tuple(_field_number(f"{name}_TOTAL") for name in _LINK_ERROR_NAMES)
_LINK_ERROR_KIND_BY_FIELD = {
    pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY: 0,
    pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY: 1,
    pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC: 2,
}

_REMAPPED_ROWS = (
    pynvml.NVML_FI_DEV_REMAPPED_COR,
    pynvml.NVML_FI_DEV_REMAPPED_UNC,
    pynvml.NVML_FI_DEV_REMAPPED_PENDING,
    pynvml.NVML_FI_DEV_REMAPPED_FAILURE,
)
_POLICIES = {
    pynvml.NVML_FI_DEV_PERF_POLICY_POWER: pynvml.NVML_PERF_POLICY_POWER,
    pynvml.NVML_FI_DEV_PERF_POLICY_THERMAL: pynvml.NVML_PERF_POLICY_THERMAL,
    pynvml.NVML_FI_DEV_PERF_POLICY_SYNC_BOOST: pynvml.NVML_PERF_POLICY_SYNC_BOOST,
    pynvml.NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT: pynvml.NVML_PERF_POLICY_BOARD_LIMIT,
    pynvml.NVML_FI_DEV_PERF_POLICY_LOW_UTILIZATION: pynvml.NVML_PERF_POLICY_LOW_UTILIZATION,
    pynvml.NVML_FI_DEV_PERF_POLICY_RELIABILITY: pynvml.NVML_PERF_POLICY_RELIABILITY,
    pynvml.NVML_FI_DEV_PERF_POLICY_TOTAL_APP_CLOCKS: pynvml.NVML_PERF_POLICY_TOTAL_APP_CLOCKS,
    pynvml.NVML_FI_DEV_PERF_POLICY_TOTAL_BASE_CLOCKS: pynvml.NVML_PERF_POLICY_TOTAL_BASE_CLOCKS,
}
_LINK_TRAFFIC = {
    pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX: "tx",
    pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX: "rx",
    pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_TX: "tx",
    pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_RX: "rx",
}
SRAM_ERRORS = "nvmlDeviceGetSramEccErrorStatus"
SAMPLES = "nvmlDeviceGetSamples"
FABRIC = "nvmlDeviceGetGpuFabricInfo"
"""Also of its newer version: `Fabric.numbers`."""

_SLOWDOWNS = {269: ClocksLimit.SW_THERMAL, 270: ClocksLimit.HW_THERMAL, 271: ClocksLimit.POWER_BRAKE}
"""NVML_FI_DEV_CLOCKS_EVENT_REASON_* as numbers: bindings of the 570 drivers have these names for 251 to 253."""


class Reading(msgspec.Struct, frozen=True):
    """A number, as it was at the GPU's ``since_us``."""

    value: int
    per_second: int = 0

    def now(self, gpu: GpuState, at_us: int | None = None) -> int:
        """What it has grown to now, or at this time in microseconds since the epoch."""
        at_us = time.time_ns() // 1000 if at_us is None else at_us
        return self.value + int(self.per_second * (max(0, at_us - gpu.since_us) / 1_000_000))


class ZeroFields(msgspec.Struct, frozen=True):
    """Fields that are 0 unless a reading says otherwise."""

    first: int
    last: int
    scopes: int
    kind: int


class GpuNumbers(msgspec.Struct, frozen=True):
    """All readings of a GPU. Zeros are left out where ``zeros`` or ``zero_fields`` has them: most of hundreds."""

    values: Mapping[tuple[str, int, int], Reading]
    zeros: Mapping[str, tuple[int, int]]
    """How many values each of a call's two arguments has."""
    zero_fields: tuple[ZeroFields, ...]


def readings_of(gpu: GpuState) -> GpuNumbers:
    """Everything that is read of a GPU. Calls that it does not have are not there."""
    zeros = dict(_zero_counters(gpu))
    zero_fields = tuple(_zero_fields(gpu))
    left_out = {f"{FIELD}{field}" for span in zero_fields for field in range(span.first, span.last + 1)}
    values = {(call, first, second): Reading(value) for call, first, second, value in _values(gpu)}
    values |= dict(_growing_counters(gpu))
    kept = {
        key: reading
        for key, reading in values.items()
        if reading != _NOTHING or (key[0] not in left_out and key[0] not in zeros) or key[1] == ALL_LINKS
    }
    return GpuNumbers(kept, zeros, zero_fields)


class ReadingError(Exception):
    """There is no such number. ``code``: NVML's."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def number_of(gpu: GpuState, readings: GpuNumbers, call: str, first: int, second: int, at_us: int | None = None) -> int:
    """What a call gives now, or at that time. Raises ReadingError."""
    found = readings.values.get((call, first, second))
    if found is not None:
        return found.now(gpu, at_us)
    firsts, seconds = readings.zeros.get(call, (0, 0))
    if first < firsts and second < seconds:
        return 0
    raise ReadingError(_missing_error(call in readings.zeros or any(key[0] == call for key in readings.values)))


def field_of(gpu: GpuState, readings: GpuNumbers, field: int, scope: int) -> tuple[int, int]:
    """A field's value type, and its value now. Raises ReadingError."""
    call = f"{FIELD}{field}"
    for kind in (_UINT, _ULONG_LONG):
        if (found := readings.values.get((call, scope, kind))) is not None:
            return kind, found.now(gpu)
    spans = [span for span in readings.zero_fields if span.first <= field <= span.last]
    if any(scope < span.scopes for span in spans):
        return spans[0].kind, 0
    raise ReadingError(_missing_error(bool(spans) or any(key[0] == call for key in readings.values)))


def _missing_error(is_known: bool) -> int:
    return int(pynvml.NVML_ERROR_INVALID_ARGUMENT if is_known else pynvml.NVML_ERROR_NOT_SUPPORTED)


def _zero_counters(gpu: GpuState) -> Iterator[tuple[str, tuple[int, int]]]:
    yield "nvmlDeviceGetMemoryErrorCounter", (4, len(ECC_LOCATIONS))
    yield "nvmlDeviceGetTotalEccErrors", (2, 2)
    yield "nvmlDeviceGetPcieThroughput", (2, 1)
    if gpu.model.row_remapping:
        yield SRAM_ERRORS, (12, 1)
    if gpu.nvlinks:
        yield "nvmlDeviceGetNvLinkErrorCounter", (len(gpu.nvlinks), len(NVLINK_ERRORS))


def _zero_fields(gpu: GpuState) -> Iterator[ZeroFields]:
    """NVML numbers fields of one kind on end: each span is the first and the last of it."""
    nvml = pynvml
    yield ZeroFields(nvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL, nvml.NVML_FI_DEV_ECC_DBE_AGG_CBU, 1, _ULONG_LONG)
    yield ZeroFields(min(_POLICIES), max(_POLICIES), 1, _ULONG_LONG)
    yield ZeroFields(nvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER, nvml.NVML_FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER, 1, _UINT)
    yield ZeroFields(nvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, nvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 1, _ULONG_LONG)
    yield ZeroFields(min(_SLOWDOWNS), max(_SLOWDOWNS), 1, _ULONG_LONG)
    if gpu.model.row_remapping:
        yield ZeroFields(min(_REMAPPED_ROWS), max(_REMAPPED_ROWS), 1, _UINT)
    else:
        yield ZeroFields(nvml.NVML_FI_DEV_RETIRED_SBE, nvml.NVML_FI_DEV_RETIRED_PENDING, 1, _UINT)
    if links := len(gpu.nvlinks):
        for first, last in (
            ("CRC_FLIT_ERROR_COUNT_L0", "RECOVERY_ERROR_COUNT_TOTAL"),
            ("CRC_FLIT_ERROR_COUNT_L6", "RECOVERY_ERROR_COUNT_L11"),
            ("ECC_DATA_ERROR_COUNT_L0", "ECC_DATA_ERROR_COUNT_TOTAL"),
        ):
            yield ZeroFields(_field_number(f"NVLINK_{first}"), _field_number(f"NVLINK_{last}"), 1, _ULONG_LONG)
        for each in (_LINK_TRAFFIC, _LINK_ERROR_KIND_BY_FIELD):
            yield ZeroFields(min(each), max(each), links, _ULONG_LONG)


_NOTHING = Reading(0)
_CallValue = tuple[str, int, int, int]


def _values(gpu: GpuState) -> Iterator[_CallValue]:
    yield from _facts(gpu)
    yield from _sensors(gpu)
    yield from _ecc(gpu)
    yield from _rows(gpu)
    yield from _sram_errors(gpu)
    yield from _samples(gpu)
    yield from _links(gpu)
    yield "nvmlDeviceGetPcieReplayCounter", 0, 0, gpu.pcie_replays
    yield from _field(pynvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER, gpu.pcie_replays)
    yield from _field(pynvml.NVML_FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER, 0)
    if gpu.recovery_action is not None:
        yield from _field(pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, gpu.recovery_action)


def _facts(gpu: GpuState) -> Iterator[_CallValue]:
    model = gpu.model
    major, minor = map(int, model.compute_capability.split("."))
    yield "nvmlDeviceGetMinorNumber", 0, 0, gpu.minor
    yield "nvmlDeviceGetCudaComputeCapability", 0, 0, major
    yield "nvmlDeviceGetCudaComputeCapability", 1, 0, minor
    yield "nvmlDeviceGetArchitecture", 0, 0, _number_of_name(ARCHITECTURES, model.architecture)
    yield "nvmlDeviceGetBrand", 0, 0, _number_of_name(BRANDS, model.brand)
    yield "nvmlDeviceGetPersistenceMode", 0, 0, 1
    yield "nvmlDeviceGetComputeMode", 0, 0, 0
    yield "nvmlDeviceGetVirtualizationMode", 0, 0, 0
    yield "nvmlDeviceGetMaxMigDeviceCount", 0, 0, model.mig_devices  # zero, not an error, without MIG
    for kind, mhz in enumerate((model.sm_mhz, model.sm_mhz, model.memory_mhz, model.sm_mhz)):
        yield "nvmlDeviceGetMaxClockInfo", kind, 0, mhz


def _sensors(gpu: GpuState) -> Iterator[_CallValue]:
    busy, memory, encoder, decoder = gpu.utilization
    sm_mhz = gpu.sm_mhz
    for kind, mhz in enumerate((sm_mhz, sm_mhz, gpu.model.memory_mhz, sm_mhz)):
        yield "nvmlDeviceGetClockInfo", kind, 0, mhz
    yield _CLOCKS_REASONS, 0, 0, reduce(or_, (each.reasons for each in gpu.slowdowns), 0 if busy else _GPU_IDLE)
    yield "nvmlDeviceGetSupportedClocksEventReasons", 0, 0, _ALL_REASONS
    yield "nvmlDeviceGetPerformanceState", 0, 0, 0
    yield "nvmlDeviceGetUtilizationRates", 0, 0, busy
    yield "nvmlDeviceGetUtilizationRates", 1, 0, memory
    for call, percent in (("Encoder", encoder), ("Decoder", decoder)):
        yield f"nvmlDeviceGet{call}Utilization", 0, 0, percent
        yield f"nvmlDeviceGet{call}Utilization", 1, 0, SAMPLE_US
    yield "nvmlDeviceGetTemperature", 0, 0, gpu.celsius
    if gpu.model.memory_sensor:
        yield from _field(pynvml.NVML_FI_DEV_MEMORY_TEMP, gpu.memory_celsius_now)
    milliwatts, limit = gpu.watts * 1000, gpu.model.power_limit_watts * 1000
    yield "nvmlDeviceGetPowerUsage", 0, 0, milliwatts
    yield "nvmlDeviceGetEnforcedPowerLimit", 0, 0, limit
    yield "nvmlDeviceGetPowerManagementLimit", 0, 0, limit
    yield "nvmlDeviceGetPcieThroughput", 0, 0, gpu.load.pcie_tx_kib_per_s or 0
    yield "nvmlDeviceGetPcieThroughput", 1, 0, gpu.load.pcie_rx_kib_per_s or 0
    yield from _field(pynvml.NVML_FI_DEV_POWER_AVERAGE, milliwatts)
    yield from _field(pynvml.NVML_FI_DEV_POWER_INSTANT, milliwatts)
    yield from _field(pynvml.NVML_FI_DEV_POWER_DEFAULT_LIMIT, limit)
    yield from _field(pynvml.NVML_FI_DEV_POWER_CURRENT_LIMIT, limit)


def _ecc(gpu: GpuState) -> Iterator[_CallValue]:
    counts = {place: errors.counts for place, errors in gpu.ecc.items()}
    totals = [sum(each[which] for each in counts.values()) for which in range(4)]
    yield "nvmlDeviceGetEccMode", 0, 0, 1
    yield "nvmlDeviceGetEccMode", 1, 0, 1
    yield from _field(pynvml.NVML_FI_DEV_ECC_CURRENT, 1)
    yield from _field(pynvml.NVML_FI_DEV_ECC_PENDING, 1)
    for which in range(4):
        kind, counter = which % 2, which // 2
        yield "nvmlDeviceGetTotalEccErrors", kind, counter, totals[which]
        yield from _field(_ECC_TOTALS[which], totals[which], kind=_ULONG_LONG)
        for place, errors in counts.items():
            yield "nvmlDeviceGetMemoryErrorCounter", which, ECC_LOCATIONS.index(place), errors[which]
        for place, fields in _ECC_FIELDS.items():
            yield from _field(fields[which], counts.get(place, (0,) * 4)[which], kind=_ULONG_LONG)


def _rows(gpu: GpuState) -> Iterator[_CallValue]:
    """Ampere and newer replace rows of memory, those before them gave up pages."""
    if gpu.model.row_remapping:
        rows = gpu.remapped_rows
        numbers = (rows.correctable, rows.uncorrectable, int(rows.pending), int(rows.failed))
        for which, number in enumerate(numbers):
            yield "nvmlDeviceGetRemappedRows", which, 0, number
            yield from _field(_REMAPPED_ROWS[which], number)
        used = [gpu.banks.get(spares, 0) for spares in BankSpares]
        for which, banks in enumerate((MEMORY_BANKS - sum(used), *used)):
            yield "nvmlDeviceGetRowRemapperHistogram", which, 0, banks
        return
    yield _PENDING_PAGES, 0, 0, int(any(page.pending for page in gpu.retired_pages))
    for cause, field in enumerate((pynvml.NVML_FI_DEV_RETIRED_SBE, pynvml.NVML_FI_DEV_RETIRED_DBE)):
        yield from _field(field, sum(page.cause == cause for page in gpu.retired_pages))
    yield from _field(pynvml.NVML_FI_DEV_RETIRED_PENDING, int(any(page.pending for page in gpu.retired_pages)))


def _sram_errors(gpu: GpuState) -> Iterator[_CallValue]:
    """In the order of nvmlEccSramErrorStatus_v1_t. Everything but DRAM is SRAM; none of its errors is one of parity."""
    if not gpu.model.row_remapping:
        return
    counts = {place: errors.counts for place, errors in gpu.ecc.items() if place is not MemoryLocation.DRAM}
    volatile_corrected, volatile, corrected, uncorrected = (sum(each[n] for each in counts.values()) for n in range(4))
    of_l2 = counts.get(MemoryLocation.L2, (0,) * 4)[3]
    errors = (0, uncorrected, corrected, 0, volatile, volatile_corrected)
    by_place = (of_l2, uncorrected - of_l2, 0, 0, 0)
    for which, number in enumerate((*errors, *by_place, int(gpu.sram_threshold_exceeded))):
        yield SRAM_ERRORS, which, 0, number


def _samples(gpu: GpuState) -> Iterator[_CallValue]:
    """What each sample says, by nvmlSamplingType_t."""
    sensors = (gpu.watts * 1000, *gpu.utilization, gpu.sm_mhz, gpu.model.memory_mhz)
    for kind, number in enumerate(sensors):
        yield SAMPLES, kind, 0, number


def _links(gpu: GpuState) -> Iterator[_CallValue]:
    if not gpu.nvlinks:
        return
    yield from _field(pynvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON, gpu.model.nvlink_mbps)
    yield from _field(pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT, len(gpu.nvlinks))
    for which, number in enumerate(() if gpu.fabric is None else gpu.fabric.numbers):
        yield FABRIC, which, 0, number
    for number, link in enumerate(gpu.nvlinks):
        mbps = gpu.model.nvlink_mbps if link.active else 0
        yield from _field(pynvml.NVML_FI_DEV_NVLINK_GET_SPEED, mbps, scope=number)
        yield from _field(pynvml.NVML_FI_DEV_NVLINK_GET_STATE, int(link.active), scope=number)
        for kind, count in enumerate(link.errors):
            if count:
                yield "nvmlDeviceGetNvLinkErrorCounter", number, kind, count
        for field, kind in _LINK_ERROR_KIND_BY_FIELD.items():
            yield from _field(field, link.errors[kind], scope=number, kind=_ULONG_LONG)
    for kind, (fields, total) in enumerate(zip(_LINK_ERROR_FIELDS, _LINK_ERROR_TOTALS, strict=True)):
        yield from _field(total, sum(link.errors[kind] for link in gpu.nvlinks), kind=_ULONG_LONG)
        for field, link in zip(fields, gpu.nvlinks, strict=False):
            yield from _field(field, link.errors[kind], kind=_ULONG_LONG)


def _field(number: int, value: int, *, scope: int = 0, kind: int = _UINT) -> Iterator[_CallValue]:
    yield f"{FIELD}{number}", scope, kind, value


def _growing_counters(gpu: GpuState) -> Iterator[tuple[tuple[str, int, int], Reading]]:
    rates = rates_of(gpu)

    def field(number: int, name: str, scope: int = 0) -> tuple[tuple[str, int, int], Reading]:
        return (f"{FIELD}{number}", scope, _ULONG_LONG), counted(name)

    def counted(name: str) -> Reading:
        return Reading(gpu.counted.get(name, 0), rates.get(name, 0))

    yield ("nvmlDeviceGetTotalEnergyConsumption", 0, 0), counted("energy")
    yield field(pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, "energy")
    yield field(pynvml.NVML_FI_DEV_ENERGY, "energy")
    yield field(pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, "pcie-tx")
    yield field(pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, "pcie-rx")
    for number, policy in _POLICIES.items():
        yield ("nvmlDeviceGetViolationStatus", policy, 0), counted(f"policy-{policy}")
        yield field(number, f"policy-{policy}")
    for number, reason in _SLOWDOWNS.items():
        yield field(number, f"slowdown-{reason}")
    for number, way in _LINK_TRAFFIC.items():
        each = [counted(f"nvlink-{way}-{link}") for link in range(len(gpu.nvlinks))]
        for link, reading in enumerate(each):
            yield (f"{FIELD}{number}", link, _ULONG_LONG), reading
        if each:
            total = Reading(sum(one.value for one in each), sum(one.per_second for one in each))
            yield (f"{FIELD}{number}", ALL_LINKS, _ULONG_LONG), total
    if has_gpm(gpu.model.architecture):
        for metric in (*ENGINE_METRICS, *TRAFFIC_METRICS):
            yield (KEY, metric, 0), counted(counter(metric))
        for instance in sorted(instances_with_counters((*rates, *gpu.counted))):
            for metric in ENGINE_METRICS:
                yield (KEY, metric, instance + 1), counted(counter(metric, instance))


def _number_of_name(names: dict[int, str], name: str) -> int:
    """NVML's number of an architecture or brand."""
    return next(number for number, each in names.items() if each == name)
