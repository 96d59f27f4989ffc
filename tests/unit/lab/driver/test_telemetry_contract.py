"""What is measured of a simulated node's GPUs: the real binding on the C library, and its stand-in."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from purser.agent.nvml import Driver, GpuProcess, Telemetry
from purser.agent.nvml.gpm import GPM_METRICS, PerformanceMonitor
from purser.agent.nvml.telemetry import SENSOR_CALLS, Meter
from purser.core.kubernetes.quantities import MIB
from purser.core.monitoring.dcgm import METRICS, DcgmType
from purser.lab.driver import DriverKind, SimulatedDriver
from purser.lab.driver.node_mig import create_mig, set_mig
from purser.lab.driver.parts import GpuLoad, ProcessLoad

pytestmark = pytest.mark.processes

Create = Callable[..., SimulatedDriver]
Open = Callable[[SimulatedDriver], Driver]

METRIC_OF = {metric.name: metric for metric in METRICS}
UNSUPPORTED = {each.name for each in GPM_METRICS}
"""Before Hopper: there is no performance monitoring."""
BETWEEN_READINGS = {"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"}
TOLD_ELSEWHERE = {"DCGM_FI_DEV_XID_ERRORS"}


@pytest.fixture
def driver(node: SimulatedDriver, opened: Open) -> Driver:
    driver = opened(node)
    driver.scan()
    return driver


def test_every_field_that_the_gpu_has_is_reported(node: SimulatedDriver, driver: Driver) -> None:
    fields = {metric.name for metric in METRICS if metric.type is not DcgmType.LABEL} - TOLD_ELSEWHERE
    first, second = (driver.telemetry(node.uuids[0]).fields for _ in range(2))
    assert fields - first.keys() == UNSUPPORTED | BETWEEN_READINGS
    assert fields - second.keys() == UNSUPPORTED
    assert first.keys() <= METRIC_OF.keys()


def test_from_hopper_on_profiling_is_a_mean_between_two_readings(
    create: Create, kind: DriverKind, opened: Open
) -> None:
    node = create("h100-8", kind=kind)
    driver = opened(node)
    driver.scan()
    load = GpuLoad(gpu_utilization_percent=60, memory_utilization_percent=40, tensor_percent=30, pcie_tx_kib_per_s=2048)
    node.set_load(0, load)
    first, told = (driver.telemetry(node.uuids[0]).fields for _ in range(2))
    profiled = {name.removeprefix("DCGM_FI_PROF_"): value for name, value in told.items() if name in UNSUPPORTED}
    assert not first.keys() & UNSUPPORTED
    assert profiled == {
        "GR_ENGINE_ACTIVE": pytest.approx(0.6, rel=0.05),
        "PIPE_TENSOR_ACTIVE": pytest.approx(0.3, rel=0.05),
        "DRAM_ACTIVE": pytest.approx(0.4, rel=0.05),
        "PCIE_TX_BYTES": pytest.approx(2 * MIB, rel=0.05),
        "PCIE_RX_BYTES": 0,
    }


def test_profiling_is_reported_for_each_instance(create: Create, kind: DriverKind, opened: Open) -> None:
    node = create("h100-8", kind=kind)
    set_mig(node.folder, 0, enabled=True)
    busy, idle = (create_mig(node.folder, 0, profile) for profile in ("3g.40gb", "1g.10gb"))
    node.add_process(busy, 11, ProcessLoad(memory_mib=100, sm_percent=80, memory_percent=20))
    driver = opened(node)
    driver.scan()
    _, told = (driver.telemetry(node.uuids[0]).instances for _ in range(2))
    found = {
        each.devices[0]: {name: value for name, value in each.fields.items() if name in UNSUPPORTED} for each in told
    }
    engines = [each.name for each in GPM_METRICS[:3]]
    assert found[busy] == dict(
        zip(engines, (pytest.approx(0.8, rel=0.05), 0, pytest.approx(0.2, rel=0.05)), strict=True)
    )
    assert found[idle] == dict.fromkeys(engines, 0)


def test_sensors_are_in_dcgms_units(node: SimulatedDriver, driver: Driver) -> None:
    uuid = node.uuids[1]
    node.set_load(
        uuid,
        GpuLoad(
            gpu_utilization_percent=87,
            memory_utilization_percent=40,
            encoder_utilization_percent=5,
            decoder_utilization_percent=6,
            temperature_celsius=71,
            memory_temperature_celsius=80,
            power_watts=390,
        ),
    )
    node.set_memory_used(uuid, 5000)
    node.replay_pcie(uuid, 3)
    node.remap_rows(uuid, correctable=2, uncorrectable=1, failed=True)
    fields = driver.telemetry(uuid).fields
    told = {name.removeprefix("DCGM_FI_DEV_"): value for name, value in fields.items()}
    assert (told["GPU_UTIL"], told["MEM_COPY_UTIL"]) == (87, 40)
    assert (told["ENC_UTIL"], told["DEC_UTIL"]) == (5, 6)
    assert (told["GPU_TEMP"], told["MEMORY_TEMP"], told["POWER_USAGE"]) == (71, 80, 390)
    assert (told["FB_USED"], told["FB_RESERVED"]) == (5000, 583)
    assert told["FB_FREE"] == 40960 - 5000 - 583
    assert told["PCIE_REPLAY_COUNTER"] == 3
    rows = (told["CORRECTABLE_REMAPPED_ROWS"], told["UNCORRECTABLE_REMAPPED_ROWS"], told["ROW_REMAP_FAILURE"])
    assert rows == (2, 1, 1)


def test_processes_have_memory_and_what_they_take_of_the_gpu(node: SimulatedDriver, driver: Driver) -> None:
    uuid = node.uuids[0]
    assert driver.telemetry(uuid).processes == ()
    node.add_process(uuid, 11, ProcessLoad(memory_mib=2000, sm_percent=60))
    node.add_process(uuid, 12, ProcessLoad(memory_mib=300))
    node.add_process(uuid, 13, ProcessLoad(memory_mib=40, graphics=True, sm_percent=5))
    assert driver.telemetry(uuid).processes == (
        GpuProcess(11, 2000 * MIB, 60),
        GpuProcess(12, 300 * MIB, 0),
        GpuProcess(13, 40 * MIB, 5),
    )
    assert driver.telemetry(node.uuids[1]).processes == ()
    node.remove_process(uuid, 11)
    node.add_process(uuid, 12, ProcessLoad(memory_mib=900))
    told = driver.telemetry(uuid).processes
    assert told is not None
    assert {each.pid: each.memory for each in told} == {12: 900 * MIB, 13: 40 * MIB}


@pytest.mark.parametrize(
    ("call", "lost"),
    [
        ("nvmlDeviceGetTemperature", {"DCGM_FI_DEV_GPU_TEMP"}),
        ("nvmlDeviceGetFieldValues", {"DCGM_FI_DEV_MEMORY_TEMP"}),
        ("nvmlDeviceGetUtilizationRates", {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL"}),
    ],
)
def test_a_call_that_fails_costs_its_own_fields_of_that_gpu(
    node: SimulatedDriver, driver: Driver, call: str, lost: set[str]
) -> None:
    whole = driver.telemetry(node.uuids[1]).fields.keys()
    node.fail_call(0, call, 999)
    assert whole - driver.telemetry(node.uuids[0]).fields.keys() == lost


def test_a_gpu_without_a_list_of_processes_has_the_rest(node: SimulatedDriver, driver: Driver) -> None:
    node.fail_call(0, "nvmlDeviceGetComputeRunningProcesses", 3)
    told = driver.telemetry(node.uuids[0])
    assert told.processes is None
    assert not told.lists_processes
    assert told.memory is not None


def test_a_lost_gpu_has_no_telemetry_and_the_others_all(node: SimulatedDriver, driver: Driver) -> None:
    node.lose_gpu(0)
    assert driver.telemetry(node.uuids[0]) == Telemetry(uuid=node.uuids[0])
    assert driver.telemetry(node.uuids[1]).fields
    assert driver.telemetry("GPU-nobody") == Telemetry(uuid="GPU-nobody")


def test_mig_is_reported_by_instance_with_the_processes_on_its_devices(node: SimulatedDriver, driver: Driver) -> None:
    of_whole = {f"DCGM_FI_DEV_{name}_UTIL" for name in ("GPU", "MEM_COPY", "ENC", "DEC")}
    assert of_whole <= driver.telemetry(node.uuids[0]).fields.keys()
    set_mig(node.folder, 0, enabled=True)
    assert not of_whole & driver.telemetry(node.uuids[0]).fields.keys()
    assert of_whole <= driver.telemetry(node.uuids[1]).fields.keys()
    large, small = (create_mig(node.folder, 0, profile) for profile in ("3g.20gb", "1g.5gb"))
    assert driver.scan()[0].is_partitioned
    node.add_process(large, 11, ProcessLoad(memory_mib=2000, sm_percent=60))
    node.add_process(small, 12, ProcessLoad(memory_mib=300))
    told = driver.telemetry(node.uuids[0])
    assert told.processes is None
    found = {each.devices: each for each in told.instances}
    assert found.keys() == {(large,), (small,)}
    assert found[large,].processes == (GpuProcess(11, 2000 * MIB, None, large),)
    assert found[small,].processes == (GpuProcess(12, 300 * MIB, None, small),)
    assert found[large,].id != found[small,].id
    used, free = (found[small,].fields[f"DCGM_FI_DEV_FB_{name}"] for name in ("USED", "FREE"))
    assert 300 <= used < 600
    assert 4000 < used + free < 5120
    assert told.fields["DCGM_FI_DEV_GPU_TEMP"]
    assert told.memory is not None
    assert told.memory.total == 40960 * MIB
    assert told.lists_processes
    node.fail_call(0, "nvmlDeviceGetComputeRunningProcesses", 3)
    told = driver.telemetry(node.uuids[0])
    assert [each.processes for each in told.instances] == [None, None]
    assert not told.lists_processes


# --- what no simulated GPU has


class Fake:
    """As much of a binding as one test needs: functions by name, and pynvml's constants and types."""

    def __init__(self, **functions: Callable[..., Any]) -> None:
        self.functions = functions

    def __getattr__(self, name: str) -> Any:
        if name in self.functions:
            return self.functions[name]
        if name.startswith("nvml") and callable(getattr(pynvml, name, None)):
            return self.missing
        return getattr(pynvml, name)

    def missing(self, *_: Any) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


