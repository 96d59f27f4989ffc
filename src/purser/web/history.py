"""How GPUs were used, out of a Prometheus: asked once for all viewers, and at most so often.

What is asked is about all namespaces. `usage_of_namespace` leaves one viewer the part that they may see.
"""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

import structlog

from purser.core.decoding import brief
from purser.kube import Clock
from purser.recent import Recent
from purser.usage import (
    IdleGpu,
    ModelHours,
    PodHours,
    Prometheus,
    PrometheusError,
    UsageCurves,
    UsageOverTime,
    UsageReport,
    UsedNow,
    read_gpu_curves,
    read_idle,
    read_model_hours,
    read_node_curves,
    read_over_time,
    read_pod_curves,
    read_pod_hours,
    read_usage,
    read_used_now,
)
from purser.web.answers import SEE_LOG_MESSAGE, PrometheusAnswer, PrometheusAnswers

log = structlog.get_logger("purser.web")

WINDOWS_S: Mapping[str, int] = {"1h": 3600, "6h": 6 * 3600, "24h": 86400, "7d": 7 * 86400, "30d": 30 * 86400}
"""What a viewer can choose."""
DEFAULT_WINDOW = "24h"
QUERY_TIMEOUT_S = 60.0
_WINDOW_TIMEOUT_S = 20 * QUERY_TIMEOUT_S
"""Many queries."""
_CURVES_TIMEOUT_S = 15.0
_FRESH_FOR_S = 60.0
_FRESH_DIVISOR = 720
"""Of a longer time: what is asked about a day is kept for two minutes."""
_LONGEST_FRESH_S = 1800.0
_MAX_CURVES = 256
"""GPUs, nodes and pods, each over one window, of which curves are kept: 20 kB each."""
_MAX_CURVES_WAITING = 16
_PAUSE_S = 10.0

RowT = TypeVar("RowT")


@dataclass(frozen=True)
class WindowUsage:
    """How GPUs were used over some time."""

    usage: UsageReport
    curves: UsageOverTime
    idle: tuple[IdleGpu, ...]
    models: tuple[ModelHours, ...] = ()
    pods: tuple[PodHours, ...] = ()
    """Of each namespace those that wasted most, those with most waste first."""
    breakdown_problem: str = ""
    """Why models or pods are missing, in a sentence."""
    end_s: float = 0.0
    """Up to when, a unix time."""


