"""NVML's GPU performance monitoring (GPM): how busy the parts of a GPU were between two samples.

Drivers have it for Hopper and newer GPUs. A sample is NVML's own memory, two are kept for each GPU or GPU instance.
"""

import math
from typing import Any

import msgspec

from purser.agent.nvml.calls import DeviceCalls, Nvml, as_is
from purser.core.kubernetes.quantities import MIB


class GpmMetric(msgspec.Struct, frozen=True):
    """One of GPM's metrics and DCGM's field for it."""

    name: str
    metric: str
    """NVML's constant."""
    factor: float
    """From GPM's unit, percent or MiB a second, to DCGM's."""


GPM_METRICS: tuple[GpmMetric, ...] = (
    GpmMetric("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "NVML_GPM_METRIC_GRAPHICS_UTIL", 0.01),
    GpmMetric("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "NVML_GPM_METRIC_ANY_TENSOR_UTIL", 0.01),
    GpmMetric("DCGM_FI_PROF_DRAM_ACTIVE", "NVML_GPM_METRIC_DRAM_BW_UTIL", 0.01),
    GpmMetric("DCGM_FI_PROF_PCIE_TX_BYTES", "NVML_GPM_METRIC_PCIE_TX_PER_SEC", MIB),
    GpmMetric("DCGM_FI_PROF_PCIE_RX_BYTES", "NVML_GPM_METRIC_PCIE_RX_PER_SEC", MIB),
)


class PerformanceMonitor:
    """Of one GPU, or one GPU instance of MIG. What fails is tried again with the next reading."""

    def __init__(self, nvml: Nvml, handle: Any, instance: int | None = None) -> None:
        self._nvml = nvml
        self._handle = handle
        self._instance = instance
        self._is_supported: bool | None = None
        self._last: Any = None
        self._spare: Any = None

    def read(self) -> dict[str, float]:
        """DCGM's fields since the last reading; empty in the first one, and where there is no GPM. Never raises."""
        calls = DeviceCalls(self._nvml)
        if self._is_supported is None:
            self._is_supported = calls.ask(_is_supported, "nvmlGpmQueryDeviceSupport", self._handle)
        if not self._is_supported:
            return {}
        sample = self._spare or calls.ask(as_is, "nvmlGpmSampleAlloc")
        self._spare = sample
        if sample is None or not self._take(calls, sample):
            return {}
        before, self._last = self._last, sample
        self._spare = before
        return {} if before is None else self._metrics_between(calls, before, sample)

    def close(self) -> None:
        """Give NVML its samples back."""
        calls = DeviceCalls(self._nvml)
        for sample in (self._last, self._spare):
            if sample is not None:
                calls.ask(as_is, "nvmlGpmSampleFree", sample)
        self._last = self._spare = None

    def _take(self, calls: DeviceCalls, sample: Any) -> bool:
        if self._instance is None:
            return calls.ask(lambda _: True, "nvmlGpmSampleGet", self._handle, sample) or False
        return calls.ask(lambda _: True, "nvmlGpmMigSampleGet", self._handle, self._instance, sample) or False

    def _metrics_between(self, calls: DeviceCalls, before: Any, now: Any) -> dict[str, float]:
        nvml = self._nvml
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version = nvml.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = len(GPM_METRICS)
        asked.sample1, asked.sample2 = before, now
        for place, each in enumerate(GPM_METRICS):
            asked.metrics[place].metricId = getattr(nvml, each.metric)
        answer = calls.ask(as_is, "nvmlGpmMetricsGet", asked)
        if answer is None:
            return {}
        metrics = zip(GPM_METRICS, answer.metrics, strict=False)
        return {
            each.name: metric.value * each.factor
            for each, metric in metrics
            if metric.nvmlReturn == nvml.NVML_SUCCESS and math.isfinite(metric.value) and metric.value >= 0
        }


def _is_supported(support: Any) -> bool:
    return bool(support.isSupportedDevice)
