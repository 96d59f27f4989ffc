"""Changes as server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html.

Each stream is compressed, and given up where its client reads too slowly. Whoever falls behind is sent what is new
since, or the whole fleet: nothing is queued for anybody. Whoever comes gets a stream: where there is no place for one
more, an old one ends.
"""

import asyncio
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from aiohttp import web

from purser.kube.racing import until
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
"""How long a client may take to read the end of its stream, when the server ends or another one takes its place."""
DISPLACED = (
    b'event: displaced\ndata: {"reason":"Too many pages are open. This one is not updated for now: it tries again by '
    b'itself, and at once if you reload it."}\n\n'
)
"""The end of a stream that another one takes the place of: its page lets some time pass before it comes back."""
KEEPALIVE_PERIOD_S = 15.0
"""How often a comment is sent where nothing has changed: proxies cut connections that are silent for a minute."""
_KEEPALIVE = (b":\n\n",)
_CHUNK_BYTES = 64 * 1024
# A small window costs 32 KiB of memory a stream instead of 256 KiB, and next to nothing of the ratio.
_LEVEL, _WINDOW_BITS, _GZIP, _MEMORY_LEVEL = 6, 12, 16, 5


@dataclass(eq=False)
class _Stream:
    request: web.Request
    feed: Feed
    is_writing: bool = True
    """Whether its client has yet to take what it is being sent."""
    displaced: asyncio.Event = field(default_factory=asyncio.Event)
    """Set where another one takes its place."""

    def displace(self) -> None:
        """End it, with a word to its page if that reads."""
        self.displaced.set()
        if self.is_writing:
            self.cut()
        else:
            asyncio.get_running_loop().call_later(LAST_EVENTS_S, self.cut)

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
        self._make_room_for(feed, MAX_STREAMS_OF_A_VIEWER if SESSION in request else MAX_STREAMS)
        with self._counted(request, feed) as stream:
            try:
                writer = await _Writer.begin(request)
                await _follow(stream, writer, feed.news_after if "changes" in request.query else feed.events_after)
                return writer.response
            except (ConnectionError, TimeoutError):
                stream.cut()
                raise web.HTTPRequestTimeout from None  # nobody reads it

    async def cut(self) -> None:
        """Cut those whose feeds have ended and whose clients do not read the end: the server need not wait for them."""
        if self._open:
            await asyncio.sleep(LAST_EVENTS_S)
        for stream in self._open:
            stream.cut()

    def _make_room_for(self, feed: Feed, most_of_one: int) -> None:
        """End an old stream where there is no place for one more: of a viewer who has more of them than this one, or
        one of this viewer's own. So streams that are not read, however many, keep nobody out."""
        own = next((stream for stream in self._open if stream.feed is feed), None)
        if own is not None and feed.watchers >= most_of_one:
            self._displace(own)
        elif len(self._open) >= MAX_STREAMS:
            other = max(self._open, key=lambda stream: stream.feed.watchers)
            is_fair = own is None or other.feed.watchers > feed.watchers + 1
            self._displace(other if is_fair else own or other)

    def _displace(self, stream: _Stream) -> None:
        self._forget(stream)
        stream.displace()

    def _forget(self, stream: _Stream) -> None:
        if stream in self._open:
            self._open.remove(stream)
            stream.feed.watchers -= 1
            self._metrics.streams.set(len(self._open))

    @contextmanager
    def _counted(self, request: web.Request, feed: Feed) -> Iterator[_Stream]:
        stream = _Stream(request, feed)
        self._open.append(stream)
        feed.watchers += 1
        self._metrics.streams.set(len(self._open))
        try:
            yield stream
        finally:
            self._forget(stream)


async def _follow(stream: _Stream, writer: "_Writer", events_after: Callable[[int], Sequence[bytes]]) -> None:
    feed = stream.feed
    events, version = events_after(0), feed.version
    while not feed.is_over and not stream.displaced.is_set():
        stream.is_writing = True
        await writer.write(events)
        stream.is_writing = False
        # Until there is something new, or it is time for a sign of life.
        with suppress(TimeoutError):
            async with asyncio.timeout(KEEPALIVE_PERIOD_S):
                await until(feed.wait_for_newer(version), stream.displaced.wait())
        is_newer = feed.version > version
        events, version = events_after(version) if is_newer else _KEEPALIVE, feed.version
    if stream.displaced.is_set():
        writer.response.force_close()
        await writer.write((DISPLACED,))
    await writer.end()


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
