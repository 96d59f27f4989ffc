"""NVML's calls over a simulated node: one table for the C library behind pynvml and for its stand-in in Python."""

import ctypes
import shutil
import threading
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
from tests.tiers import some
from tests.unit.lab.driver.nvml_on_nodes import OpenNvml, plain
from tests.unit.lab.driver.nvml_on_nodes import told as told_by

from purser.core.kubernetes.quantities import MIB
from purser.lab.driver import DriverKind, SimulatedDriver
from purser.lab.driver.compile import find_compiler
from purser.lab.driver.node_mig import set_mig
from purser.lab.driver.parts import BankSpares, ClocksLimit, GpuLoad, MemoryLocation, NvLinkError, ProcessLoad
from purser.lab.driver.python_readings import NUMBER_CALLS

pytestmark = pytest.mark.processes

Create = Callable[..., SimulatedDriver]

NO_INSTANCE = 0xFFFFFFFF
DEADLINE_S = 20
FAR_FUTURE_US = 1 << 62


@pytest.fixture
def nvml(node: SimulatedDriver, open_nvml: OpenNvml) -> Any:
    return open_nvml(node, node.kind)


def told(nvml: Any, call: str, *arguments: object) -> Any:
    """What a call gives, structs as their fields, or the error's number."""
    found = told_by(nvml, call, *arguments)
    names = {"nvmlDeviceGetUtilizationRates": ("gpu", "memory"), "nvmlDeviceGetViolationStatus": ("violationTime",)}
    if call in names and not isinstance(found, str):
        return [found[name] if isinstance(found, dict) else getattr(found, name) for name in names[call]]
    if call == "nvmlDeviceGetFieldValues":
        # The stand-in sets all eight bytes, the library those of the type: the type says how many count.
        return [
            (each.nvmlReturn, each.valueType, each.value.ullVal if each.valueType == 3 else each.value.uiVal)
            for each in found
        ]
    return list(found) if isinstance(found, tuple) else found


NUMBERS = {
    "nvmlDeviceGetClockInfo": [range(5)],
    "nvmlDeviceGetMaxClockInfo": [range(5)],
    "nvmlDeviceGetMemoryErrorCounter": [range(3), range(3), range(9)],
    "nvmlDeviceGetNvLinkErrorCounter": [(0, 3, 11, 12, 18), range(6)],
    "nvmlDeviceGetPcieThroughput": [range(3)],
    "nvmlDeviceGetRetiredPages": [range(3)],
    "nvmlDeviceGetRetiredPages_v2": [range(2)],
    "nvmlDeviceGetTemperature": [range(2)],
    "nvmlDeviceGetTotalEccErrors": [range(3), range(3)],
    "nvmlDeviceGetViolationStatus": [range(13)],
}
"""Calls with arguments, and these."""

