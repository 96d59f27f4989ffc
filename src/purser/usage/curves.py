"""How one GPU was used, or those of one node or pod, over time."""

import json

import msgspec

from purser.usage.over_time import sample_times, values_at
from purser.usage.prometheus import Prometheus
from purser.usage.report import MAX_AMOUNT

_GPU_BUSY = "max(avg_over_time(purser_device_utilization_ratio{selector}[{step}s]))"
_GPU_USED = "max(avg_over_time(purser_device_memory_used_bytes{selector}[{step}s]))"
_GPU_HELD = "max(avg_over_time(purser_device_granted_memory_bytes{selector}[{step}s]))"
_NODE_BUSY = "sum(max by (uuid) (avg_over_time(purser_device_utilization_ratio{selector}[{step}s])))"
_NODE_USED = "sum(max by (uuid) (avg_over_time(purser_device_memory_used_bytes{selector}[{step}s])))"
_NODE_HELD = "sum(max by (uuid) (avg_over_time(purser_device_granted_memory_bytes{selector}[{step}s])))"
_POD_BUSY = "sum(max by (node, uuid, container) (avg_over_time(purser_container_utilization_ratio{selector}[{step}s])))"
_POD_USED = "sum(max by (node, uuid, container) (avg_over_time(purser_container_memory_used_bytes{selector}[{step}s])))"
_POD_HELD = "sum(max by (node, uuid, container) (avg_over_time(purser_grant_memory_bytes{selector}[{step}s])))"


_MAX_BYTES = 1e18
"""Anybody whose metrics are scraped can claim more."""


class UsageCurves(msgspec.Struct, frozen=True):
    """Each has a value for each of the times, NaN where there are no metrics."""

    times_s: tuple[float, ...]
    """Unix times."""
    busy_gpus: tuple[float, ...]
    """Of a GPU the part of the time in which kernels ran, of a node the sum of these; of a pod the compute that its
    processes used."""
    used_bytes: tuple[float, ...]
    """Of memory."""
    held_bytes: tuple[float, ...]


async def read_gpu_curves(
    prometheus: Prometheus, node: str, uuid: str, window_s: float, end_s: float, selector: str = ""
) -> UsageCurves:
    """One GPU, or MIG device, in the ``window_s`` seconds up to ``end_s``, a unix time. ``selector``: as `read_usage`
    has it. Raises `PrometheusError`."""
    matchers = _matchers(selector, node=node, uuid=uuid)
    return await _read(prometheus, (_GPU_BUSY, _GPU_USED, _GPU_HELD), matchers, window_s, end_s)


async def read_node_curves(
    prometheus: Prometheus, node: str, window_s: float, end_s: float, selector: str = ""
) -> UsageCurves:
    """All GPUs of a node together; the rest is as `read_gpu_curves` has it."""
    return await _read(
        prometheus, (_NODE_BUSY, _NODE_USED, _NODE_HELD), _matchers(selector, node=node), window_s, end_s
    )


async def read_pod_curves(
    prometheus: Prometheus, namespace: str, pod: str, window_s: float, end_s: float, selector: str = ""
) -> UsageCurves:
    """A pod, or several that had its name one after the other; the rest is as `read_gpu_curves` has it."""
    matchers = _matchers(selector, namespace=namespace, pod=pod)
    return await _read(prometheus, (_POD_BUSY, _POD_USED, _POD_HELD), matchers, window_s, end_s)


def _matchers(selector: str, **labels: str) -> str:
    """Of PromQL. Its strings have JSON's escapes."""
    parts = [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in labels.items()]
    return "{" + ", ".join([*parts, selector] if selector else parts) + "}"


async def _read(
    prometheus: Prometheus, expressions: tuple[str, str, str], matchers: str, window_s: float, end_s: float
) -> UsageCurves:
    times, step_s = sample_times(window_s, end_s)

    async def curve(expression: str, most: float) -> tuple[float, ...]:
        query = expression.replace("{step}", str(step_s)).replace("{selector}", matchers)
        found = await prometheus.ask_range(query, times[0], end_s, step_s)
        return values_at(times, step_s, found[0][1] if found else (), most)

    busy, used, held = expressions
    return UsageCurves(
        times, await curve(busy, MAX_AMOUNT), await curve(used, _MAX_BYTES), await curve(held, _MAX_BYTES)
    )
