"""What all documents of the read API have in common: encoded in small steps, and once for all who wait for them."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Generic, TypeVar

import msgspec

from purser.kube import Clock

T = TypeVar("T")

MIN_DOCUMENT_AGE_S = 1.0
"""A document is not made again before it is so old."""
_REST = 3.0
"""Nor before so many times as long has passed as it took to make: kube-scheduler's questions go first."""
_PIECES_PER_TURN = 512
"""Between two turns of the event loop: one to three milliseconds' work."""


class EncodedState(msgspec.Struct, frozen=True):
    """A document, encoded."""

    tag: str
    """Another one whenever the document is another."""
    pieces: tuple[bytes, ...]
    """One after the other: of thousands of nodes all of it together has megabytes, which nobody needs in one piece."""

    @property
    def length(self) -> int:
        """Bytes of all pieces."""
        return sum(map(len, self.pieces))


def encoded_state(document: msgspec.Struct) -> EncodedState:
    """A small document, in one piece."""
    text = msgspec.json.encode(document)
    return EncodedState(f'"{hashlib.blake2b(text, digest_size=16).hexdigest()}"', (text,))


class SharedValue(Generic[T]):
    """A value that is made when somebody asks for it, once for all who wait, and kept while it is fresh."""

    def __init__(self, make: Callable[[], Awaitable[T]], clock: Clock) -> None:
        self._make, self._clock = make, clock
        self._last: T | None = None
        self._fresh_until = 0.0
        self._making: asyncio.Task[T] | None = None

    async def current(self) -> T:
        """The newest, a second old at most, or some where it takes that long to make. Raises what making it raises."""
        if self._making is None:
            if self._last is not None and self._clock.monotonic() < self._fresh_until:
                return self._last
            self._making = asyncio.ensure_future(self._remake())
            self._making.add_done_callback(self._made)
        return await asyncio.shield(self._making)  # others wait for it where this request is given up

    async def _remake(self) -> T:
        began = self._clock.monotonic()
        self._last = await self._make()
        now = self._clock.monotonic()
        self._fresh_until = now + max(MIN_DOCUMENT_AGE_S, _REST * (now - began))
        return self._last

    def _made(self, _: object) -> None:
        self._making = None


async def run_in_steps(work: Iterator[None], at_once: int) -> None:
    """Do work, and let others have their turn after so many steps."""
    for done, _ in enumerate(work, 1):
        if done % at_once == 0:
            await asyncio.sleep(0)


async def digest_of(pieces: Iterable[bytes]) -> bytes:
    """Equal for equal pieces."""
    digest = hashlib.blake2b(digest_size=16)
    for done, piece in enumerate(pieces, 1):
        digest.update(piece)
        if done % _PIECES_PER_TURN == 0:
            await asyncio.sleep(0)
    return digest.digest()