PLAIN = sorted(
    (NUMBER_CALLS.keys() - NUMBERS.keys())
    | {"nvmlDeviceGetMigMode", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetGridLicensableFeatures_v4"}
    | {"nvmlDeviceGetRowRemapperHistogram", "nvmlGpmQueryDeviceSupport"}
)


def everything(nvml: Any) -> Iterator[tuple[tuple[object, ...], Any]]:
    """All that NVML says of two GPUs, call by call."""
    for index in (0, 2):
        gpu = nvml.nvmlDeviceGetHandleByIndex(index)
        for call in PLAIN:
            yield (index, call), told(nvml, call, gpu)
        for call, ranges in NUMBERS.items():
            for arguments in product(*ranges):
                yield (index, call, *arguments), told(nvml, call, gpu, *arguments)
        fields = [*range(1, 308), *product((0, 82, 138, 139, 161, 163, 164, 165), (0, 1, 11, 12, 0xFFFFFFFF))]
        answers = told(nvml, "nvmlDeviceGetFieldValues", gpu, fields)
        yield from (((index, "field", field), each) for field, each in zip(fields, answers, strict=True))


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler on this machine")
@pytest.mark.parametrize("profile", some(["mixed-4", "t4-4", "dgx1-v100", "h200-8"], every=2))
def test_the_library_and_its_stand_in_agree(create: Create, open_nvml: OpenNvml, profile: str) -> None:
    node = create(profile, kind=DriverKind.LIBRARY)
    for gpu in (0, 2):
        node.set_load(gpu, GpuLoad(power_watts=0, memory_temperature_celsius=90))
        node.add_process(gpu, 1, ProcessLoad(memory_mib=10, sm_percent=30, encoder_percent=5))
        node.add_ecc_errors(gpu, corrected=3, uncorrected=1)
        node.add_ecc_errors(gpu, place=MemoryLocation.L2, corrected=2)
        node.replay_pcie(gpu, 4)
        if node.state.gpus[gpu].model.row_remapping:
            node.remap_rows(gpu, correctable=1, uncorrectable=2, pending=True)
        else:
            node.retire_page(gpu, 4096)
            node.retire_page(gpu, 8192, double_bit=False)
            node.recover_gpu(gpu)
            node.retire_page(gpu, 12288)
        if node.state.gpus[gpu].nvlinks:
            node.add_nvlink_errors(gpu, 3, NvLinkError.CRC_FLIT, 9)
            node.set_nvlink(gpu, 1, active=False)
    library, stand_in = (dict(everything(open_nvml(node, kind))) for kind in DriverKind)
    assert library == stand_in
    assert len(library) > 1000


def test_processes_are_reported_by_what_they_do(node: SimulatedDriver, nvml: Any) -> None:
    gpu = nvml.nvmlDeviceGetHandleByIndex(1)
    assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(gpu) == nvml.nvmlDeviceGetGraphicsRunningProcesses_v3(gpu) == []
    node.add_process(1, 4711, ProcessLoad(memory_mib=2000))
    node.add_process(1, 4712, ProcessLoad(memory_mib=300, graphics=True))
    [computes] = nvml.nvmlDeviceGetComputeRunningProcesses_v3(gpu)
    [draws] = nvml.nvmlDeviceGetGraphicsRunningProcesses_v3(gpu)
    assert (computes.pid, computes.usedGpuMemory) == (4711, 2000 * MIB)
    assert (draws.pid, draws.usedGpuMemory) == (4712, 300 * MIB)
    assert {computes.gpuInstanceId, computes.computeInstanceId, draws.gpuInstanceId} == {NO_INSTANCE}
    assert nvml.nvmlDeviceGetMPSComputeRunningProcesses_v3(gpu) == []
    node.add_process(1, 4713, ProcessLoad(memory_mib=50, mps=True))
    [client] = nvml.nvmlDeviceGetMPSComputeRunningProcesses_v3(gpu)
    assert (client.pid, client.usedGpuMemory) == (4713, 50 * MIB)
    assert len(nvml.nvmlDeviceGetComputeRunningProcesses_v3(gpu)) == 1
    assert nvml.nvmlDeviceGetMemoryInfo(gpu, version=nvml.nvmlMemory_v2).used == 2350 * MIB


def test_a_gpu_is_as_busy_as_its_processes_unless_set_otherwise(node: SimulatedDriver, nvml: Any) -> None:
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)

    def utilization() -> tuple[int, int]:
        rates = nvml.nvmlDeviceGetUtilizationRates(gpu)
        return rates.gpu, rates.memory

    node.add_process(0, 1, ProcessLoad(memory_mib=10, sm_percent=60, memory_percent=20))
    node.add_process(0, 2, ProcessLoad(memory_mib=10, sm_percent=25, memory_percent=5))
    assert utilization() == (85, 25)
    node.add_process(0, 2, ProcessLoad(memory_mib=10, sm_percent=80))
    assert utilization() == (100, 20)
    node.set_load(0, GpuLoad(gpu_utilization_percent=3))
    assert utilization() == (3, 20)


def test_utilization_is_reported_by_process_and_once(node: SimulatedDriver, nvml: Any) -> None:
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    node.add_process(
        0, 1, ProcessLoad(memory_mib=10, sm_percent=60, memory_percent=20, encoder_percent=7, decoder_percent=8)
    )
    node.add_process(0, 2, ProcessLoad(memory_mib=10))
    [sample] = nvml.nvmlDeviceGetProcessUtilization(gpu, 0)
    assert sample.pid == 1, "an idle process has no samples"
    assert (sample.smUtil, sample.memUtil, sample.encUtil, sample.decUtil) == (60, 20, 7, 8)
    started_us = node.state.gpus[0].processes[0].started_us
    assert started_us <= sample.timeStamp
    assert len(nvml.nvmlDeviceGetProcessUtilization(gpu, started_us - 1)) == 1
    with pytest.raises(nvml.NVMLError) as raised:
        nvml.nvmlDeviceGetProcessUtilization(gpu, FAR_FUTURE_US)
    assert raised.value.value == nvml.NVML_ERROR_NOT_FOUND
    for pid in (1, 2):
        node.remove_process(0, pid)
    set_mig(node.folder, 0, enabled=True)
    with pytest.raises(nvml.NVMLError) as raised:
        nvml.nvmlDeviceGetProcessUtilization(gpu, 0)
    assert raised.value.value == nvml.NVML_ERROR_NOT_SUPPORTED


