"""Changes as server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html.

Each stream is compressed, and given up where its client reads too slowly. Whoever falls behind is sent what is new
since, or the whole fleet: nothing is queued for anybody.
"""

import asyncio
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from aiohttp import web

from purser.web.feed import Feed
from purser.web.metrics import WebMetrics
from purser.web.pages import FEED, SESSION

MAX_STREAMS = 256
MAX_STREAMS_OF_A_VIEWER = 64
"""Where people log in: one of them cannot take all."""
SEND_TIMEOUT_S = 30.0
"""For a chunk."""
SEND_ALL_TIMEOUT_S = 300.0
"""For everything that is new: until it is read, it is kept in memory."""
LAST_EVENTS_S = 0.5
"""How long a client may take to read the end of its stream when the server ends."""
KEEPALIVE_PERIOD_S = 15.0
"""How often a comment is sent where nothing has changed: proxies cut connections that are silent for a minute."""
_KEEPALIVE = (b":\n\n",)
_CHUNK_BYTES = 64 * 1024
# A small window costs 32 KiB of memory a stream instead of 256 KiB, and next to nothing of the ratio.
_LEVEL, _WINDOW_BITS, _GZIP, _MEMORY_LEVEL = 6, 12, 16, 5


@dataclass(frozen=True, eq=False)
class _Stream:
    request: web.Request
    feed: Feed

    def cut(self) -> None:
        if self.request.transport is not None:
            self.request.transport.abort()


class Streams:
    """All that are open."""

    def __init__(self, metrics: WebMetrics) -> None:
        self._metrics = metrics
        self._open: list[_Stream] = []
        """The one that has been open for longest first."""

    async def send(self, request: web.Request) -> web.StreamResponse:
        """The whole fleet of the request's viewer, then its changes; with ``?changes``, that there are any, and the
        numbers."""
        feed = request[FEED]
        if (SESSION in request and feed.watchers >= MAX_STREAMS_OF_A_VIEWER) or not self._has_room_for(feed):
            raise web.HTTPServiceUnavailable(text="too many pages are open: close some of yours, or try again later\n")
        with self._counted(request, feed):
            try:
                writer = await _Writer.begin(request)
                await _follow(feed, writer, feed.news_after if "changes" in request.query else feed.events_after)
                return writer.response
            except (ConnectionError, TimeoutError):
                if request.transport is not None:
                    request.transport.abort()
                raise web.HTTPRequestTimeout from None  # nobody reads it

    async def cut(self) -> None:
        """Cut those whose feeds have ended and whose clients do not read the end: the server need not wait for them."""
        if self._open:
            await asyncio.sleep(LAST_EVENTS_S)
        for stream in self._open:
            stream.cut()

    def _has_room_for(self, feed: Feed) -> bool:
        """Whether one more may open: where all places are taken, a viewer who has more of them than this one gives one
        up. So nobody's streams, however many and however slowly read, keep another viewer out."""
        if len(self._open) < MAX_STREAMS:
            return True
        oldest = max(self._open, key=lambda stream: stream.feed.watchers)
        if oldest.feed.watchers <= feed.watchers + 1:
            return False
        self._forget(oldest)
        oldest.cut()
        return True

    def _forget(self, stream: "_Stream") -> None:
        if stream in self._open:
            self._open.remove(stream)
            stream.feed.watchers -= 1
            self._metrics.streams.set(len(self._open))

    @contextmanager
    def _counted(self, request: web.Request, feed: Feed) -> Iterator[None]:
        stream = _Stream(request, feed)
        self._open.append(stream)
        feed.watchers += 1
        self._metrics.streams.set(len(self._open))
        try:
            yield
        finally:
            self._forget(stream)


async def _follow(feed: Feed, writer: "_Writer", events_after: Callable[[int], Sequence[bytes]]) -> None:
    version = 0
    while not feed.is_over:
        newest = feed.version
        await writer.write(events_after(version))
        version = newest
        while not await _is_newer(feed, version):
            await writer.write(_KEEPALIVE)
    await writer.end()


async def _is_newer(feed: Feed, version: int) -> bool:
    """Whether anything has changed before it is time for a sign of life."""
    try:
        async with asyncio.timeout(KEEPALIVE_PERIOD_S):
            await feed.wait_for_newer(version)
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
        async with asyncio.timeout(SEND_ALL_TIMEOUT_S):
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
