"""GPU-hours of single pods and of models, by what agents measure: held, and busy.

A pod's share counts by the part of the GPU's memory that it holds, as in `report`.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Mapping

import msgspec

from purser.usage.prometheus import Prometheus
from purser.usage.report import BUSY_EACH, GPUS, MEMORY_EACH, MIN_STEP_S, is_amount, selected

MAX_PODS = 20
"""Of a namespace: those with most hours that they held and did not use."""
_MAX_STEPS = 120
"""Fewer than in a report: each of them costs Prometheus a value for each pod."""
_HOUR_S = 3600

_HELD_EACH = (
    "(max by (node, uuid, namespace, pod, container) (purser_grant_memory_bytes{selector})"
    f" / on (node, uuid) group_left () {MEMORY_EACH})"
)
_POD_HELD = f"sum by (namespace, pod) ({_HELD_EACH})"
_POD_BUSY = f"sum by (namespace, pod) ({BUSY_EACH})"
# A driver that was replaced can have given a GPU another name.
_MODEL = (
    " * on (node, uuid) group_left (model)"
    " topk by (node, uuid) (1, max by (node, uuid, model) (purser_device_info{selector}))"
)
_MODEL_HELD = f"sum by (model) ({_HELD_EACH}{_MODEL})"
_MODEL_BUSY = f"sum by (model) ({BUSY_EACH}{_MODEL})"
_MODEL_GPUS = f"sum by (model) ({GPUS})"


class PodHours(msgspec.Struct, frozen=True):
    """GPU-hours of a pod."""

    namespace: str
    pod: str
    held: float
    busy: float

    @property
    def unused(self) -> float:
        """Held while nothing computed."""
        return max(self.held - self.busy, 0.0)


class ModelHours(msgspec.Struct, frozen=True):
    """GPU-hours on GPUs of one model."""

    model: str
    total: float
    """All GPUs while they were there."""
    held: float
    busy: float


async def read_pod_hours(
    prometheus: Prometheus, window_s: float, end_s: float, selector: str = ""
) -> tuple[PodHours, ...]:
    """The pods of each namespace with most unused hours, `MAX_PODS` of each: those with most first. Parameters as
    `read_usage` has them. Raises `PrometheusError`."""
    step_s, hours = _steps(window_s)

    async def over_time(expression: str) -> Mapping[tuple[str, ...], float]:
        query = f"sum_over_time(({selected(expression, selector)})[{round(window_s)}s:{step_s}s])"
        return _by_labels(await prometheus.ask(query, end_s), "namespace", "pod")

    held, busy = await over_time(_POD_HELD), await over_time(_POD_BUSY)
    return await asyncio.to_thread(_most_wasteful, held, busy, hours)


def _most_wasteful(
    held: Mapping[tuple[str, ...], float], busy: Mapping[tuple[str, ...], float], hours: float
) -> tuple[PodHours, ...]:
    pods = [
        PodHours(namespace, pod, hours * amount, hours * busy.get((namespace, pod), 0.0))
        for (namespace, pod), amount in held.items()
        if namespace and pod
    ]
    pods.sort(key=lambda each: (-each.unused, each.namespace, each.pod))
    shown: Counter[str] = Counter()
    found: list[PodHours] = []
    for each in pods:
        shown[each.namespace] += 1
        if shown[each.namespace] <= MAX_PODS:
            found.append(each)
    return tuple(found)


async def read_model_hours(
    prometheus: Prometheus, window_s: float, end_s: float, selector: str = ""
) -> tuple[ModelHours, ...]:
    """Of each model, in the order of their names. Parameters as `read_usage` has them. Raises `PrometheusError`."""
    step_s, hours = _steps(window_s)

    async def over_time(expression: str) -> Mapping[tuple[str, ...], float]:
        query = f"sum_over_time(({selected(expression, selector)})[{round(window_s)}s:{step_s}s])"
        return _by_labels(await prometheus.ask(query, end_s), "model")

    total, held, busy = await over_time(_MODEL_GPUS), await over_time(_MODEL_HELD), await over_time(_MODEL_BUSY)
    return tuple(
        ModelHours(model, *(hours * amounts.get((model,), 0.0) for amounts in (total, held, busy)))
        for (model,) in sorted(total.keys() | held.keys())
    )


def sample_step_s(window_s: float) -> int:
    """How far apart the samples of a window are, in seconds: what took less time is counted by chance."""
    return max(MIN_STEP_S, math.ceil(window_s / _MAX_STEPS))


def _steps(window_s: float) -> tuple[int, float]:
    """How far apart samples are, and for how many hours each stands."""
    step_s = sample_step_s(window_s)
    return step_s, step_s / _HOUR_S


def _by_labels(answer: list[tuple[Mapping[str, str], float]], *names: str) -> dict[tuple[str, ...], float]:
    return {tuple(labels.get(name, "") for name in names): value for labels, value in answer if is_amount(value)}
