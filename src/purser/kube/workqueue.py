"""A queue of keys to reconcile, with the guarantees of client-go's workqueue.

A key waits at most once. A key is never worked on by two workers at the same time: one that is added while it is being
worked on is queued again when that is done. Failed keys come back after an exponential back-off of their own.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import structlog

from purser.kube.backoff import Backoff
from purser.kube.clock import Clock, SystemClock
from purser.kube.errors import KubeError

K = TypeVar("K", bound=Hashable)

log = structlog.get_logger("purser.kube")


class QueueClosed(Exception):
    """The queue was shut down and is empty."""


class WorkQueue(Generic[K]):
    """Keys, in the order in which they became due. Belongs to one event loop; only ``get`` and ``shutdown`` wait."""

    def __init__(self, *, initial_s: float = 0.1, cap_s: float = 60.0, clock: Clock | None = None):
        """``initial_s`` and ``cap_s`` bound the back-off of a key that fails again and again."""
        self._initial_s = initial_s
        self._cap_s = cap_s
        self._clock = clock or SystemClock()
        self._ready: deque[K] = deque()
        self._dirty: set[K] = set()  # to be worked on: in _ready, or to go there when its worker is done
        self._processing: set[K] = set()
        self._delayed: dict[K, tuple[float, asyncio.Task[None]]] = {}
        self._backoffs: dict[K, Backoff] = {}
        self._changed = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        """How many keys wait for a worker."""
        return len(self._ready)

    def add(self, key: K) -> None:
        """Have a key worked on, once more if it is being worked on now. After `shutdown` this does nothing."""
        if self._closed or key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._processing:
            self._ready.append(key)
            self._changed.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Add a key later; of several delays the shortest counts."""
        if self._closed:
            return
        due = self._clock.monotonic() + seconds
        if key in self._delayed:
            if self._delayed[key][0] <= due:
                return
            self._delayed[key][1].cancel()
        self._delayed[key] = due, asyncio.create_task(self._add_later(key, seconds))

    def retry(self, key: K) -> None:
        """Add a key after its back-off, which grows with each call until `forget`."""
        backoff = self._backoffs.setdefault(key, Backoff(self._initial_s, self._cap_s))
        self.add_after(key, backoff.next())

    def forget(self, key: K) -> None:
        """Let the next `retry` of a key start from the shortest delay: it went well."""
        self._backoffs.pop(key, None)

    async def get(self) -> K:
        """The next key; call `done` when it has been worked on. Raises `QueueClosed` after `shutdown`."""
        while not self._ready:
            if self._closed and not self._dirty:
                raise QueueClosed
            await self._change()
        key = self._ready.popleft()
        self._dirty.discard(key)
        self._processing.add(key)
        return key

    def done(self, key: K) -> None:
        """Give a key back; it is queued again if it was added meanwhile."""
        self._processing.discard(key)
        if key in self._dirty:
            self._ready.append(key)
        self._changed.set()

    async def shutdown(self, *, drain: bool = True) -> None:
        """Take no more keys, drop those that wait for a time, and end `get`.

        With ``drain``, return once all that was queued has been worked on; without, drop it and return once no
        worker holds a key.
        """
        self._closed = True
        for _, task in self._delayed.values():
            task.cancel()
        self._delayed.clear()
        if not drain:
            self._ready.clear()
            self._dirty.clear()
        self._changed.set()
        while self._dirty or self._processing:
            await self._change()

    async def _change(self) -> None:
        # All waiters see the same set(); the first one clears it, and all look at the queue again.
        await self._changed.wait()
        self._changed.clear()

    async def _add_later(self, key: K, seconds: float) -> None:
        await self._clock.sleep(seconds)
        del self._delayed[key]
        self.add(key)


def _log_failure(key: Hashable, error: Exception) -> None:
    log.error("Reconciling failed, retrying", key=str(key), exc_info=error)


async def run_workers(
    queue: WorkQueue[K],
    reconcile: Callable[[K], Awaitable[None]],
    workers: int = 1,
    on_failure: Callable[[K, Exception], None] = _log_failure,
) -> None:
    """Process a queue until it is shut down. A key whose reconcile raises is logged and retried with back-off; for an
    unexpected error (no `KubeError`), ``on_failure`` is called instead.

    The queue ends with its workers: no timer is left when this is cancelled.
    """
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(_work(queue, reconcile, on_failure))
    finally:
        await queue.shutdown(drain=False)


async def _work(
    queue: WorkQueue[K], reconcile: Callable[[K], Awaitable[None]], on_failure: Callable[[K, Exception], None]
) -> None:
    while True:
        try:
            key = await queue.get()
        except QueueClosed:
            return
        try:
            await reconcile(key)
        except KubeError as error:
            # The message says what is wrong; a traceback would add nothing.
            log.warning("Reconciling failed, retrying", key=str(key), error=str(error))
            queue.retry(key)
        except Exception as error:
            on_failure(key, error)
            queue.retry(key)
        else:
            queue.forget(key)
        finally:
            queue.done(key)
