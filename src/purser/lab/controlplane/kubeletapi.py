"""The part of kubelet's HTTPS API that the API server asks on behalf of `kubectl logs`, for all emulated nodes."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from purser.connections import accept_connections
from purser.kube.client import Client
from purser.kube.errors import NotFoundError
from purser.kube.resources import PODS
from purser.lab.apiserver import LogOptions, PodLogs, StatusError
from purser.lab.controlplane.commands import LOOPBACK
from purser.lab.controlplane.credentials import PemFiles


@asynccontextmanager
async def serving(client: Client, logs: PodLogs, serving_pair: PemFiles, ca: PemFiles) -> AsyncIterator[int]:
    """Serve on a free port, which is yielded; only clients with a certificate of the cluster's CA are answered."""

    async def container_logs(request: web.Request) -> web.StreamResponse:
        where = request.match_info
        try:
            pod = await client.get(PODS.raw(), where["pod"], where["namespace"])
        except NotFoundError as error:
            raise web.HTTPNotFound(text=str(error)) from error
        return await _stream(request, logs(dict(pod), LogOptions(container=where["container"])))

    application = web.Application()
    application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", container_logs)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        assert runner.server is not None
        async with accept_connections(runner.server, LOOPBACK, 0, context=_context(serving_pair, ca)) as port:
            yield port
    finally:
        await runner.cleanup()


async def _stream(request: web.Request, chunks: AsyncIterator[bytes]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    try:
        first = await anext(chunks, b"")
    except StatusError as error:
        return web.Response(status=error.code, text=str(error))
    await response.prepare(request)
    await response.write(first)
    async for chunk in chunks:
        await response.write(chunk)
    return response


def _context(serving_pair: PemFiles, ca: PemFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(ca.cert))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(serving_pair.cert, serving_pair.key)
    return context
