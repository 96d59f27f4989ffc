"""The HTTP that every server of Purser has: /metrics; /healthz: the process runs; /readyz: it can be asked, else a line
per reason why not."""

import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

_SHUTDOWN_S = 5.0


def telemetry_routes(registry: CollectorRegistry, problems: Callable[[], Sequence[str]]) -> list[web.RouteDef]:
    """The routes; ``problems`` says why the process is not ready, and nothing where it is."""

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def healthz(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(request: web.Request) -> web.Response:
        found = problems()
        return web.Response(status=503 if found else 200, text="\n".join(found or ["ok"]) + "\n")

    return [web.get("/metrics", metrics), web.get("/healthz", healthz), web.get("/readyz", readyz)]


def telemetry_app(registry: CollectorRegistry, problems: Callable[[], Sequence[str]]) -> web.Application:
    """These routes alone."""
    app = web.Application()
    app.add_routes(telemetry_routes(registry, problems))
    return app


@asynccontextmanager
async def listening(
    app: web.Application, address: str, port: int, context: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve an app until left, and give the port; requests under way are finished. Raises OSError when it is taken."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    try:
        await web.TCPSite(runner, address, port, ssl_context=context).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
