"""The HTTP of the pages: addresses, headers, and what every server of Purser has."""

from collections.abc import Awaitable, Callable
from importlib.resources import files

from aiohttp import web
from aiohttp.typedefs import Handler

from purser.connections import Limits
from purser.telemetry import telemetry_routes
from purser.web.access import Access
from purser.web.metrics import WebMetrics
from purser.web.pages import Pages
from purser.web.streaming import MAX_STREAMS, Streams

WEB_LIMITS = Limits(connections=2 * MAX_STREAMS)
"""Streams never take all of them."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_MAX_FORM_BYTES = 16 * 1024
_STATIC_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def web_app(pages: Pages, access: Access) -> web.Application:
    """The pages for those whom ``access`` lets in, and their streams."""
    metrics = WebMetrics()
    streams = Streams(metrics)
    app = web.Application(
        middlewares=[pages.errors, _restrict_other_sites, access.middleware], client_max_size=_MAX_FORM_BYTES
    )
    app.on_response_prepare.append(_on_response_prepare(metrics))
    app.on_shutdown.append(_on_shutdown(access, streams))
    app.add_routes(telemetry_routes(metrics.registry, access.problems))
    app.add_routes(
        [*pages.routes, *access.routes, web.get("/events", streams.send, allow_head=False), *_static_routes()]
    )
    return app


@web.middleware
async def _restrict_other_sites(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Other sites may link to pages, and not embed or fetch them: by what loads and what does not, a site would learn
    which names exist, and it could open streams until there are none left. See https://web.dev/articles/fetch-metadata.
    """
    headers = request.headers
    is_from_elsewhere = headers.get("Sec-Fetch-Site") in ("cross-site", "same-site")
    is_link = request.method == "GET" and headers.get("Sec-Fetch-Dest") == "document"
    if is_from_elsewhere and not is_link:
        raise web.HTTPForbidden(text="Other sites may only link to these pages.")
    return await handler(request)


def _on_response_prepare(metrics: WebMetrics) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    async def prepare(_: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(_HEADERS)
        metrics.responded(response.status)

    return prepare


def _static_routes() -> list[web.RouteDef]:
    return [
        web.get(f"/static/{file.name}", _file(file.read_bytes(), _STATIC_TYPES[file.name.rpartition(".")[2]]))
        for file in files("purser.web").joinpath("static").iterdir()
    ]


def _file(content: bytes, content_type: str) -> Handler:
    async def send(request: web.Request) -> web.Response:
        response = web.Response(body=content, content_type=content_type, charset="utf-8")
        response.enable_compression()
        return response

    return send


def _on_shutdown(access: Access, streams: Streams) -> Callable[[web.Application], Awaitable[None]]:
    async def end(_: web.Application) -> None:
        access.end()
        await streams.cut()

    return end
