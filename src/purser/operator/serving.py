"""The operator's HTTP port.

/metrics; /healthz: the process runs; /readyz: the cluster is known, else a line that says what is missing.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest


@asynccontextmanager
async def serving(
    registry: CollectorRegistry, problems: Callable[[], list[str]], address: str, port: int
) -> AsyncIterator[int]:
    """Serve until left; gives the port. Raises OSError when it is taken."""
    runner = web.AppRunner(_app(registry, problems), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, address, port).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _app(registry: CollectorRegistry, problems: Callable[[], list[str]]) -> web.Application:
    async def metrics(request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def healthz(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(request: web.Request) -> web.Response:
        found = problems()
        return web.Response(status=503 if found else 200, text="\n".join(found or ["ok"]) + "\n")

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics), web.get("/healthz", healthz), web.get("/readyz", readyz)])
    return app
