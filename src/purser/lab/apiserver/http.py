"""The HTTP side: authentication, reading a request into a call, writing the answer."""

import asyncio
import unicodedata
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import structlog
from aiohttp import web

from . import (
    bodies,
    deletion,
    documents,
    ephemeral,
    jsonio,
    listing,
    logs,
    reviews,
    routes,
    streams,
    subresources,
    watching,
    writes,
)
from .cluster import API_AUDIENCE, ApiRequest, Cluster, PodLogs, User
from .errors import Obj, StatusError, bad_request, method_not_allowed, not_found, unsupported_media_type
from .routes import Target
from .views import JSON, ResourceView, negotiate

log = structlog.get_logger("purser.lab.apiserver")
_MAX_BODY = 3 * 1024 * 1024
"""Bytes; the real server's limit for a request."""

Intercept = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


@dataclass(slots=True)
class Frontend:
    """Answers requests for one cluster."""

    cluster: Cluster
    tokens: Mapping[str, User]
    bookmark_seconds: float
    address: str = ""
    pod_logs: PodLogs | None = None
    intercept: Intercept | None = None
    watches: set[watching.Watch] = field(default_factory=set)

    def application(self) -> web.Application:
        """The aiohttp application: one handler, because the path grammar is Kubernetes' own."""
        app = web.Application(client_max_size=_MAX_BODY)
        app.router.add_route("*", "/{tail:.*}", self.handle)
        return app

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Any request; whatever goes wrong becomes a Status."""
        try:
            if self.intercept and (answer := await self.intercept(request)):
                return answer
            return await self._answer(request)
        except StatusError as error:
            return _status(error)
        except web.HTTPRequestEntityTooLarge:
            return _status(StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {_MAX_BODY}"))
        except (asyncio.CancelledError, ConnectionResetError, web.HTTPException):
            raise
        except Exception as error:
            log.exception("A request failed", method=request.method, path=request.path)
            return _status(StatusError(500, "InternalError", f"Internal error occurred: {error!r}"))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        parts = [unquote(part) for part in request.raw_path.partition("?")[0].split("/") if part]
        if parts and parts[0] in ("healthz", "readyz", "livez"):
            return web.Response(text="ok")
        user = self._authenticated(request)
        document = documents.find(self.cluster.registry, parts, request.headers.get("Accept", ""), self.address)
        if document is not None:
            return web.Response(body=document.body, content_type=document.content_type)
        return await self._resource(request, user, routes.parse(self.cluster.registry, parts))

    def _authenticated(self, request: web.Request) -> User:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        user = self.tokens.get(token.strip()) if scheme.lower() == "bearer" else None
        if user is None or API_AUDIENCE not in user.audiences:
            raise StatusError(401, "Unauthorized", "Unauthorized")
        if not user.has_rights:
            raise StatusError(403, "Forbidden", f'User "{user.name}" has no permissions')
        return user

    async def _resource(self, request: web.Request, user: User, target: Target) -> web.StreamResponse:
        if request.method in ("GET", "HEAD"):
            return await self._read(request, target)
        call = bodies.read_call(request, user, target)
        code, body = await self._write(request, call)
        if isinstance(body, bytes):
            return _raw(body, code, call.warnings)
        view = (
            ResourceView(target.resource)
            if target.subresource
            else negotiate(target.resource, request.headers.get("Accept", ""), request.query)
        )
        if body.get("kind") == target.resource.kind and "metadata" in body and view.form != "object":
            return _raw(view.convert(body), code, call.warnings)
        return _raw(jsonio.encode(body), code, call.warnings)

    async def _read(self, request: web.Request, target: Target) -> web.StreamResponse:
        query = request.query
        if not target.resource.storage:
            raise method_not_allowed()
        view = negotiate(target.resource, request.headers.get("Accept", ""), query)
        if routes.flag(query, "watch") and not target.subresource:
            return await self._watch(request, target, view)
        if not target.name:
            return _raw(listing.list_objects(self.cluster, target, view, query))
        return await self._get(request, target, view)

    async def _get(self, request: web.Request, target: Target, view: ResourceView) -> web.StreamResponse:
        record = self.cluster.collection(target.resource).get((target.namespace, target.name))
        if record is None:
            raise not_found(target.resource.group, target.resource.plural, target.name)
        match target.subresource:
            case "" | "status" | ephemeral.SUBRESOURCE:
                return _raw(view.one(record))
            case "scale":
                return _json(subresources.scale_of(target.resource, record.object()))
            case "log":
                return await logs.serve(request, record.object(), self.pod_logs)
            case "exec" | "attach" | "portforward" as stream:
                raise streams.refusal(record.object(), stream, request.query.get("container", ""))
        raise method_not_allowed()

    async def _watch(self, request: web.Request, target: Target, view: ResourceView) -> web.StreamResponse:
        options = watching.read_options(request.query, self.cluster.store.revision)
        selection = routes.selection(target, request.query)
        response = web.StreamResponse(headers={"Content-Type": JSON})
        response.enable_chunked_encoding()
        try:
            watch = watching.Watch(self.cluster, view, selection, since=options.since, initial=options.initial)
        except StatusError as error:
            # Like the real server, which has promised a stream by the time it looks into its history.
            await response.prepare(request)
            await response.write(watching.error_line(error))
            return response
        self.watches.add(watch)
        try:
            await response.prepare(request)
            async for chunk in watch.lines(options, self.bookmark_seconds):
                if chunk:
                    await response.write(chunk)
        except ConnectionResetError:
            pass  # The watcher closed the connection.
        finally:
            self.watches.discard(watch)
            watch.close()
        return response

    async def _write(self, request: web.Request, call: ApiRequest) -> tuple[int, Any]:
        if call.subresource in streams.NAMES:
            await self._get(
                request, Target(call.resource, call.namespace, call.name, call.subresource), ResourceView(call.resource)
            )
        match request.method:
            case "POST":
                return await self._post(call, await bodies.read(request))
            case "PUT":
                return await self._put(call, await bodies.read(request))
            case "PATCH" if call.name:
                return await self._patch(request, call)
            case "DELETE" if not call.subresource:
                return await self._delete(request, call)
        raise method_not_allowed()

    async def _post(self, call: ApiRequest, body: Obj) -> tuple[int, Obj]:
        if not call.resource.storage:
            return 201, reviews.answer(call, body, self.tokens)
        if call.subresource == "binding":
            return 201, await subresources.bind(self.cluster, call, body)
        if call.subresource == "eviction":
            return 201, await subresources.evict(self.cluster, call, body)
        if call.name:
            raise method_not_allowed()
        return 201, await writes.create(self.cluster, call, body)

    async def _put(self, call: ApiRequest, body: Obj) -> tuple[int, Obj]:
        match call.subresource:
            case "scale":
                return 200, await subresources.set_scale(self.cluster, call, JSON, body)
            case "finalize":
                return 200, await subresources.finalize_namespace(self.cluster, call, body)
            case "" | "status" | ephemeral.SUBRESOURCE if call.name:
                return await writes.replace(self.cluster, call, body)
        raise method_not_allowed()

    async def _patch(self, request: web.Request, call: ApiRequest) -> tuple[int, Obj]:
        content_type = request.content_type
        if content_type not in (writes.JSON, writes.MERGE, writes.STRATEGIC, *writes.APPLY):
            raise unsupported_media_type(content_type)
        data = await request.read()
        body = jsonio.decode_object(data, content_type) if content_type != writes.JSON else bodies.operations(data)
        if content_type in writes.APPLY and not request.query.get("fieldManager"):
            raise bad_request(
                "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value: is required for apply patch"
            )
        if call.subresource == "scale":
            return 200, await subresources.set_scale(self.cluster, call, content_type, body)
        if call.subresource not in ("", "status", ephemeral.SUBRESOURCE):
            raise method_not_allowed()
        return await writes.patch(self.cluster, call, content_type, body)

    async def _delete(self, request: web.Request, call: ApiRequest) -> tuple[int, Any]:
        options = await bodies.delete_options(request)
        call.dry_run = routes.dry_run(request.query, options)
        if call.name:
            return 200, await deletion.delete(self.cluster, call, options)
        target = Target(call.resource, call.namespace)
        records = await deletion.delete_collection(self.cluster, call, routes.selection(target, request.query), options)
        return 200, ResourceView(call.resource).many(records, {"resourceVersion": str(self.cluster.store.revision)})


def _json(body: Obj) -> web.Response:
    return web.Response(body=jsonio.encode(body), content_type=JSON)


def _raw(body: bytes, code: int = 200, warnings: list[str] | None = None) -> web.Response:
    response = web.Response(body=body, status=code, content_type=JSON)
    for warning in dict.fromkeys(warnings or ()):
        text = warning.replace("\\", "\\\\").replace('"', '\\"')
        if text and not any(unicodedata.category(letter) == "Cc" for letter in text):  # as the real one drops them
            response.headers.add("Warning", f'299 - "{text}"')
    return response


def _status(error: StatusError) -> web.Response:
    response = web.Response(body=jsonio.encode(error.status()), status=error.code, content_type=JSON)
    if error.details and "retryAfterSeconds" in error.details:
        response.headers["Retry-After"] = str(error.details["retryAfterSeconds"])
    return response
