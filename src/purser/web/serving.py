"""The HTTP of the pages, on this machine's own addresses alone: whoever can connect sees what the viewer may see.

As `kubectl proxy` does, it answers only requests that name this machine as their host: a page of another site that has
its own name lead here (DNS rebinding) reads nothing.
"""

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from urllib.parse import urlencode

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from purser.connections import Limits
from purser.core.state import ClusterState, StateGpuHealth
from purser.kube import Clock
from purser.telemetry import telemetry_routes
from purser.web.feed import Feed
from purser.web.metrics import WebMetrics
from purser.web.rendering import Renderer
from purser.web.streaming import MAX_STREAMS, Streams
from purser.web.tables import gpu_places, node_rows, use_by_model, use_by_namespace, waiting_groups

log = structlog.get_logger("purser.web")

LOCAL_ADDRESS = "127.0.0.1"
WEB_LIMITS = Limits(connections=2 * MAX_STREAMS)
"""Streams never take all of them."""
NODES_PER_PAGE = 200
_FIRST_LOOK_S = 2.0
"""How long a page waits for a cluster that has not been read yet."""
_MAX_QUERY = 200
"""Characters of what is searched for."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_STATIC_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}

_NOT_READ = "the cluster has not been read yet"
_NOT_PAGES = ("/static/", "/events", "/healthz", "/readyz", "/metrics")

Values = Mapping[str, object]


def web_app(feed: Feed, clock: Clock) -> web.Application:
    """The pages, their streams, and what every server of Purser has."""
    pages, metrics = _Pages(feed, clock), WebMetrics()
    streams = Streams(feed, metrics)
    app = web.Application(middlewares=[_only_for_this_machine, pages.errors])
    app.on_response_prepare.append(_preparing(metrics))
    app.on_shutdown.append(_ending(feed))
    app.add_routes(telemetry_routes(metrics.registry, lambda: [] if feed.version else [_NOT_READ]))
    app.add_routes(
        [
            web.get("/", pages.fleet),
            web.get("/nodes", pages.nodes),
            web.get("/nodes/{name}", pages.node),
            web.get("/gpus/{uuid}", pages.gpu),
            web.get("/pods/{namespace}/{name}", pages.pod),
            web.get("/waiting", pages.waiting),
            web.get("/use", pages.use),
            web.get("/events", streams.send),
            *_static_routes(),
        ]
    )
    return app


class _Pages:
    """A handler for each page."""

    def __init__(self, feed: Feed, clock: Clock) -> None:
        self._feed, self._clock, self._renderer = feed, clock, Renderer()

    async def fleet(self, request: web.Request) -> web.Response:
        return self._page(request, "fleet.html", {})

    async def nodes(self, request: web.Request) -> web.Response:
        find = request.query.get("find", "")[:_MAX_QUERY]
        health = request.query.get("health", "")
        health = health if health in set(StateGpuHealth) else ""
        state = await self._state()
        rows = node_rows(state, find, health)
        pages = max(-(-len(rows) // NODES_PER_PAGE), 1)
        page = min(_number(request.query.get("page", "")), pages)
        values = {
            "rows": rows[(page - 1) * NODES_PER_PAGE : page * NODES_PER_PAGE],
            "total": len(rows),
            "all": len(state.nodes),
            "page": page,
            "pages": pages,
            "find": find,
            "health": health,
            "page_link": lambda number: f"/nodes?{urlencode({'find': find, 'health': health, 'page': number})}",
        }
        return self._page(request, "nodes.html", values)

    async def node(self, request: web.Request) -> web.Response:
        state, name = await self._state(), request.match_info["name"]
        node = next((each for each in state.nodes if each.name == name), None)
        if node is None:
            raise _not_found(f"The cluster has no node {name} with GPUs.")
        places = gpu_places(state, lambda at, _: at is node)
        return self._page(request, "node.html", {"node": node, "places": places})

    async def gpu(self, request: web.Request) -> web.Response:
        uuid = request.match_info["uuid"]
        places = gpu_places(await self._state(), lambda _, gpu: uuid in (gpu.uuid, gpu.parent))
        place = next((each for each in places if each.gpu.uuid == uuid), None)
        if place is None:
            raise _not_found(f"No node lists a GPU with the UUID {uuid}.")
        children = [each for each in places if each is not place]
        return self._page(request, "gpu.html", {"place": place, "children": children})

    async def pod(self, request: web.Request) -> web.Response:
        state, namespace, name = await self._state(), request.match_info["namespace"], request.match_info["name"]
        grant = next((each for each in state.grants if (each.namespace, each.pod) == (namespace, name)), None)
        waiting = next((each for each in state.waiting if (each.namespace, each.pod) == (namespace, name)), None)
        if grant is None and waiting is None:
            raise _not_found(f"No pod {namespace}/{name} holds GPUs or waits for one.")
        why = await self._feed.details(namespace, name)
        values = {"namespace": namespace, "name": name, "grant": grant, "waiting": waiting, "why": why}
        return self._page(request, "pod.html", values)

    async def waiting(self, request: web.Request) -> web.Response:
        state = await self._state()
        return self._page(request, "waiting.html", {"groups": waiting_groups(state), "total": len(state.waiting)})

    async def use(self, request: web.Request) -> web.Response:
        state = await self._state()
        return self._page(request, "use.html", {"namespaces": use_by_namespace(state), "models": use_by_model(state)})

    @property
    def errors(self) -> Middleware:
        """Says what went wrong on a page, not in a line of text."""

        @web.middleware
        async def shown(request: web.Request, handler: Handler) -> web.StreamResponse:
            try:
                return await handler(request)
            except web.HTTPException as error:
                if request.path.startswith(_NOT_PAGES):
                    raise
                heading = {403: "Not allowed", 404: "Not found", 503: "Not ready yet"}.get(error.status, error.reason)
                return self._page(request, "message.html", {"heading": heading, "text": error.text}, error.status)
            except Exception:
                log.exception("Failed to build a page", path=request.path)
                values = {"heading": "Error in Purser", "text": "Purser's log has the details."}
                return self._page(request, "message.html", values, 500)

        return shown

    async def _state(self) -> ClusterState:
        try:
            async with asyncio.timeout(_FIRST_LOOK_S):
                await self._feed.newer_than(0)
        except TimeoutError:
            pass
        if self._feed.state is None:
            raise web.HTTPServiceUnavailable(text="Purser is still reading the cluster. This page updates by itself.")
        return self._feed.state

    def _page(self, request: web.Request, template: str, values: Values, status: int = 200) -> web.Response:
        feed = self._feed
        text = self._renderer.page(
            template,
            path=request.path,
            where=feed.where,
            problem=feed.problem,
            now=self._clock.now().timestamp(),
            **values,
        )
        response = web.Response(text=text, content_type="text/html", status=status)
        response.enable_compression()
        return response


@web.middleware
async def _only_for_this_machine(request: web.Request, handler: Handler) -> web.StreamResponse:
    if not is_this_machine(request.host):
        message = f"requests must be for {LOCAL_ADDRESS} or localhost, not for another host name\n"
        return web.Response(status=403, text=message)
    return await handler(request)


def _preparing(metrics: WebMetrics) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    async def prepare(_: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(_HEADERS)
        metrics.responded(response.status)

    return prepare


def is_this_machine(host: str) -> bool:
    """Whether a Host header, ``NAME``, ``NAME:PORT`` or ``[IPv6]:PORT``, is a loopback address or localhost."""
    name = host.partition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


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


def _ending(feed: Feed) -> Callable[[web.Application], Awaitable[None]]:
    async def end(_: web.Application) -> None:
        feed.end()

    return end


def _not_found(text: str) -> web.HTTPNotFound:
    return web.HTTPNotFound(text=f"{text} It may have gone.")


def _number(text: str) -> int:
    """A page's number; 1 where it is none."""
    return max(int(text[:9]), 1) if text.isascii() and text.isdecimal() else 1
