"""NVML's calls over a simulated node: one table for the C library behind pynvml and for its stand-in in Python."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from purser.agent.nvml.calls import load_nvml, unload_nvml
from purser.core.kubernetes.quantities import MIB
from purser.lab.driver import DriverKind, SimulatedDriver
from purser.lab.driver.python_nvml import PythonNvml

Create = Callable[..., SimulatedDriver]

NO_INSTANCE = 0xFFFFFFFF
FAR_FUTURE_US = 1 << 62


@pytest.fixture
def node(create: Create, kind: DriverKind) -> SimulatedDriver:
    return create(kind=kind)


@pytest.fixture
def nvml(node: SimulatedDriver) -> Iterator[Any]:
    """pynvml's functions on the node, initialised."""
    if node.kind is DriverKind.PYTHON:
        stand_in = PythonNvml(node.folder / "node.json")
        stand_in.nvmlInit()
        yield stand_in
        return
    module = load_nvml(str(node.library))
    module.nvmlInit()
    yield module
    unload_nvml(module)


def test_processes_are_told_by_what_they_do(node: SimulatedDriver, nvml: Any) -> None:
    gpu = nvml.nvmlDeviceGetHandleByIndex(1)
    assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(gpu) == nvml.nvmlDeviceGetGraphicsRunningProcesses_v3(gpu) == []
    node.add_process(1, 4711, 2000)
    node.add_process(1, 4712, 300, graphics=True)
    [computes] = nvml.nvmlDeviceGetComputeRunningProcesses_v3(gpu)
    [draws] = nvml.nvmlDeviceGetGraphicsRunningProcesses_v3(gpu)
    assert (computes.pid, computes.usedGpuMemory) == (4711, 2000 * MIB)
    assert (draws.pid, draws.usedGpuMemory) == (4712, 300 * MIB)
    assert {computes.gpuInstanceId, computes.computeInstanceId, draws.gpuInstanceId} == {NO_INSTANCE}
    assert nvml.nvmlDeviceGetMemoryInfo(gpu, version=nvml.nvmlMemory_v2).used == 2300 * MIB


def test_a_gpu_is_as_busy_as_its_processes_unless_somebody_said_otherwise(node: SimulatedDriver, nvml: Any) -> None:
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)

    def utilisation() -> tuple[int, int]:
        rates = nvml.nvmlDeviceGetUtilizationRates(gpu)
        return rates.gpu, rates.memory

    node.add_process(0, 1, 10, sm_percent=60, memory_percent=20)
    node.add_process(0, 2, 10, sm_percent=25, memory_percent=5)
    assert utilisation() == (85, 25)
    node.add_process(0, 2, 10, sm_percent=80)
    assert utilisation() == (100, 20)
    node.set_load(0, gpu_utilisation_percent=3)
    assert utilisation() == (3, 20)


def test_utilisation_is_told_by_process_and_once(node: SimulatedDriver, nvml: Any) -> None:
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    node.add_process(0, 1, 10, sm_percent=60, memory_percent=20, encoder_percent=7, decoder_percent=8)
    node.add_process(0, 2, 10)
    [sample] = nvml.nvmlDeviceGetProcessUtilization(gpu, 0)
    assert sample.pid == 1, "an idle process has no samples"
    assert (sample.smUtil, sample.memUtil, sample.encUtil, sample.decUtil) == (60, 20, 7, 8)
    started_us = node.state.gpus[0].processes[0].started_us
    assert started_us <= sample.timeStamp
    assert len(nvml.nvmlDeviceGetProcessUtilization(gpu, started_us - 1)) == 1
    with pytest.raises(nvml.NVMLError) as raised:
        nvml.nvmlDeviceGetProcessUtilization(gpu, FAR_FUTURE_US)
    assert raised.value.value == nvml.NVML_ERROR_NOT_FOUND
    node.set_mig(0, enabled=True)
    with pytest.raises(nvml.NVMLError) as raised:
        nvml.nvmlDeviceGetProcessUtilization(gpu, 0)
    assert raised.value.value == nvml.NVML_ERROR_NOT_SUPPORTED


def test_more_than_a_gpu_has_is_refused(node: SimulatedDriver) -> None:
    node.add_process(0, 1, 40000)
    node.add_process(0, 1, 40377)
    with pytest.raises(ValueError, match="has 0 MiB free: a process cannot have 1 MiB"):
        node.add_process(0, 2, 1)