class Samples:
    """GPM: each sample is a number, and what is between two of them is as many percent."""

    def __init__(self) -> None:
        self.alive: set[int] = set()
        self.taken: dict[int, int] = {}
        self.instances: list[int] = []
        self.time = 0

    def alloc(self) -> int:
        number = len(self.alive) + len(self.taken) + 1
        self.alive.add(number)
        return number

    def take(self, _device: Any, sample: int) -> None:
        self.time += 10
        self.taken[sample] = self.time

    def take_of(self, device: Any, instance: int, sample: int) -> None:
        self.instances.append(instance)
        self.take(device, sample)

    def metrics(self, asked: Any) -> Any:
        for metric in asked.metrics[: asked.numMetrics]:
            metric.value = float(self.taken[asked.sample2] - self.taken[asked.sample1])
            metric.nvmlReturn = 0
        asked.metrics[3].nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED
        asked.metrics[4].value = float("nan")
        return asked

    def binding(self, supported: int = 1) -> Fake:
        class MetricsGet(SimpleNamespace):
            def __init__(self) -> None:
                super().__init__(metrics=[SimpleNamespace() for _ in range(8)])

        return Fake(
            c_nvmlGpmMetricsGet_t=MetricsGet,
            nvmlGpmQueryDeviceSupport=lambda device: SimpleNamespace(isSupportedDevice=supported),
            nvmlGpmSampleAlloc=self.alloc,
            nvmlGpmSampleFree=self.alive.remove,
            nvmlGpmSampleGet=self.take,
            nvmlGpmMigSampleGet=self.take_of,
            nvmlGpmMetricsGet=self.metrics,
        )


