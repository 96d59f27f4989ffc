"""Connections of untrusted clients: how many a server accepts, and how long each may keep it waiting.

aiohttp bounds the size of a header, and not the time of reading it. So each connection is tracked here, from before its
TLS handshake to its end, and closed when its client takes too long. Where there are too many, the one that has waited
longest for its client is closed: idle clients cannot keep others out.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware


@dataclass(frozen=True)
class Limits:
    """What a server bears of its clients."""

    connections: int = 512
    """At once. kube-apiserver opens one for each request that is under way."""
    request_s: float = 10.0
    """Seconds for the handshake and the first request, then for each request from its first byte to its last. Real
    clients need less: kube-scheduler waits 10 s for an extender, kube-apiserver less for a webhook."""
    idle_s: float = 120.0
    """Seconds between two requests: more than Go's clients keep a connection that they do not use (90 s)."""


class Connections:
    """All connections of one server. ``make`` gives the protocol that speaks HTTP on one of them."""

    def __init__(self, make: Callable[[], asyncio.Protocol], limits: Limits, context: ssl.SSLContext | None) -> None:
        self._make = make
        self._limits = limits
        self._context = context
        self._open: dict[object, _Connection] = {}
        self._is_closed = False
        self._waited_for: dict[_Connection, None] = {}
        """Those whose clients have to say something, the one that has had to for longest first."""

    def __call__(self) -> asyncio.Protocol:
        """One more connection, as event loops ask for it."""
        return _Connection(self, self._make(), self._limits, self._context)

    def middleware(self) -> Middleware:
        """The outermost middleware of the server: it records whether client or server is being waited for."""

        @web.middleware
        async def follow(request: web.Request, handler: Handler) -> web.StreamResponse:
            connection = self._open.get(request.protocol)
            if connection is None:
                return await handler(request)
            connection.note_request_head()
            request.content.on_eof(connection.note_request_body)
            try:
                return await handler(request)
            finally:
                connection.has_answered()

        return follow

    def close(self) -> None:
        """Cut all that are left when the server has ended, and those that it had accepted and the loop has yet to make
        known."""
        self._is_closed = True
        for connection in list(self._open.values()):
            connection.cut()

    def admit(self, connection: "_Connection") -> bool:
        """Take one in; False where all the others are being answered, or the server has ended."""
        if self._is_closed:
            return False
        if len(self._open) >= self._limits.connections:
            longest_waiting = next(iter(self._waited_for), None)
            if longest_waiting is None:
                return False
            longest_waiting.cut()
        self._open[connection.inner] = connection
        return True

    def waits(self, connection: "_Connection") -> None:
        """From now on its client has to say something."""
        self._waited_for.pop(connection, None)
        self._waited_for[connection] = None

    def stop_waiting_for(self, connection: "_Connection") -> None:
        """Its client has said all."""
        self._waited_for.pop(connection, None)

    def forget(self, connection: "_Connection") -> None:
        """It has ended."""
        self._open.pop(connection.inner, None)
        self._waited_for.pop(connection, None)


@asynccontextmanager
async def accept_connections(
    make: Callable[[], asyncio.Protocol],
    address: str,
    port: int,
    *,
    backlog: int = 100,
    context: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """Accept connections until left, and give the port; a ``port`` of 0 is a free one. Raises OSError when it is taken.

    In two steps, because `create_server` that is cancelled while it starts to serve leaves the socket open, which
    nothing else knows.
    """
    loop = asyncio.get_running_loop()
    server = await loop.create_server(make, address, port, backlog=backlog, ssl=context, start_serving=False)
    try:
        await server.start_serving()
        yield int(server.sockets[0].getsockname()[1])
    finally:
        await stop_accepting(server)


async def stop_accepting(server: asyncio.Server) -> None:
    """Close a server; `Connections.close` then cuts those that it had accepted.

    asyncio leaves a connection open for good that a server has accepted, and that the loop would make known after the
    server has closed: the loop gets that one turn.
    """
    for listening in server.sockets:
        server.get_loop().remove_reader(listening.fileno())
    try:
        await asyncio.sleep(0)
    finally:  # also for whoever is cancelled once more meanwhile
        server.close()


class _Connection(asyncio.Protocol):
    """Between the socket, or TLS, and HTTP."""

    def __init__(
        self, owner: Connections, inner: asyncio.Protocol, limits: Limits, context: ssl.SSLContext | None
    ) -> None:
        self.inner = inner
        self._owner = owner
        self._limits = limits
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._handshake: asyncio.Task[None] | None = None
        self._early: list[bytes] = []
        """What came with the end of the handshake."""
        self._is_made = False
        """Whether HTTP knows of it."""
        self._is_asked = False
        """Whether a request is being read or answered."""
        self._is_idle = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody connected."""
        self._transport = made = cast(asyncio.Transport, transport)
        if not self._owner.admit(self):
            made.abort()
            return
        self._wait(self._limits.request_s)
        if self._context is None:
            self._make(made)
        else:
            made.pause_reading()
            self._handshake = self._loop.create_task(self._start_tls(made, self._context))

    def data_received(self, data: bytes) -> None:
        """The client said something."""
        if not self._is_made:
            self._early.append(data)
            return
        if self._is_idle:
            self._is_idle = False
            self._wait(self._limits.request_s)
        self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        """The client says nothing more."""
        return self.inner.eof_received() if self._is_made else None

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended."""
        self._end()
        if self._is_made:
            self._is_made = False
            self.inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """The client reads more slowly than the server writes."""
        if self._is_made:
            self.inner.pause_writing()

    def resume_writing(self) -> None:
        """It has caught up."""
        if self._is_made:
            self.inner.resume_writing()

    def note_request_head(self) -> None:
        """The head of a request is there."""
        self._is_asked = True

    def note_request_body(self) -> None:
        """The body of a request is there: now its client waits."""
        if self._is_asked:
            self._stop_timer()
            self._owner.stop_waiting_for(self)

    def has_answered(self) -> None:
        """The next request is the client's turn, and so is reading the answer."""
        self._is_asked, self._is_idle = False, True
        if self._transport is not None:
            self._wait(self._limits.idle_s)

    def cut(self) -> None:
        """End it now."""
        transport = self._transport
        self._end()
        if transport is not None:
            transport.abort()

    async def _start_tls(self, plain: asyncio.Transport, context: ssl.SSLContext) -> None:
        limit_s = self._limits.request_s
        try:
            secured = await self._loop.start_tls(
                plain, self, context, server_side=True, ssl_handshake_timeout=limit_s, ssl_shutdown_timeout=limit_s
            )
        except OSError:  # ssl.SSLError and ConnectionError are; clients without TLS get no answer
            secured = None
        self._handshake = None
        if secured is None or self._transport is None:
            self.cut()
            return
        self._make(secured)
        early, self._early = self._early, []
        for data in early:
            self.inner.data_received(data)

    def _make(self, transport: asyncio.Transport) -> None:
        self._transport, self._is_made = transport, True
        self.inner.connection_made(transport)

    def _wait(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(seconds, self.cut)
        self._owner.waits(self)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self._stop_timer()
        self._transport = None
        self._owner.forget(self)
        if self._handshake is not None:
            self._handshake.cancel()
            self._handshake = None
