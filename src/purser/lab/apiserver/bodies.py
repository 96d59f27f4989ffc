"""Reading requests: the call that path and query make, and bodies in their notations."""

from typing import Any

from aiohttp import web

from . import jsonio, protobuf, routes
from .cluster import ApiRequest, User
from .decode import Unknown, decode
from .errors import Obj, bad_request, method_not_allowed, unsupported_media_type
from .resources import type_name
from .routes import Target
from .schema import builtin

_BODIES = ("application/json", "application/yaml", "text/json", "application/x-yaml", "application/octet-stream", "")


def read_call(request: web.Request, user: User, target: Target) -> ApiRequest:
    """What is asked, from path and query; raises 400 or 405."""
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
    return ApiRequest(
        target.resource, target.namespace, target.name, target.subresource, user,
        dry_run=routes.dry_run(query, {}), manager=query.get("fieldManager") or agent or "unknown", strict=strict,
        force=routes.flag(query, "force"), options=named,
    )  # fmt: skip


async def read(request: web.Request) -> Obj:
    """The body as an object: JSON, YAML or protobuf; raises 400 or 415."""
    data = await request.read()
    if request.content_type == protobuf.CONTENT_TYPE:
        return protobuf.decode_body(data, type_name)
    if request.content_type not in _BODIES:
        raise unsupported_media_type(request.content_type)
    return jsonio.decode_object(data, request.content_type)


def operations(data: bytes) -> Any:
    """The body of a JSON patch."""
    try:
        return jsonio.decode(data)
    except ValueError as error:
        raise bad_request(f"error decoding patch: {error}") from error


async def delete_options(request: web.Request) -> Obj:
    """DeleteOptions, from the body and from the query, which wins."""
    options = await read(request) if request.can_read_body else {}
    options = decode({**options, "kind": "DeleteOptions"}, builtin("meta.v1.DeleteOptions"), Unknown())
    query = request.query
    if query.get("gracePeriodSeconds"):
        options["gracePeriodSeconds"] = routes.number(query, "gracePeriodSeconds")
    if query.get("propagationPolicy"):
        options["propagationPolicy"] = query["propagationPolicy"]
    if (options.get("gracePeriodSeconds") or 0) < 0:
        raise bad_request("gracePeriodSeconds must be a non-negative integer")
    return options