class UsageHistory:
    """What is known of each window of time, and of the GPUs, nodes and pods that were looked at last; an async context
    manager."""

    def __init__(self, prometheus: Prometheus, selector: str, clock: Clock) -> None:
        """``prometheus`` has not been entered; ``selector``: see `purser.usage.read_usage`."""
        self._prometheus, self._selector, self._clock = prometheus, selector, clock
        self._windows = {name: PrometheusAnswer[WindowUsage]() for name in WINDOWS_S}
        self._used_now = PrometheusAnswer[tuple[UsedNow, ...]]()
        self._curves: Recent[tuple[str, ...], PrometheusAnswer[UsageCurves]] = Recent(_MAX_CURVES)
        # A month of the whole cluster takes seconds; who looks at one pod does not wait for it.
        self._whole = PrometheusAnswers(clock, timeout_s=_WINDOW_TIMEOUT_S, max_waiting=len(WINDOWS_S))
        self._single = PrometheusAnswers(
            clock, timeout_s=_CURVES_TIMEOUT_S, max_waiting=_MAX_CURVES_WAITING, pause_s=_PAUSE_S
        )

    async def __aenter__(self) -> "UsageHistory":
        await self._prometheus.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._whole.close()
        await self._single.close()
        await self._prometheus.__aexit__(kind, error, trace)

    async def of(self, window: str) -> tuple[WindowUsage | None, str]:
        """The history of one of `WINDOWS_S`, perhaps not the newest, and why it is not; None: it is being read, or it
        could not be."""
        seconds = WINDOWS_S[window]
        fresh_for_s = min(max(_FRESH_FOR_S, seconds / _FRESH_DIVISOR), _LONGEST_FRESH_S)
        return await self._whole.newest(self._windows[window], fresh_for_s, lambda: self._read_window(seconds))

    async def used_now(self) -> tuple[tuple[UsedNow, ...] | None, str]:
        """The same of what is in use of each GPU that is held."""

        def read() -> Awaitable[tuple[UsedNow, ...]]:
            return read_used_now(self._prometheus, self._now_s(), self._selector)

        return await self._single.newest(self._used_now, _FRESH_FOR_S, read)

    async def of_gpu(self, node: str, uuid: str, window: str) -> tuple[UsageCurves | None, str]:
        """The same of one GPU."""
        found = self._curves.recall(("gpu", node, uuid, window), PrometheusAnswer)

        def read() -> Awaitable[UsageCurves]:
            return read_gpu_curves(self._prometheus, node, uuid, WINDOWS_S[window], self._now_s(), self._selector)

        return await self._single.newest(found, _FRESH_FOR_S, read)

    async def of_node(self, node: str, window: str) -> tuple[UsageCurves | None, str]:
        """The same of all GPUs of a node together."""
        found = self._curves.recall(("node", node, window), PrometheusAnswer)

        def read() -> Awaitable[UsageCurves]:
            return read_node_curves(self._prometheus, node, WINDOWS_S[window], self._now_s(), self._selector)

        return await self._single.newest(found, _FRESH_FOR_S, read)

    async def of_pod(self, namespace: str, pod: str, window: str) -> tuple[UsageCurves | None, str]:
        """The same of one pod."""
        found = self._curves.recall(("pod", namespace, pod, window), PrometheusAnswer)

        def read() -> Awaitable[UsageCurves]:
            return read_pod_curves(self._prometheus, namespace, pod, WINDOWS_S[window], self._now_s(), self._selector)

        return await self._single.newest(found, _FRESH_FOR_S, read)

    def _now_s(self) -> float:
        return self._clock.now().timestamp()

    async def _read_window(self, window_s: float) -> WindowUsage:
        end_s = self._now_s()
        asked = (self._prometheus, window_s, end_s, self._selector)
        usage = await read_usage(*asked)
        curves = await read_over_time(*asked)
        idle = await read_idle(self._prometheus, end_s, self._selector)
        models, no_models = await _read_rows(lambda: read_model_hours(*asked))
        pods, no_pods = await _read_rows(lambda: read_pod_hours(*asked))
        return WindowUsage(usage, curves, idle, tuple(models), tuple(pods), no_models or no_pods, end_s)


async def _read_rows(read: Callable[[], Awaitable[Sequence[RowT]]]) -> tuple[Sequence[RowT], str]:
    """Rows, or why there are none: the queries for each pod are the first that a Prometheus finds too large."""
    try:
        return await read(), ""
    except PrometheusError as error:
        log.warning("GPU-hours of pods or models cannot be read", error=brief(error))
        return (), str(error)


def usage_of_namespace(history: WindowUsage, namespace: str) -> WindowUsage:
    """What somebody may see who may read one namespace alone; of the whole for an empty name."""
    if not namespace:
        return history
    nothing = (math.nan,) * len(history.curves.times_s)

    def own(curves: Mapping[str, tuple[float, ...]]) -> Mapping[str, tuple[float, ...]]:
        return {name: values for name, values in curves.items() if name == namespace}

    curves = UsageOverTime(history.curves.times_s, nothing, nothing, own(history.curves.held), own(history.curves.busy))
    usage = history.usage
    of_namespace = tuple(each for each in usage.namespaces if each.namespace == namespace)
    return WindowUsage(
        usage=UsageReport(usage.window_s, usage.covered_s, 0.0, 0.0, of_namespace),
        curves=curves,
        idle=(),
        pods=tuple(each for each in history.pods if each.namespace == namespace),
        breakdown_problem=history.breakdown_problem and SEE_LOG_MESSAGE,
        end_s=history.end_s,
    )


def sum_curves(curves: Mapping[str, tuple[float, ...]], points: int) -> list[float]:
    """All namespaces together; NaN where none has a value."""
    columns = [[value for value in column if math.isfinite(value)] for column in zip(*curves.values(), strict=True)]
    return [math.fsum(column) if column else math.nan for column in columns] if columns else [math.nan] * points


def less(values: tuple[float, ...], others: tuple[float, ...]) -> list[float]:
    """The difference, time by time; where the second is not known, the first."""
    pairs = zip(values, others, strict=True)
    return [value - other if math.isfinite(other) else value for value, other in pairs]
