"""The HTTP that every server of Purser has: /metrics; /healthz: the process runs; /readyz: it can be asked, else a line
per reason why not."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from purser.connections import Connections, Limits, accept_connections
from purser.core.decoding import brief

log = structlog.get_logger("purser.http")

_DEFAULT_LIMITS = Limits(connections=64)
"""Prometheus and kubelet have one each; the memory of an agent is small."""
_SHUTDOWN_S = 5.0
_LINGER_TIMEOUT_S = 1.0
"""For how long an unread rest of a request is received, so that its client sees the answer."""


class _AiohttpLogHandler(logging.Handler):
    """Takes what aiohttp logs to where everything is logged, but the tracebacks of requests that make no sense: any
    client can send a thousand of them a second."""

    def emit(self, record: logging.LogRecord) -> None:
        """As logging calls it."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            log.debug("Malformed request", error=brief(error))
        else:
            log.error(record.getMessage(), exc_info=error)


_aiohttp = logging.Logger("aiohttp", logging.WARNING)
_aiohttp.addHandler(_AiohttpLogHandler())


class MetricsPage:
    """The text of /metrics, made on the loop that serves everything else as well.

    Requests that wait for a page share it: it is made after each of them came, so no value is older than the request.
    Between two pages the loop has at least as long for others as the first one took, however many ask.
    """

    def __init__(self, render: Callable[[], bytes]) -> None:
        self._render = render
        self._next: asyncio.Future[bytes] | None = None
        self._not_before = 0.0

    async def text(self) -> bytes:
        """The next page. Raises what making it raises."""
        if self._next is None:
            self._next = asyncio.ensure_future(self._make())
        return await asyncio.shield(self._next)  # others wait for it where this request is given up

    async def _make(self) -> bytes:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._not_before - loop.time())
        self._next = None
        began = loop.time()
        try:
            return self._render()
        finally:
            self._not_before = 2 * loop.time() - began


def telemetry_routes(
    registry: CollectorRegistry, problems: Callable[[], Sequence[str]], more: Callable[[], str] = lambda: ""
) -> list[web.RouteDef]:
    """The routes; ``problems`` says why the process is not ready, and nothing where it is; ``more`` are metrics as
    text, beside those of the registry."""

    page = MetricsPage(lambda: generate_latest(registry) + more().encode())

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(body=await page.text(), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def healthz(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(request: web.Request) -> web.Response:
        found = problems()
        return web.Response(status=503 if found else 200, text="\n".join(found or ["ok"]) + "\n")

    return [web.get("/metrics", metrics), web.get("/healthz", healthz), web.get("/readyz", readyz)]


def telemetry_app(
    registry: CollectorRegistry, problems: Callable[[], Sequence[str]], more: Callable[[], str] = lambda: ""
) -> web.Application:
    """These routes alone."""
    app = web.Application()
    app.add_routes(telemetry_routes(registry, problems, more))
    return app


@asynccontextmanager
async def listening(
    app: web.Application,
    address: str,
    port: int,
    context: ssl.SSLContext | None = None,
    limits: Limits = _DEFAULT_LIMITS,
) -> AsyncIterator[int]:
    """Serve an app until left, and give the port; requests under way are finished. Raises OSError when it is taken."""
    # Bodies are taken as they come: one that has to be unpacked first would have any size.
    runner = web.AppRunner(
        app,
        access_log=None,
        shutdown_timeout=_SHUTDOWN_S,
        keepalive_timeout=limits.idle_s,
        lingering_time=_LINGER_TIMEOUT_S,
        auto_decompress=False,
        logger=_aiohttp,
    )

    def http() -> asyncio.Protocol:
        assert runner.server is not None
        return runner.server()

    connections = Connections(http, limits, context)
    app.middlewares.insert(0, connections.middleware())
    await runner.setup()
    try:
        async with accept_connections(connections, address, port, backlog=limits.connections) as chosen:
            yield chosen
    finally:
        try:
            await runner.cleanup()
        finally:
            connections.close()
