"""NVML's calls for the processes on a device in Python: a part of `python_nvml`."""

import ctypes
from collections.abc import Callable
from types import SimpleNamespace

import pynvml

from purser.core.kubernetes.quantities import MIB
from purser.lab.driver.parts import ProcessState
from purser.lab.driver.python_mig import PythonMig
from purser.lab.driver.python_state import now_us
from purser.lab.driver.state import SAMPLE_US, number_or_none


class PythonProcesses:
    """The calls on one node's GPUs."""

    def __init__(self, mig: PythonMig) -> None:
        self._mig = mig

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
        gpu, place = self._mig.gpu_and_place(handle, call)
        found = [each for each in gpu.processes if is_wanted(each)]
        if place is not None:
            inside = (place.instance, place.compute)
            found = [each for each in found if (each.gpu_instance, each.compute_instance) == inside]
        return [_process(each) for each in found]

    def nvmlDeviceGetProcessUtilization(self, handle: ctypes.c_void_p, last_seen_us: int) -> list[SimpleNamespace]:
        """As in NVML: the last sample of each process that does something; the first one is taken at its start."""
        gpu = self._mig.whole_gpu(handle, "nvmlDeviceGetProcessUtilization")
        sampled_us = now_us() // SAMPLE_US * SAMPLE_US
        samples = [_sample(each, max(sampled_us, each.started_us)) for each in gpu.processes if any(each.load)]
        newer = [sample for sample in samples if sample.timeStamp > last_seen_us]
        if not newer:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return newer


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