def test_sensors_are_sampled_while_they_have_values(node: SimulatedDriver, nvml: Any) -> None:
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    node.set_load(0, GpuLoad(gpu_utilization_percent=70, power_watts=300))
    since_us = node.state.gpus[0].since_us
    for kind, value in ((nvml.NVML_GPU_UTILIZATION_SAMPLES, 70), (nvml.NVML_TOTAL_POWER_SAMPLES, 300_000)):
        number_type, samples = nvml.nvmlDeviceGetSamples(gpu, kind, 0)
        assert number_type == nvml.NVML_VALUE_TYPE_UNSIGNED_INT
        assert {each.sampleValue.uiVal for each in samples} == {value}
        times = [each.timeStamp for each in samples]
        assert times == sorted(times)
        assert since_us <= times[0]
    calls = [(nvml.NVML_GPU_UTILIZATION_SAMPLES, FAR_FUTURE_US), (nvml.NVML_OFA_UTILIZATION_SAMPLES, 0)]
    assert [told(nvml, "nvmlDeviceGetSamples", gpu, *each) for each in calls] == ["error 6", "error 2"]
    node.remove_process(0, 1)
    set_mig(node.folder, 0, enabled=True)
    assert told(nvml, "nvmlDeviceGetSamples", gpu, nvml.NVML_GPU_UTILIZATION_SAMPLES, 0) == "error 3"


def test_more_than_a_gpu_has_is_refused(node: SimulatedDriver) -> None:
    node.add_process(0, 1, ProcessLoad(memory_mib=40000))
    node.add_process(0, 1, ProcessLoad(memory_mib=40377))
    with pytest.raises(ValueError, match="has only 0 MiB free, but the process needs 1 MiB"):
        node.add_process(0, 2, ProcessLoad(memory_mib=1))


def fields(nvml: Any, gpu: Any, *asked: int | tuple[int, int]) -> list[int | None]:
    """Values of fields; None: not supported."""
    found = nvml.nvmlDeviceGetFieldValues(gpu, list(asked))
    return [each.value.ullVal if each.nvmlReturn == nvml.NVML_SUCCESS else None for each in found]


def test_sensors_follow_the_load(node: SimulatedDriver, nvml: Any) -> None:
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    idle = nvml.nvmlClocksEventReasonGpuIdle
    assert nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) == 210
    assert nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM) == 1215
    assert nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu) == idle
    assert nvml.nvmlDeviceGetPowerUsage(gpu) == 52_000
    node.add_process(0, 1, ProcessLoad(memory_mib=10, sm_percent=50, decoder_percent=4))
    assert nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) == 1410
    assert nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu) == 0
    assert nvml.nvmlDeviceGetPowerUsage(gpu) == 226_000, "half way from 52 to 400 W"
    assert nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU) == 53
    assert fields(nvml, gpu, nvml.NVML_FI_DEV_MEMORY_TEMP) == [58]
    assert nvml.nvmlDeviceGetDecoderUtilization(gpu)[0] == 4
    node.clear_load(0)
    node.set_load(0, GpuLoad(power_watts=390, temperature_celsius=80, gpu_utilization_percent=0))
    assert nvml.nvmlDeviceGetPowerUsage(gpu) == 390_000
    assert nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) == 210


