"""How the use of GPUs went on: a curve for each namespace, and which GPUs are held and idle since when."""

import asyncio
import math
from collections.abc import Mapping, Sequence

import msgspec

from purser.usage.prometheus import Prometheus
from purser.usage.report import BUSY, GPUS, GRANTED, MAX_AMOUNT, MIN_STEP_S, is_amount, selected

POINTS = 200
"""Of a curve, at most: a picture has no more room."""
IDLE_BELOW_RATIO = 0.02
"""A GPU whose kernels ran for a smaller part of the time is idle: monitoring itself can take that much."""
IDLE_WINDOWS_S = (7 * 86400, 86400, 6 * 3600, 3600, 1800)
"""A GPU is idle for the longest of these."""

_UNUSABLE_QUERY = 'sum(max by (model, cause) (purser_cluster_idle_gpus{{cause!="usable"{more}}}))'
_IDLE_QUERY = (
    "(max by (node, uuid) (max_over_time(purser_device_utilization_ratio{selector}[{window}s])) < {ratio})"
    " and on (node, uuid)"
    " (max by (node, uuid) (min_over_time(purser_device_granted_memory_bytes{selector}[{window}s])) > 0)"
    # Of a GPU that has been measured for less time, nobody knows what it did before.
    " and on (node, uuid) (max by (node, uuid) (purser_device_utilization_ratio{selector} offset {window}s) >= 0)"
)


class UsageOverTime(msgspec.Struct, frozen=True):
    """Curves, in GPUs: each has a value for each of the times, NaN where there are no metrics."""

    times_s: tuple[float, ...]
    """Unix times."""
    gpus: tuple[float, ...]
    """All, healthy or not."""
    unusable: tuple[float, ...]
    """Idle GPUs and parts of GPUs that no expected pod could use: the price of fragmentation."""
    held: Mapping[str, tuple[float, ...]]
    """By namespace: what its pods were granted, by part of the GPUs' memory."""
    busy: Mapping[str, tuple[float, ...]]
    """By namespace: the compute that its pods' processes used."""


class IdleGpu(msgspec.Struct, frozen=True):
    """A GPU that pods hold and do not use."""

    node: str
    uuid: str
    idle_s: int
    """For at least so long."""


async def read_over_time(prometheus: Prometheus, window_s: float, end_s: float, selector: str = "") -> UsageOverTime:
    """The curves of the ``window_s`` seconds up to ``end_s``, a unix time. ``selector``: as `read_usage` has it. Raises
    `PrometheusError`."""
    times, step_s = sample_times(window_s, end_s)

    async def curves(expression: str) -> dict[str, tuple[float, ...]]:
        found = await prometheus.ask_range(selected(expression, selector), times[0], end_s, step_s)
        return await asyncio.to_thread(
            lambda: {labels.get("namespace", ""): values_at(times, step_s, values) for labels, values in found}
        )

    nothing = (math.nan,) * len(times)
    return UsageOverTime(
        times_s=times,
        gpus=(await curves(f"sum({GPUS})")).get("", nothing),
        unusable=(await curves(_UNUSABLE_QUERY)).get("", nothing),
        held=await curves(GRANTED),
        busy=await curves(BUSY),
    )


def sample_times(window_s: float, end_s: float) -> tuple[tuple[float, ...], int]:
    """The unix times of a curve's points, and the seconds between two of them."""
    step_s = max(MIN_STEP_S, math.ceil(window_s / POINTS))
    count = int(window_s // step_s)
    return tuple(end_s - step_s * (count - number) for number in range(count + 1)), step_s


def values_at(
    times: Sequence[float], step_s: float, values: Sequence[tuple[float, float]], most: float = MAX_AMOUNT
) -> tuple[float, ...]:
    """A value for each time: Prometheus leaves out those without one, and rounds times to milliseconds. ``most``: what
    a value can be."""
    by_place = {round((at - times[0]) / step_s): value for at, value in values if is_amount(value, most)}
    return tuple(by_place.get(place, math.nan) for place in range(len(times)))


async def read_idle(prometheus: Prometheus, end_s: float, selector: str = "") -> tuple[IdleGpu, ...]:
    """GPUs that pods have held and not used, idle for longest first. Raises `PrometheusError`."""
    found: dict[tuple[str, str], IdleGpu] = {}
    for window_s in IDLE_WINDOWS_S:
        expression = _IDLE_QUERY.replace("{window}", str(window_s)).replace("{ratio}", str(IDLE_BELOW_RATIO))
        for labels, _ in await prometheus.ask(selected(expression, selector), end_s):
            place = (labels.get("node", ""), labels.get("uuid", ""))
            found.setdefault(place, IdleGpu(*place, window_s))
    return tuple(found.values())
