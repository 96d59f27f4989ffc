"""NVML's calls for samples in Python, those of GPU performance monitoring (GPM) included: a part of `python_nvml`."""

import ctypes
import math
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import msgspec
import pynvml

from purser.lab.driver.gpm import ENGINE_METRICS, KEY
from purser.lab.driver.mig import MigState
from purser.lab.driver.python_mig import MigHandle, PythonMig
from purser.lab.driver.python_state import check_argument, now_us
from purser.lab.driver.readings import SAMPLES, ReadingError, number_of, readings_of
from purser.lab.driver.state import MAX_KEPT_SAMPLES, SAMPLE_US, GpuState

_VERSION = 1
"""Of GPM's structs."""

_OF_UTILIZATION = range(pynvml.NVML_GPU_UTILIZATION_SAMPLES, pynvml.NVML_DEC_UTILIZATION_SAMPLES + 1)


class _TakenSample(msgspec.Struct, frozen=True):
    slot: int
    instance: int | None
    at_us: int
    values: Mapping[int, int]


class PythonSamples:
    """The calls on one node's GPUs. Samples of GPM are handles, as in NVML."""

    def __init__(self, gpu: Callable[[Any, str], GpuState], slot: Callable[[Any], int], mig: PythonMig) -> None:
        """``gpu`` raises NVMLError where this call on it fails; ``slot`` is a handle's place in the state."""
        self._gpu = gpu
        self._slot = slot
        self._mig = mig
        self._numbers = count(1)
        self._samples: dict[int, _TakenSample | None] = {}

    def nvmlDeviceGetSamples(self, handle: Any, kind: int, last_seen_us: int) -> tuple[int, list[Any]]:
        """As in NVML: six a second since the GPU's state is what it is, the oldest first."""
        gpu = self._gpu(handle, SAMPLES)
        if kind in _OF_UTILIZATION and self._mig.state(self._slot(handle)).enabled:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        try:
            number = number_of(gpu, readings_of(gpu), SAMPLES, kind, 0)
        except ReadingError as error:
            raise pynvml.NVMLError(error.code) from None
        newest_us = max(now_us() // SAMPLE_US * SAMPLE_US, gpu.since_us)
        times = (newest_us - back * SAMPLE_US for back in reversed(range(MAX_KEPT_SAMPLES)))
        found = [_sensor_sample(at, number) for at in times if at > last_seen_us and at >= gpu.since_us]
        if not found:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return int(pynvml.NVML_VALUE_TYPE_UNSIGNED_INT), found

    # GPM

    def nvmlGpmQueryDeviceSupport(self, handle: Any) -> Any:
        """As in NVML."""
        support = pynvml.c_nvmlGpmSupport_t()
        support.version = _VERSION
        support.isSupportedDevice = int(_has_gpm(self._gpu(handle, "nvmlGpmQueryDeviceSupport")))
        return support

    def nvmlGpmSampleAlloc(self) -> Any:
        """As in NVML."""
        number = next(self._numbers)
        self._samples[number] = None
        return ctypes.cast(ctypes.c_void_p(number), pynvml.c_nvmlGpmSample_t)

    def nvmlGpmSampleFree(self, sample: Any) -> None:
        """As in NVML."""
        check_argument(self._samples.pop(_number(sample), _ABSENT) is not _ABSENT)

    def nvmlGpmSampleGet(self, handle: Any, sample: Any) -> Any:
        """As in NVML."""
        return self._take(handle, sample, None, self._gpu(handle, "nvmlGpmSampleGet"))

    def nvmlGpmMigSampleGet(self, handle: Any, instance: int, sample: Any) -> Any:
        """As in NVML: of a GPU instance."""
        gpu, mig = self._on_mig(handle, instance)
        check_argument(mig.enabled)
        return self._take(handle, sample, instance, gpu)

    def nvmlGpmMetricsGet(self, asked: Any) -> Any:
        """As in NVML."""
        if asked.version != _VERSION:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
        before, after = (self._samples.get(_number(each)) for each in (asked.sample1, asked.sample2))
        if before is None or after is None or (before.slot, before.instance) != (after.slot, after.instance):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        for metric in asked.metrics[: asked.numMetrics]:
            known = metric.metricId in after.values or (
                after.instance is not None and metric.metricId in ENGINE_METRICS
            )
            metric.nvmlReturn = pynvml.NVML_SUCCESS if known else pynvml.NVML_ERROR_NOT_SUPPORTED
            metric.value = _mean_rate(before, after, metric.metricId)
        return asked

    def _on_mig(self, handle: Any, instance: int) -> tuple[GpuState, MigState]:
        self._gpu(handle, "nvmlGpmMigSampleGet")
        return self._mig.there(MigHandle(self._slot(handle), instance), "nvmlGpmMigSampleGet", is_device=False)

    def _take(self, handle: Any, sample: Any, instance: int | None, gpu: GpuState) -> Any:
        check_argument(_number(sample) in self._samples)
        if not _has_gpm(gpu):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        at_us = now_us()
        wanted = 0 if instance is None else instance + 1
        values = {
            metric: reading.now(gpu, at_us)
            for (call, metric, of), reading in readings_of(gpu).values.items()
            if (call, of) == (KEY, wanted)
        }
        self._samples[_number(sample)] = _TakenSample(self._slot(handle), instance, at_us, values)
        return sample


_ABSENT = object()


def _sensor_sample(at_us: int, number: int) -> Any:
    sample = pynvml.c_nvmlSample_t()
    sample.timeStamp, sample.sampleValue.uiVal = at_us, number
    return sample


def _has_gpm(gpu: GpuState) -> bool:
    return any(call == KEY for call, _, _ in readings_of(gpu).values)


def _mean_rate(before: _TakenSample, after: _TakenSample, metric: int) -> float:
    grown = after.values.get(metric, 0) - before.values.get(metric, 0)
    return grown / (after.at_us - before.at_us) if after.at_us > before.at_us and grown >= 0 else math.nan


def _number(sample: Any) -> int:
    return ctypes.cast(sample, ctypes.c_void_p).value or 0