def test_utilization_is_computed_between_two_samples_and_nothing_leaks() -> None:
    samples = Samples()
    monitor = PerformanceMonitor(samples.binding(), "gpu")
    assert monitor.read() == {}
    for _ in range(3):
        # The fourth is not supported, the fifth is not a number.
        assert monitor.read() == {each.name: pytest.approx(0.1) for each in GPM_METRICS[:3]}
    assert len(samples.alive) == 2
    monitor.close()
    assert not samples.alive


def test_instances_are_sampled_by_their_number_and_unsupported_gpus_not_at_all() -> None:
    samples = Samples()
    PerformanceMonitor(samples.binding(), "gpu", 7).read()
    assert samples.instances == [7]
    PerformanceMonitor(samples.binding(supported=0), "gpu").read()
    PerformanceMonitor(Fake(), "gpu").read()
    assert len(samples.alive) == 1


def test_a_process_in_several_lists_is_one_and_rubbish_is_left_out() -> None:
    def sample(pid: int, at: int, percent: int) -> SimpleNamespace:
        return SimpleNamespace(pid=pid, timeStamp=at, smUtil=percent)

    told = Meter(
        Fake(
            nvmlDeviceGetComputeRunningProcesses_v3=lambda _: [
                SimpleNamespace(pid=1, usedGpuMemory=5),
                SimpleNamespace(pid=2, usedGpuMemory=None),
            ],
            nvmlDeviceGetMPSComputeRunningProcesses_v3=lambda _: [SimpleNamespace(pid=1, usedGpuMemory=7)],
            nvmlDeviceGetProcessUtilization=lambda _, since: [
                sample(1, 9, 30),
                sample(1, 5, 20),
                sample(2, 9, 4 * 10**9),
            ],
            nvmlDeviceGetPowerUsage=lambda _: "rubbish",
            nvmlDeviceGetTemperature=lambda *_: 2**32 - 1,
            nvmlDeviceGetTotalEnergyConsumption=lambda _: 1,
        ),
        "gpu",
        "GPU-1",
    ).read()
    assert told.processes == (GpuProcess(1, 7, 30), GpuProcess(2, None, 0))
    assert told.fields == {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 1}


def test_the_table_of_metrics_names_the_calls_that_are_made() -> None:
    told = {name: asked.call for asked in SENSOR_CALLS for name in asked.names}
    assert all(METRIC_OF[name].call.startswith(call.removesuffix("_v4")) for name, call in told.items())
