"""Changes as server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html.

Each stream is compressed, and given up where its client reads too slowly. Whoever falls behind is sent what is new
since, or the whole fleet: nothing is queued for anybody.
"""

import asyncio
import zlib
from collections.abc import Callable, Iterable

from aiohttp import web

from purser.web.feed import Feed
from purser.web.metrics import WebMetrics

MAX_STREAMS = 256
SEND_TIMEOUT_S = 30.0
ALIVE_EVERY_S = 15.0
"""How often a comment is sent where nothing has changed: proxies cut connections that are silent for a minute."""
_ALIVE = (b":\n\n",)
_CHUNK_BYTES = 64 * 1024
# A small window costs 32 KiB of memory a stream instead of 256 KiB, and next to nothing of the ratio.
_LEVEL, _WINDOW_BITS, _GZIP, _MEMORY_LEVEL = 6, 12, 16, 5


class Streams:
    """All that are open."""

    def __init__(self, feed: Feed, metrics: WebMetrics) -> None:
        self._feed, self._metrics = feed, metrics
        self._open = 0

    async def send(self, request: web.Request) -> web.StreamResponse:
        """The whole fleet, then its changes; with ``?changes`` only that something has changed, and the numbers."""
        if "changes" in request.query:
            return await self._send(request, lambda _: self._change_events())
        return await self._send(request, self._feed.events_after)

    def _change_events(self) -> Iterable[bytes]:
        return (b'event: changed\ndata: {"version":%d}\n\n' % self._feed.version, self._feed.status_event())

    async def _send(self, request: web.Request, events_after: Callable[[int], Iterable[bytes]]) -> web.StreamResponse:
        if self._open >= MAX_STREAMS:
            raise web.HTTPServiceUnavailable(text="too many pages are open: close some, then reload this one\n")
        self._count(1)
        try:
            writer = await _Writer.begin(request)
            await self._follow(writer, events_after)
            return writer.response
        except (ConnectionError, TimeoutError):
            if request.transport is not None:
                request.transport.abort()
            raise web.HTTPRequestTimeout from None  # nobody reads it
        finally:
            self._count(-1)

    def _count(self, more: int) -> None:
        self._open += more
        self._metrics.streams.set(self._open)

    async def _follow(self, writer: "_Writer", events_after: Callable[[int], Iterable[bytes]]) -> None:
        version = 0
        while not self._feed.is_over:
            newest = self._feed.version
            await writer.write(events_after(version))
            version = newest
            while not await self._is_newer_than(version):
                await writer.write(_ALIVE)
        await writer.end()

    async def _is_newer_than(self, version: int) -> bool:
        """Whether anything has changed before it is time for a sign of life."""
        try:
            async with asyncio.timeout(ALIVE_EVERY_S):
                await self._feed.newer_than(version)
        except TimeoutError:
            return False
        return True


class _Writer:
    """Writes events to one client. Raises TimeoutError and ConnectionError."""

    def __init__(self, response: web.StreamResponse, compresses: bool) -> None:
        self.response = response
        self._zlib = (
            zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW_BITS + _GZIP, _MEMORY_LEVEL) if compresses else None
        )

    @classmethod
    async def begin(cls, request: web.Request) -> "_Writer":
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        compresses = "gzip" in request.headers.get("Accept-Encoding", "")
        if compresses:
            response.headers["Content-Encoding"] = "gzip"
        await response.prepare(request)
        return cls(response, compresses)

    async def write(self, events: Iterable[bytes]) -> None:
        """Send events so that the client can read them now."""
        for event in events:
            for start in range(0, len(event), _CHUNK_BYTES):
                chunk = event[start : start + _CHUNK_BYTES]
                await self._send(self._zlib.compress(chunk) if self._zlib else chunk)
        if self._zlib:
            await self._send(self._zlib.flush(zlib.Z_SYNC_FLUSH))

    async def end(self) -> None:
        """Send the end."""
        if self._zlib:
            await self._send(self._zlib.flush())
        await self.response.write_eof()

    async def _send(self, data: bytes) -> None:
        if data:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self.response.write(data)
