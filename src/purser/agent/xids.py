"""Xids that the driver reported and that are not processed yet.

A broken GPU, or a program that fails repeatedly, reports thousands of them a second. Equal ones that wait for the same
turn are merged and counted: the cost of a turn grows with the node's GPUs.
"""

import asyncio
import threading
from collections import Counter

from purser.agent.nvml.driver import XidEvent


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