def test_a_slow_down_has_its_reason_and_its_time_is_counted(node: SimulatedDriver, nvml: Any) -> None:
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    node.add_process(0, 1, ProcessLoad(memory_mib=10, sm_percent=100))
    node.set_slowdowns(0, [ClocksLimit.HW_THERMAL, ClocksLimit.POWER_CAP])
    reasons = nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu)
    assert reasons == 0x4 | 0x8 | 0x40
    assert nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) == 705
    while not nvml.nvmlDeviceGetViolationStatus(gpu, nvml.NVML_PERF_POLICY_THERMAL).violationTime:
        pass
    node.set_slowdowns(0, [])
    after = nvml.nvmlDeviceGetViolationStatus(gpu, nvml.NVML_PERF_POLICY_THERMAL).violationTime
    assert after > 0, "the time that has passed is not forgotten"
    assert nvml.nvmlDeviceGetViolationStatus(gpu, nvml.NVML_PERF_POLICY_THERMAL).violationTime == after
    assert nvml.nvmlDeviceGetViolationStatus(gpu, nvml.NVML_PERF_POLICY_BOARD_LIMIT).violationTime == 0
    assert fields(nvml, gpu, nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN) == [after]
    assert nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) == 1410


def test_energy_and_traffic_grow_by_themselves(node: SimulatedDriver, nvml: Any) -> None:
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    node.set_load(0, GpuLoad(nvlink_tx_kib_per_s=12_000_000, pcie_tx_kib_per_s=70, pcie_rx_kib_per_s=50))
    throughput = [nvml.nvmlDeviceGetPcieThroughput(gpu, way) for way in (nvml.NVML_PCIE_UTIL_TX_BYTES, 1)]
    assert throughput == [70, 50]
    tx = nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX
    while nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) < 2:
        pass
    node.set_nvlink(0, 5, active=False)
    total, of_0, of_5 = fields(nvml, gpu, (tx, 0xFFFFFFFF), (tx, 0), (tx, 5))
    assert total and of_0 and of_5
    assert total >= 12 * of_5
    assert fields(nvml, gpu, (tx, 5)) == [of_5], "a link that is down carries nothing"
    while fields(nvml, gpu, (tx, 0)) == [of_0]:
        pass


def test_a_reset_ends_what_a_reset_ends(node: SimulatedDriver, nvml: Any) -> None:
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    node.add_ecc_errors(0, uncorrected=2)
    node.remap_rows(0, uncorrectable=2, pending=True)
    node.set_slowdowns(0, [ClocksLimit.POWER_BRAKE])
    uncorrected = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED

    def errors() -> tuple[int, int]:
        counters = (nvml.NVML_VOLATILE_ECC, nvml.NVML_AGGREGATE_ECC)
        volatile, aggregate = (nvml.nvmlDeviceGetTotalEccErrors(gpu, uncorrected, counter) for counter in counters)
        return volatile, aggregate

    assert errors() == (2, 2)
    assert list(nvml.nvmlDeviceGetRemappedRows(gpu)) == [0, 2, 1, 0]
    node.recover_gpu(0)
    assert errors() == (0, 2)
    assert list(nvml.nvmlDeviceGetRemappedRows(gpu)) == [0, 2, 0, 0]
    assert nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu) == nvml.nvmlClocksEventReasonGpuIdle
    dram = nvml.NVML_MEMORY_LOCATION_DRAM
    assert nvml.nvmlDeviceGetMemoryErrorCounter(gpu, uncorrected, nvml.NVML_AGGREGATE_ECC, dram) == 2


def test_errors_in_sram_are_counted_beside_those_in_dram(node: SimulatedDriver, nvml: Any) -> None:
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    node.add_ecc_errors(0, uncorrected=5)
    node.add_ecc_errors(0, place=MemoryLocation.L2, corrected=4, uncorrected=1)
    node.add_ecc_errors(0, place=MemoryLocation.SRAM, uncorrected=2)
    node.recover_gpu(0)
    node.add_ecc_errors(0, place=MemoryLocation.SRAM, uncorrected=1)
    node.set_sram_threshold_exceeded(0, True)
    status = nvml.c_nvmlEccSramErrorStatus_v1_t()
    nvml.nvmlDeviceGetSramEccErrorStatus(gpu, ctypes.byref(status))
    found = {name: value for name, value in plain(status).items() if value and name != "version"}
    assert found == {
        "aggregateUncSecDed": 4,
        "aggregateCor": 4,
        "volatileUncSecDed": 1,
        "aggregateUncBucketL2": 1,
        "aggregateUncBucketSm": 3,
        "bThresholdExceeded": 1,
    }
    status.version = 0
    assert told(nvml, "nvmlDeviceGetSramEccErrorStatus", gpu, ctypes.byref(status)) == "error 25"


