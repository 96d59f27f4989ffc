"""What GPU performance monitoring (GPM) counts of a simulated GPU. Hopper and newer have it.

A counter is the metric's value in millionths times the seconds that it lasted: two samples of it, and the time between
them, are its mean.
"""

from collections.abc import Iterable, Mapping

import pynvml

from purser.agent.nvml.devices import ARCHITECTURES
from purser.lab.driver.parts import GpuLoad, ProcessState

KEY = "gpm"
"""Of its readings, whose first argument is the metric, and the second 0 or the GPU instance counted from 1."""

_OLDEST_ARCHITECTURE = "hopper"
_MILLIONTHS = 1_000_000
_KIB_PER_MIB = 1024

ENGINE_METRICS = (
    pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL,
    pynvml.NVML_GPM_METRIC_SM_UTIL,
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
)
"""Metrics in percent, of the GPU or a GPU instance."""
TRAFFIC_METRICS = (
    pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC,
    pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC,
    pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC,
    pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC,
)
"""Metrics in MiB a second, of the GPU alone."""


def has_gpm(architecture: str) -> bool:
    """Whether GPUs of this architecture have it."""
    names = list(ARCHITECTURES.values())
    return names.index(architecture) >= names.index(_OLDEST_ARCHITECTURE)


def gpm_rates(utilization: tuple[int, int], load: GpuLoad, processes: Iterable[ProcessState]) -> dict[str, int]:
    """By how much counters grow each second, by name. ``utilization``: of the GPU and of its memory, in percent."""
    values = dict(zip(ENGINE_METRICS, _engines(*utilization, load.tensor_percent or 0), strict=True))
    rates = {counter(metric): percent * _MILLIONTHS for metric, percent in values.items()}
    traffic = (load.pcie_tx_kib_per_s, load.pcie_rx_kib_per_s, load.nvlink_rx_kib_per_s, load.nvlink_tx_kib_per_s)
    for metric, kib in zip(TRAFFIC_METRICS, traffic, strict=True):
        rates[counter(metric)] = (kib or 0) * _MILLIONTHS // _KIB_PER_MIB
    for instance, (busy, memory) in _by_instance(processes).items():
        for metric, percent in zip(ENGINE_METRICS, _engines(busy, memory, 0), strict=True):
            rates[counter(metric, instance)] = percent * _MILLIONTHS
    return rates


def counter(metric: int, instance: int | None = None) -> str:
    """The name of a counter of the GPU, or of a GPU instance."""
    return f"{KEY}-{metric}" if instance is None else f"{KEY}-{metric}-{instance}"


def instances_with_counters(counters: Iterable[str]) -> set[int]:
    """GPU instances that have counters."""
    parts = (name.split("-") for name in counters if name.startswith(f"{KEY}-"))
    return {int(found[2]) for found in parts if len(found) > 2}


def _engines(busy: int, memory: int, tensor: int) -> tuple[int, int, int, int]:
    return busy, busy, tensor, memory


def _by_instance(processes: Iterable[ProcessState]) -> Mapping[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for each in processes:
        if each.gpu_instance is not None:
            busy, memory = found.get(each.gpu_instance, (0, 0))
            found[each.gpu_instance] = min(100, busy + each.sm_percent), min(100, memory + each.memory_percent)
    return found
