"""How GPUs were used, out of a Prometheus: asked once for all viewers, and at most so often.

What is asked is about all namespaces. `usage_of_namespace` leaves one viewer the part that they may see.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Generic, TypeVar

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
    read_gpu_curves,
    read_idle,
    read_model_hours,
    read_over_time,
    read_pod_curves,
    read_pod_hours,
    read_usage,
)

log = structlog.get_logger("purser.web")

WINDOWS_S: Mapping[str, int] = {"1h": 3600, "6h": 6 * 3600, "24h": 86400, "7d": 7 * 86400, "30d": 30 * 86400}
"""What a viewer can choose."""
DEFAULT_WINDOW = "24h"
SEE_LOG_MESSAGE = "The use of GPUs cannot be read: Purser's log has the details."
"""All that viewers of one namespace are told: what Prometheus says may name anything."""
QUERY_TIMEOUT_S = 60.0
_FRESH_FOR_S = 60.0
_FRESH_DIVISOR = 200
"""A longer time is asked about as often as its curves get a new point, and sooner where it could not be read."""
_PATIENCE_S = 2.0
"""How long a page waits for what is being read. Then it is shown without, and fetched again soon."""
_MAX_CURVES = 256
"""GPUs and pods, each over one window, of which curves are kept: 20 kB each."""

_CurveReader = Callable[[Prometheus, str, str, float, float, str], Awaitable[UsageCurves]]
"""`read_gpu_curves` or `read_pod_curves`."""


@dataclass(frozen=True)
class WindowUsage:
    """How GPUs were used over some time."""

    usage: UsageReport
    curves: UsageOverTime
    idle: tuple[IdleGpu, ...]
    models: tuple[ModelHours, ...] = ()
    pods: tuple[PodHours, ...] = ()
    """Of each namespace those that wasted most, those with most waste first."""


ResultT = TypeVar("ResultT")


class _Reading(Generic[ResultT]):
    """One answer of Prometheus: the newest that is known, and the task that reads a newer one."""

    def __init__(self) -> None:
        self.result: ResultT | None = None
        self.problem = ""
        self.fresh_until = -math.inf
        self.task: asyncio.Task[None] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a newer one is being read."""
        return self.task is not None and not self.task.done()


class UsageHistory:
    """What is known of each window of time, and of the GPUs and pods that were looked at last; an async context
    manager."""

    def __init__(self, prometheus: Prometheus, selector: str, clock: Clock) -> None:
        """``prometheus`` has not been entered; ``selector``: see `purser.usage.read_usage`."""
        self._prometheus, self._selector, self._clock = prometheus, selector, clock
        self._windows = {name: _Reading[WindowUsage]() for name in WINDOWS_S}
        self._curves: Recent[tuple[str, ...], _Reading[UsageCurves]] = Recent(_MAX_CURVES)
        self._tasks: set[asyncio.Task[None]] = set()
        # A month of the whole cluster takes seconds; who looks at one pod does not wait for it.
        self._whole, self._single = asyncio.Lock(), asyncio.Lock()

    async def __aenter__(self) -> "UsageHistory":
        await self._prometheus.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        reading = list(self._tasks)
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        await self._prometheus.__aexit__(kind, error, trace)

    async def of(self, window: str) -> tuple[WindowUsage | None, str]:
        """The history of one of `WINDOWS_S`, perhaps not the newest, and why it is not; None: it is being read, or it
        could not be."""
        return await self._newest(self._windows[window], window, self._whole, self._read_window)

    async def of_gpu(self, node: str, uuid: str, window: str) -> tuple[UsageCurves | None, str]:
        """The same of one GPU."""
        found = self._curves.recall(("gpu", node, uuid, window), _Reading)
        return await self._newest(found, window, self._single, partial(self._read_curves, read_gpu_curves, node, uuid))

    async def of_pod(self, namespace: str, pod: str, window: str) -> tuple[UsageCurves | None, str]:
        """The same of one pod."""
        found = self._curves.recall(("pod", namespace, pod, window), _Reading)
        read = partial(self._read_curves, read_pod_curves, namespace, pod)
        return await self._newest(found, window, self._single, read)

    async def _newest(
        self,
        found: _Reading[ResultT],
        window: str,
        one_at_a_time: asyncio.Lock,
        read: Callable[[float, float], Awaitable[ResultT]],
    ) -> tuple[ResultT | None, str]:
        if not found.is_under_way and self._clock.monotonic() >= found.fresh_until:
            found.task = asyncio.ensure_future(self._read(found, WINDOWS_S[window], one_at_a_time, read))
            self._tasks.add(found.task)
            found.task.add_done_callback(self._tasks.discard)
        if found.task is not None and found.result is None:
            await asyncio.wait({found.task}, timeout=_PATIENCE_S)
        return found.result, found.problem

    async def _read(
        self,
        found: _Reading[ResultT],
        seconds: int,
        one_at_a_time: asyncio.Lock,
        read: Callable[[float, float], Awaitable[ResultT]],
    ) -> None:
        async with one_at_a_time:
            try:
                found.result = await read(seconds, self._clock.now().timestamp())
                found.problem = ""
                fresh_for_s = max(_FRESH_FOR_S, seconds / _FRESH_DIVISOR)
            except PrometheusError as error:
                log.warning("The use of GPUs cannot be read", error=brief(error))
                found.problem, fresh_for_s = str(error), _FRESH_FOR_S
            except Exception:
                log.exception("Failed to read the use of GPUs from Prometheus")
                found.problem, fresh_for_s = SEE_LOG_MESSAGE, _FRESH_FOR_S
        found.fresh_until = self._clock.monotonic() + fresh_for_s

    async def _read_window(self, window_s: float, end_s: float) -> WindowUsage:
        asked = (self._prometheus, window_s, end_s, self._selector)
        return WindowUsage(
            usage=await read_usage(*asked),
            curves=await read_over_time(*asked),
            idle=await read_idle(self._prometheus, end_s, self._selector),
            models=await read_model_hours(*asked),
            pods=await read_pod_hours(*asked),
        )

    async def _read_curves(
        self, read: _CurveReader, owner: str, name: str, window_s: float, end_s: float
    ) -> UsageCurves:
        return await read(self._prometheus, owner, name, window_s, end_s, self._selector)


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
    )


def sum_curves(curves: Mapping[str, tuple[float, ...]], points: int) -> list[float]:
    """All namespaces together; NaN where none has a value."""
    columns = [[value for value in column if math.isfinite(value)] for column in zip(*curves.values(), strict=True)]
    return [math.fsum(column) if column else math.nan for column in columns] if columns else [math.nan] * points


def less(values: tuple[float, ...], others: tuple[float, ...]) -> list[float]:
    """The difference, time by time; where the second is not known, the first."""
    pairs = zip(values, others, strict=True)
    return [value - other if math.isfinite(other) else value for value, other in pairs]