def test_rows_are_replaced_in_banks_that_have_spare_ones(node: SimulatedDriver, nvml: Any) -> None:
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    node.remap_rows(0, uncorrectable=2)
    node.remap_rows(0, correctable=1, spares=BankSpares.NONE)
    banks = plain(nvml.nvmlDeviceGetRowRemapperHistogram(gpu))
    assert banks == {"max": 637, "high": 2, "partial": 0, "low": 0, "none": 1}
    with pytest.raises(ValueError, match="each of the 640 memory banks already has a remapped row"):
        node.remap_rows(0, correctable=638)


def test_what_a_gpu_lacks_is_not_supported(create: Create, kind: DriverKind, open_nvml: OpenNvml) -> None:
    node = create("t4-4", kind=kind)
    nvml = open_nvml(node, kind)
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    lacking = ["RemappedRows", "MigMode", "RowRemapperHistogram"]
    assert [told(nvml, f"nvmlDeviceGet{call}", gpu) for call in lacking] == ["error 3"] * 3
    assert fields(nvml, gpu, nvml.NVML_FI_DEV_MEMORY_TEMP, nvml.NVML_FI_DEV_NVLINK_LINK_COUNT) == [None, None]
    with pytest.raises(ValueError, match="Tesla T4 does not support row remapping"):
        node.remap_rows(0, pending=True)
    node.retire_page(0, 4096)
    assert nvml.nvmlDeviceGetRetiredPagesPendingStatus(gpu) == 1
    assert nvml.nvmlDeviceGetRetiredPages(gpu, nvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR) == []
    node.recover_gpu(0)
    assert nvml.nvmlDeviceGetRetiredPages(gpu, nvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR) == [4096]


def test_a_link_that_is_not_there_is_named(node: SimulatedDriver) -> None:
    with pytest.raises(LookupError, match="does not have NVLink 12: it has 12 NVLinks, numbered from 0"):
        node.set_nvlink(0, 12, active=False)


def in_background(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """A call that may hang, and what it gave once it has returned."""
    given: list[object] = []
    thread = threading.Thread(target=lambda: given.append(call()), daemon=True)
    thread.start()
    return thread, given


@pytest.mark.parametrize("call", ["nvmlDeviceGetTemperature", "*"])
def test_a_call_that_hangs_leaves_the_other_gpus_alone(node: SimulatedDriver, nvml: Any, call: str) -> None:
    gpu, other = (nvml.nvmlDeviceGetHandleByIndex(index) for index in range(2))
    node.hang_call(0, call)
    thread, given = in_background(lambda: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU))
    assert nvml.nvmlDeviceGetTemperature(other, nvml.NVML_TEMPERATURE_GPU) == 33
    assert not given
    node.clear_failures(0)
    thread.join(DEADLINE_S)
    assert given == [33]


def test_a_driver_that_does_not_answer_hangs_every_call(node: SimulatedDriver, nvml: Any) -> None:
    node.set_hanging(True)
    calls = (nvml.nvmlDeviceGetCount, nvml.nvmlInit, lambda: told(nvml, "nvmlDeviceGetHandleByIndex", 99))
    waiting = [in_background(call) for call in calls]
    assert not any(given for _, given in waiting)
    node.set_hanging(False)
    for thread, _ in waiting:
        thread.join(DEADLINE_S)
    assert [given for _, given in waiting] == [[8], [None], ["error 2"]]


def test_nothing_hangs_once_the_node_is_gone(node: SimulatedDriver, nvml: Any) -> None:
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    node.hang_call(0, "nvmlDeviceGetPowerUsage")
    thread, given = in_background(lambda: nvml.nvmlDeviceGetPowerUsage(gpu))
    shutil.rmtree(node.folder)
    thread.join(DEADLINE_S)
    assert given == [52_000]


def test_more_calls_than_can_fail_are_refused(node: SimulatedDriver) -> None:
    for number in range(16):
        node.fail_call(0, f"nvmlDeviceGet{number}", 999)
    with pytest.raises(ValueError, match="16 calls are already set to fail"):
        node.fail_call(0, "nvmlDeviceGetName", 999)
