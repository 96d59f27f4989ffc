"""The agent's HTTP port.

/metrics; /healthz: the process runs; /readyz: kubelet and the cluster know the node's devices, else a line per reason.
"""

import contextlib
from collections.abc import AsyncIterator, Callable

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest


def make_app(registry: CollectorRegistry, problems: Callable[[], tuple[str, ...]]) -> web.Application:
    """The application; ``problems`` says why the agent is not ready."""

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def healthz(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(request: web.Request) -> web.Response:
        found = problems()
        return web.Response(status=503 if found else 200, text="\n".join(found or ("ok",)) + "\n")

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics), web.get("/healthz", healthz), web.get("/readyz", readyz)])
    return app


@contextlib.asynccontextmanager
async def serve_http(app: web.Application, host: str, port: int) -> AsyncIterator[int]:
    """Serve until left; gives the port. Raises OSError when it is taken."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
