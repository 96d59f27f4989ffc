"""How GPUs were used, out of a Prometheus: asked once for all viewers, and at most so often.

What is asked is about all namespaces. `part_of` leaves one viewer the part that they may see.
"""

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import TracebackType

import structlog

from purser.core.decoding import brief
from purser.kube import Clock
from purser.usage import (
    IdleGpu,
    Prometheus,
    PrometheusError,
    UsageOverTime,
    UsageReport,
    read_idle,
    read_over_time,
    read_usage,
)

log = structlog.get_logger("purser.web")

WINDOWS_S: Mapping[str, int] = {"1h": 3600, "6h": 6 * 3600, "24h": 86400, "7d": 7 * 86400, "30d": 30 * 86400}
"""What a viewer can choose."""
DEFAULT_WINDOW = "24h"
SEE_LOG = "The use of GPUs cannot be read: Purser's log has the details."
"""All that viewers of one namespace are told: what Prometheus says may name anything."""
QUERY_TIMEOUT_S = 60.0
_FRESH_FOR_S = 60.0
_FRESH_PART = 200
"""A longer time is asked about as often as its curves get a new point, and sooner where it could not be read."""
_PATIENCE_S = 2.0
"""How long a page waits for what is being read. Then it is shown without, and fetched again soon."""


@dataclass(frozen=True)
class WindowUsage:
    """How GPUs were used over some time."""

    usage: UsageReport
    curves: UsageOverTime
    idle: tuple[IdleGpu, ...]


@dataclass
class _Window:
    history: WindowUsage | None = None
    problem: str = ""
    fresh_until: float = -math.inf
    reading: "asyncio.Task[None] | None" = None


class UsageHistory:
    """What is known of each window of time; an async context manager."""

    def __init__(self, prometheus: Prometheus, selector: str, clock: Clock) -> None:
        """``prometheus`` has not been entered; ``selector``: see `purser.usage.read_usage`."""
        self._prometheus, self._selector, self._clock = prometheus, selector, clock
        self._windows = {name: _Window() for name in WINDOWS_S}
        self._one_at_a_time = asyncio.Lock()

    async def __aenter__(self) -> "UsageHistory":
        await self._prometheus.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        reading = [each.reading for each in self._windows.values() if each.reading is not None]
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        await self._prometheus.__aexit__(kind, error, trace)

    async def of(self, window: str) -> tuple[WindowUsage | None, str]:
        """The history of one of `WINDOWS_S`, perhaps not the newest, and why it is not; None: it is being read, or it
        could not be."""
        found = self._windows[window]
        is_reading = found.reading is not None and not found.reading.done()
        if not is_reading and self._clock.monotonic() >= found.fresh_until:
            found.reading = asyncio.ensure_future(self._read(window, found))
        if found.reading is not None and found.history is None:
            await asyncio.wait({found.reading}, timeout=_PATIENCE_S)
        return found.history, found.problem

    async def _read(self, window: str, found: _Window) -> None:
        seconds = WINDOWS_S[window]
        async with self._one_at_a_time:
            end_s = self._clock.now().timestamp()
            try:
                found.history = WindowUsage(
                    await read_usage(self._prometheus, seconds, end_s, self._selector),
                    await read_over_time(self._prometheus, seconds, end_s, self._selector),
                    await read_idle(self._prometheus, end_s, self._selector),
                )
                found.problem = ""
                fresh_for_s = max(_FRESH_FOR_S, seconds / _FRESH_PART)
            except PrometheusError as error:
                log.warning("The use of GPUs cannot be read", error=brief(error))
                found.problem, fresh_for_s = str(error), _FRESH_FOR_S
            except Exception:
                log.exception("Failed to read the use of GPUs from Prometheus")
                found.problem, fresh_for_s = SEE_LOG, _FRESH_FOR_S
        found.fresh_until = self._clock.monotonic() + fresh_for_s


def part_of(history: WindowUsage, namespace: str) -> WindowUsage:
    """What somebody may see who may read one namespace alone; of the whole for an empty name."""
    if not namespace:
        return history
    nothing = (math.nan,) * len(history.curves.times_s)

    def own(curves: Mapping[str, tuple[float, ...]]) -> Mapping[str, tuple[float, ...]]:
        return {name: values for name, values in curves.items() if name == namespace}

    curves = UsageOverTime(history.curves.times_s, nothing, nothing, own(history.curves.held), own(history.curves.busy))
    usage = history.usage
    of_namespace = tuple(each for each in usage.namespaces if each.namespace == namespace)
    return replace(
        history, usage=UsageReport(usage.window_s, usage.covered_s, 0.0, 0.0, of_namespace), curves=curves, idle=()
    )


def summed(curves: Mapping[str, tuple[float, ...]], points: int) -> list[float]:
    """All namespaces together; NaN where none has a value."""
    columns = [[value for value in column if math.isfinite(value)] for column in zip(*curves.values(), strict=True)]
    return [math.fsum(column) if column else math.nan for column in columns] if columns else [math.nan] * points


def less(values: tuple[float, ...], others: tuple[float, ...]) -> list[float]:
    """The difference, time by time; where the second is not known, the first."""
    pairs = zip(values, others, strict=True)
    return [value - other if math.isfinite(other) else value for value, other in pairs]
