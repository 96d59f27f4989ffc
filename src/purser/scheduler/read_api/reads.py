"""What is read from the API server for readers: once for all who ask within a second, and so often at most."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from purser.kube import Clock, KubeError
from purser.kube.sharing import SharedAnswer
from purser.recent import Recent
from purser.scheduler.read_api.documents import EncodedState, encoded_state

T = TypeVar("T")

MAX_DOCUMENTS = 64
"""That are kept until others are asked for, each of half a MiB at most."""
FRESH_FOR_S = 1.0
READ_TIMEOUT_S = 2.0
"""Requests that wait for the API server take up the places of those for other documents."""
MAX_READS_PER_S, MAX_READS_OF_A_USER_PER_S = 20, 5
"""From the API server, which counts them as the scheduler's."""


class TooManyReadsError(Exception):
    """The API server is not asked again before the next second."""


class SharedReads:
    """Documents that need the API server, of all kinds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: Recent[tuple[str, ...], SharedAnswer[EncodedState | None]] = Recent(MAX_DOCUMENTS)
        self._reads: Counter[str] = Counter()
        """Since ``_second`` began, by user."""
        self._second = 0.0

    async def answer(
        self, key: tuple[str, ...], read: Callable[[], Awaitable[msgspec.Struct | None]], user: str
    ) -> EncodedState | None:
        """The document of a key, read for a user unless it is new, as long as somebody waits for it. Raises
        `TooManyReadsError`, and what ``read`` raises."""
        answer = self._known.get(key)
        if answer is None or answer.is_old:
            self._count(user)
            answer = self._known.put(key, SharedAnswer(_encoding(read), self._clock, FRESH_FOR_S, ends_unwanted=True))
        return await answer.answer()

    def _count(self, user: str) -> None:
        now = self._clock.monotonic()
        if now >= self._second + 1:
            self._second = now
            self._reads.clear()
        if self._reads[user] >= MAX_READS_OF_A_USER_PER_S or self._reads.total() >= MAX_READS_PER_S:
            raise TooManyReadsError
        self._reads[user] += 1


async def read_in_time(reading: Awaitable[T]) -> T:
    """What is read. Raises `KubeError` where that takes too long."""
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            return await reading
    except TimeoutError:
        raise KubeError(f"the API server did not answer within {READ_TIMEOUT_S:g} s") from None


def _encoding(read: Callable[[], Awaitable[msgspec.Struct | None]]) -> Coroutine[Any, Any, EncodedState | None]:
    async def encoded() -> EncodedState | None:
        found = await read()
        return None if found is None else encoded_state(found)

    return encoded()
