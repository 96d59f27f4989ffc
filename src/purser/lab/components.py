"""One part of the lab that can be started, stopped and killed like a process."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

_RESTART_S = 1.0
_KILL_RETRY_PERIOD_S = 1.0

log = structlog.get_logger("purser.lab")

Run = Callable[[asyncio.Event], Awaitable[None]]
"""Runs until it is cancelled, or until the event is set and it has cleaned up."""


class Component:
    """Runs one coroutine as a container of a cluster would: one that fails is started again a second later."""

    def __init__(self, name: str, run: Run) -> None:
        self.name = name
        self._run = run
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Start it; nothing happens when it runs already."""
        if not self.is_running:
            self._stop = asyncio.Event()
            self._task = asyncio.create_task(self._keep_running(self._stop), name=self.name)

    async def kill(self) -> None:
        """End it without asking, as SIGKILL would; sockets close, everything else stays as it lies."""
        task = self._task
        if task is None:
            return
        while not task.done():
            # More than once: a TaskGroup that is ending because a part of it failed swallows a cancellation.
            task.cancel()
            await asyncio.wait([task], timeout=_KILL_RETRY_PERIOD_S)
        await asyncio.gather(task, return_exceptions=True)

    async def stop(self, timeout_s: float = 5.0) -> None:
        """Ask it to end and wait; after ``timeout_s`` it is killed."""
        self._stop.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=timeout_s)
        await self.kill()

    async def _keep_running(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await self._run(stop)
                return
            except Exception:
                if _is_being_killed():
                    return
                log.exception("A lab component failed and will be restarted", component=self.name)
            await asyncio.sleep(_RESTART_S)


def _is_being_killed() -> bool:
    """Whether the failure was raised during cancellation: a TaskGroup raises only the failure then."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
