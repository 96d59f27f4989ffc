"""The HTTP side: authentication, reading a request into a call, writing the answer."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import structlog
from aiohttp import web

from . import deletion, discovery, jsonio, listing, openapi, protobuf, reviews, routes, subresources, watching, writes
from .cluster import Call, Cluster, LogOptions, PodLogs, User
from .decode import Unknown, decode
from .errors import ApiError, Obj, bad_request, method_not_allowed, not_found, unsupported_media_type
from .resources import type_name
from .routes import Target
from .schema import builtin
from .views import JSON, View, negotiate

_log = structlog.get_logger("purser.lab.apiserver")
_MAX_BODY = 3 * 1024 * 1024
"""Bytes; the real server's limit for a request."""
_BODIES = ("application/json", "application/yaml", "text/json", "application/x-yaml", "application/octet-stream", "")
_DEFAULT_WATCH_SECONDS = 1800.0

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
        except ApiError as error:
            return _status(error)
        except web.HTTPRequestEntityTooLarge:
            return _status(ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {_MAX_BODY}"))
        except (asyncio.CancelledError, ConnectionResetError, web.HTTPException):
            raise
        except Exception as error:
            _log.exception("request failed", method=request.method, path=request.path)
            return _status(ApiError(500, "InternalError", f"Internal error occurred: {error!r}"))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        parts = [unquote(part) for part in request.raw_path.partition("?")[0].split("/") if part]
        if parts and parts[0] in ("healthz", "readyz", "livez"):
            return web.Response(text="ok")
        user = self._authenticated(request)
        if (document := self._document(request, parts)) is not None:
            return document
        return await self._resource(request, user, routes.parse(self.cluster.registry, parts))

    def _authenticated(self, request: web.Request) -> User:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        user = self.tokens.get(token.strip()) if scheme.lower() == "bearer" else None
        if user is None:
            raise ApiError(401, "Unauthorized", "Unauthorized")
        return user

    def _document(self, request: web.Request, parts: list[str]) -> web.Response | None:
        registry = self.cluster.registry
        match parts:
            case ["version"]:
                return _json(discovery.version())
            case ["api"]:
                return _json(discovery.core_versions(self.address))
            case ["apis"]:
                return _json(discovery.groups(registry))
            case ["api", version]:
                return _json(discovery.resources(registry, "", version))
            case ["apis", group]:
                return _json(discovery.group(registry, group))
            case ["apis", group, version]:
                return _json(discovery.resources(registry, group, version))
            case ["openapi", "v2"]:
                if openapi.ACCEPT_V2 in request.headers.get("Accept", ""):
                    return web.Response(body=openapi.v2_protobuf(), content_type=openapi.PROTOBUF_V2)
                return _json(openapi.v2())
            case ["openapi", "v3"]:
                return _json(openapi.v3_index(registry))
            case ["openapi", "v3", *rest]:
                return _json(openapi.v3(registry, "/".join(rest)))
            case []:
                return _json(
                    {
                        "paths": [
                            "/api",
                            "/apis",
                            "/healthz",
                            "/livez",
                            "/openapi/v2",
                            "/openapi/v3",
                            "/readyz",
                            "/version",
                        ]
                    }
                )
        return None

    async def _resource(self, request: web.Request, user: User, target: Target) -> web.StreamResponse:
        if request.method in ("GET", "HEAD"):
            return await self._read(request, target)
        call = _call(request, user, target)
        code, body = await self._write(request, call)
        if isinstance(body, bytes):
            return _raw(body, code, call.warnings)
        view = (
            View(target.resource)
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

    async def _get(self, request: web.Request, target: Target, view: View) -> web.StreamResponse:
        record = self.cluster.collection(target.resource).get((target.namespace, target.name))
        if record is None:
            raise not_found(target.resource.group, target.resource.plural, target.name)
        match target.subresource:
            case "" | "status":
                return _raw(view.one(record))
            case "scale":
                return _json(subresources.scale_of(target.resource, record.object()))
            case "log":
                return await self._log_of(request, record.object())
        raise method_not_allowed()

    async def _log_of(self, request: web.Request, pod: Obj) -> web.StreamResponse:
        options = _log_options(request.query)
        name, containers = pod["metadata"]["name"], [each["name"] for each in pod["spec"]["containers"]]
        if not options.container and len(containers) > 1:
            raise bad_request(
                f"a container name must be specified for pod {name}, choose one of: [{' '.join(containers)}]"
            )
        inits = [each["name"] for each in pod["spec"].get("initContainers") or ()]
        if options.container and options.container not in containers + inits:
            raise bad_request(f"container {options.container} is not valid for pod {name}")
        if not pod["spec"].get("nodeName"):
            return web.Response(status=204)  # nobody has logs yet; the real server says nothing, too
        if self.pod_logs is None:
            raise ApiError(503, "ServiceUnavailable", "no kubelet serves logs in this lab")
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        chunks = self.pod_logs(pod, options)
        first = await anext(chunks, b"")  # a refusal comes before the first byte, while there is a status to send
        await response.prepare(request)
        await response.write(first)
        async for chunk in chunks:
            await response.write(chunk)
        return response

    async def _watch(self, request: web.Request, target: Target, view: View) -> web.StreamResponse:
        query = request.query
        since, sends_initial = routes.revision(query), query.get("sendInitialEvents", "")
        selection = routes.selection(target, query)
        seconds = routes.number(query, "timeoutSeconds")
        response = web.StreamResponse(headers={"Content-Type": JSON})
        response.enable_chunked_encoding()
        initial = routes.flag(query, "sendInitialEvents") if sends_initial else not since
        if sends_initial and not initial and not since:
            since = self.cluster.store.revision
        try:
            watch = watching.Watch(self.cluster, view, selection, since=since, initial=initial)
        except ApiError as error:
            # Like the real server, which has promised a stream by the time it looks into its history.
            await response.prepare(request)
            await response.write(watching.error_line(error))
            return response
        lines = watch.lines(
            seconds=float(seconds) if seconds else _DEFAULT_WATCH_SECONDS,
            bookmark_seconds=self.bookmark_seconds,
            bookmarks=routes.flag(query, "allowWatchBookmarks"),
            mark_initial=bool(sends_initial) and initial,
        )
        self.watches.add(watch)
        try:
            await response.prepare(request)
            async for chunk in lines:
                if chunk:
                    await response.write(chunk)
        except ConnectionResetError:
            pass  # The watcher hung up: nobody is left to tell.
        finally:
            self.watches.discard(watch)
            watch.close()
        return response

    async def _write(self, request: web.Request, call: Call) -> tuple[int, Any]:
        match request.method:
            case "POST":
                return await self._post(call, await _body(request))
            case "PUT":
                return await self._put(call, await _body(request))
            case "PATCH" if call.name:
                return await self._patch(request, call)
            case "DELETE" if not call.subresource:
                return await self._delete(request, call)
        raise method_not_allowed()

    async def _post(self, call: Call, body: Obj) -> tuple[int, Obj]:
        if not call.resource.storage:
            return 201, reviews.answer(call, body, self.tokens)
        if call.subresource == "binding":
            return 201, await subresources.bind(self.cluster, call, body)
        if call.subresource == "eviction":
            return 201, await subresources.evict(self.cluster, call, body)
        if call.name:
            raise method_not_allowed()
        return 201, await writes.create(self.cluster, call, body)

    async def _put(self, call: Call, body: Obj) -> tuple[int, Obj]:
        match call.subresource:
            case "scale":
                return 200, await subresources.set_scale(self.cluster, call, JSON, body)
            case "finalize":
                return 200, await subresources.finalize_namespace(self.cluster, call, body)
            case "" | "status" if call.name:
                return await writes.replace(self.cluster, call, body)
        raise method_not_allowed()

    async def _patch(self, request: web.Request, call: Call) -> tuple[int, Obj]:
        content_type = request.content_type
        if content_type not in (writes.JSON, writes.MERGE, writes.STRATEGIC, *writes.APPLY):
            raise unsupported_media_type(content_type)
        data = await request.read()
        body = jsonio.decode_object(data, content_type) if content_type != writes.JSON else _operations(data)
        if content_type in writes.APPLY and not request.query.get("fieldManager"):
            raise bad_request(
                "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value: is required for apply patch"
            )
        if call.subresource == "scale":
            return 200, await subresources.set_scale(self.cluster, call, content_type, body)
        if call.subresource not in ("", "status"):
            raise method_not_allowed()
        return await writes.patch(self.cluster, call, content_type, body)

    async def _delete(self, request: web.Request, call: Call) -> tuple[int, Any]:
        options = await _delete_options(request)
        call.dry_run = routes.dry_run(request.query, options)
        if call.name:
            return 200, await deletion.delete(self.cluster, call, options)
        target = Target(call.resource, call.namespace)
        records = await deletion.delete_collection(self.cluster, call, routes.selection(target, request.query), options)
        return 200, View(call.resource).many(records, {"resourceVersion": str(self.cluster.store.revision)})


def _call(request: web.Request, user: User, target: Target) -> Call:
    query = request.query
    agent = request.headers.get("User-Agent", "unknown").split("/", 1)[0]
    strict = query.get("fieldValidation") or "Warn"
    if strict not in ("Ignore", "Warn", "Strict"):
        raise bad_request(
            f'fieldValidation: Unsupported value: "{strict}": supported values: "Ignore", "Strict", "Warn"'
        )
    if target.resource.namespaced and not target.namespace and request.method != "DELETE":
        raise method_not_allowed()
    named = {key: query[key] for key in ("fieldManager", "fieldValidation") if query.get(key)}
    return Call(
        target.resource, target.namespace, target.name, target.subresource, user,
        dry_run=routes.dry_run(query, {}), manager=query.get("fieldManager") or agent or "unknown", strict=strict,
        force=routes.flag(query, "force"), options=named,
    )  # fmt: skip


async def _body(request: web.Request) -> Obj:
    data = await request.read()
    if request.content_type == protobuf.CONTENT_TYPE:
        return protobuf.decode_body(data, type_name)
    if request.content_type not in _BODIES:
        raise unsupported_media_type(request.content_type)
    return jsonio.decode_object(data, request.content_type)


def _operations(data: bytes) -> Any:
    try:
        return jsonio.decode(data)
    except ValueError as error:
        raise bad_request(f"error decoding patch: {error}") from error


async def _delete_options(request: web.Request) -> Obj:
    options = await _body(request) if request.can_read_body else {}
    options = decode({**options, "kind": "DeleteOptions"}, builtin("meta.v1.DeleteOptions"), Unknown())
    query = request.query
    if query.get("gracePeriodSeconds"):
        options["gracePeriodSeconds"] = routes.number(query, "gracePeriodSeconds")
    if query.get("propagationPolicy"):
        options["propagationPolicy"] = query["propagationPolicy"]
    if (options.get("gracePeriodSeconds") or 0) < 0:
        raise bad_request("gracePeriodSeconds must be a non-negative integer")
    return options


def _log_options(query: Mapping[str, str]) -> LogOptions:
    return LogOptions(
        container=query.get("container", ""),
        follow=routes.flag(query, "follow"),
        previous=routes.flag(query, "previous"),
        timestamps=routes.flag(query, "timestamps"),
        tail_lines=routes.number(query, "tailLines"),
        since_seconds=routes.number(query, "sinceSeconds"),
        limit_bytes=routes.number(query, "limitBytes"),
    )


def _json(body: Obj) -> web.Response:
    return web.Response(body=jsonio.encode(body), content_type=JSON)


def _raw(body: bytes, code: int = 200, warnings: list[str] | None = None) -> web.Response:
    response = web.Response(body=body, status=code, content_type=JSON)
    for warning in dict.fromkeys(warnings or ()):
        text = warning.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ").replace("\r", " ")
        response.headers.add("Warning", f'299 - "{text}"')
    return response


def _status(error: ApiError) -> web.Response:
    response = web.Response(body=jsonio.encode(error.status()), status=error.code, content_type=JSON)
    if error.details and "retryAfterSeconds" in error.details:
        response.headers["Retry-After"] = str(error.details["retryAfterSeconds"])
    return response
