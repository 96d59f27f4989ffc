"""Answers of Prometheus: read one after the other, each once for all who look at it, and kept while they are new."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import structlog

from purser.core.decoding import brief
from purser.kube import Clock
from purser.usage import PrometheusError

log = structlog.get_logger("purser.web")

SEE_LOG_MESSAGE = "GPU usage is unavailable: see the log of purser web."
"""All that viewers of one namespace are told: what Prometheus says may name anything."""
BUSY_MESSAGE = "Prometheus is slow, and other requests are waiting for it: reload the page to try again."
_RETRY_AFTER_S = 60.0
_PATIENCE_S = 2.0
"""How long a page waits for what is being read. Then it is shown without, and fetched again soon."""
_OLD_FACTOR = 2
"""What is older than so many times as long as it is new is not shown while a newer one is being read."""

ResultT = TypeVar("ResultT")


class PrometheusAnswer(Generic[ResultT]):
    """One answer: the newest that is known, and the task that reads a newer one."""

    def __init__(self) -> None:
        self.result: ResultT | None = None
        self.problem = ""
        self.read_at = -math.inf
        self.fresh_until = -math.inf
        self.task: asyncio.Task[None] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a newer one is being read."""
        return self.task is not None and not self.task.done()


class PrometheusAnswers:
    """Reads them."""

    def __init__(self, clock: Clock, *, timeout_s: float, max_waiting: int, pause_s: float = 0.0) -> None:
        """``max_waiting``: readings under way or waiting for their turn. ``pause_s``: after one has failed, so long all
        fail in the same way without asking, so that nobody waits for each of them."""
        self._clock, self._timeout_s, self._max_waiting, self._pause_s = clock, timeout_s, max_waiting, pause_s
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()
        self._paused_until = -math.inf
        self._last_problem = ""

    async def close(self) -> None:
        """End all that are under way."""
        reading = list(self._tasks)
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)

    async def newest(
        self, found: PrometheusAnswer[ResultT], fresh_for_s: float, read: Callable[[], Awaitable[ResultT]]
    ) -> tuple[ResultT | None, str]:
        """The newest answer, and why there is no newer one; None: it is being read, or it could not be."""
        now = self._clock.monotonic()
        if not found.is_under_way and now >= found.fresh_until:
            if len(self._tasks) >= self._max_waiting:
                return found.result, BUSY_MESSAGE
            found.task = asyncio.ensure_future(self._read(found, fresh_for_s, read))
            self._tasks.add(found.task)
            found.task.add_done_callback(self._tasks.discard)
        is_old = found.result is None or now - found.read_at > _OLD_FACTOR * fresh_for_s
        if found.task is not None and is_old:
            await asyncio.wait({found.task}, timeout=_PATIENCE_S)
        return found.result, found.problem

    async def _read(
        self, found: PrometheusAnswer[ResultT], fresh_for_s: float, read: Callable[[], Awaitable[ResultT]]
    ) -> None:
        async with self._turn:
            if self._clock.monotonic() < self._paused_until:
                found.problem, found.fresh_until = self._last_problem, self._paused_until
                return
            try:
                async with asyncio.timeout(self._timeout_s):
                    found.result = await read()
            except TimeoutError:
                self._fail(found, f"Prometheus did not respond within {self._timeout_s:g} s.")
            except PrometheusError as error:
                self._fail(found, str(error))
            except Exception:
                log.exception("Failed to read GPU usage from Prometheus")
                self._fail(found, SEE_LOG_MESSAGE)
            else:
                found.problem, found.read_at = "", self._clock.monotonic()
                found.fresh_until = found.read_at + fresh_for_s

    def _fail(self, found: PrometheusAnswer[ResultT], problem: str) -> None:
        log.warning("Cannot read GPU usage from Prometheus", error=brief(problem))
        found.problem = self._last_problem = problem
        found.fresh_until = self._clock.monotonic() + _RETRY_AFTER_S
        self._paused_until = self._clock.monotonic() + self._pause_s
