"""Xids: the thread that waits for them, and those that the driver reported and that are not processed yet.

A broken GPU, or a program that fails repeatedly, reports thousands of them a second. Equal ones that wait for the same
turn are merged and counted: the cost of a turn grows with the node's GPUs.
"""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable

import structlog

from purser.agent.host.threads import run_in_thread
from purser.agent.nvml.driver import Driver, DriverError, XidEvent
from purser.kube.backoff import Backoff

log = structlog.get_logger("purser.agent")

EVENT_WAIT_MS = 250
"""One slice of waiting for Xids: how long a stop, or reopening the driver, may have to wait for the thread."""

DRIVER_RETRY_S, DRIVER_RETRY_CAP_S = 1.0, 30.0
"""The first and the longest pause after the driver refused to wait for events."""


class XidQueue:
    """From the thread that listens to the driver to the loop that judges."""

    def __init__(self) -> None:
        """Made in the loop that takes."""
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._waiting: Counter[XidEvent] = Counter()
        self._any = asyncio.Event()

    def put(self, event: XidEvent) -> None:
        """The driver reported it. Of any thread; after the loop has ended it is dropped."""
        with self._lock:
            is_first = not self._waiting
            self._waiting[event] += 1
        if is_first and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._any.set)

    async def take(self) -> Counter[XidEvent]:
        """All that wait, as soon as there are any: in the order in which each came first, and how often."""
        await self._any.wait()
        self._any.clear()
        with self._lock:
            found, self._waiting = self._waiting, Counter()
        return found


class XidListener:
    """The thread that waits for the driver's events, from when this is made until `stop`."""

    def __init__(self, driver: Callable[[], Driver], xids: XidQueue) -> None:
        """``driver`` is the one at the time: it may be found or reopened meanwhile."""
        self._driver = driver
        self._xids = xids
        self._stopped = False
        self._thread = run_in_thread(self._listen, "purser-xids")

    async def stop(self) -> None:
        """End the thread, and return once it has ended or a call of the driver holds it up."""
        self._stopped = True
        await asyncio.wait({self._thread}, timeout=2 * EVENT_WAIT_MS / 1000)

    def _listen(self) -> None:
        backoff = Backoff(DRIVER_RETRY_S, DRIVER_RETRY_CAP_S)
        while not self._stopped:
            try:
                event = self._driver().wait_event(EVENT_WAIT_MS)
            except DriverError as error:
                log.warning("Cannot wait for the driver's events; retrying", error=str(error))
                self._pause(backoff.next())
                continue
            except Exception:  # this thread is not awaited: an exception that ends it would be lost
                log.exception("Cannot wait for the driver's events")
                self._pause(backoff.next())
                continue
            backoff.reset()
            if event is not None:
                self._xids.put(event)

    def _pause(self, seconds: float) -> None:
        """Block the thread for this long, or until it is stopped."""
        until = time.monotonic() + seconds
        while not self._stopped and time.monotonic() < until:
            time.sleep(EVENT_WAIT_MS / 1000)
