"""Time as it is handed to everything in this room that waits or stamps.

Durations are measured with the monotonic clock only; the wall clock is for timestamps that people read.
"""

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol

from purser.core.kubernetes.times import spelled


class Clock(Protocol):
    """What a component needs of time; tests hand in one that they move by hand."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back."""
        ...

    def now(self) -> datetime:
        """The wall clock, in UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after this many seconds."""
        ...


class SystemClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        """Seconds since some start, of the operating system."""
        return time.monotonic()

    def now(self) -> datetime:
        """The wall clock, in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Sleep on the running event loop."""
        await asyncio.sleep(seconds)


def timestamp(moment: datetime) -> str:
    """A `metav1.Time`: RFC 3339 with whole seconds."""
    return spelled(moment.timestamp())


def micro_timestamp(moment: datetime) -> str:
    """A `metav1.MicroTime`: RFC 3339 with exactly six digits of the second, which is all its parser accepts."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
