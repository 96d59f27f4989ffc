"""A value that changes, and coroutines that wait for the change."""

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class Latest(Generic[T]):
    """The latest of a stream of values; a slow reader sees the newest one and misses those between."""

    def __init__(self, value: T) -> None:
        self._value = value
        self._changed = asyncio.Event()

    @property
    def value(self) -> T:
        """The value now."""
        return self._value

    def set(self, value: T) -> bool:
        """Take a new value and wake all waiters; an equal value is no change."""
        if value == self._value:
            return False
        self._value = value
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        return True

    async def wait_for_change(self, seen: T) -> T:
        """The first value that differs from the one that was seen."""
        while self._value == seen:
            await self._changed.wait()
        return self._value
