"""OpenAPI documents, as much as kubectl asks for: field types per group, and that writes take `fieldValidation`.

kubectl 1.32 looks into /openapi/v3 whether the server validates fields itself; then it sends no schema check of its
own. The v2 document exists only in the form of an empty protobuf message: kubectl falls back on its built-in types.
"""

import hashlib
from typing import Any

from . import discovery, jsonio
from .errors import Obj, no_such_path
from .resources import Registry, ServedResource
from .schema import builtin_definitions

ACCEPT_V2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""What clients ask for is no legal media type (the @); what the real server answers with is."""
_QUERY = ("dryRun", "fieldManager", "fieldValidation")


def v2_protobuf() -> bytes:
    """`swagger: "2.0"`, `info`, and empty `paths` and `definitions`, in protobuf's wire format."""
    info = _field(1, b"Kubernetes") + _field(2, discovery.VERSION["gitVersion"].encode())
    return _field(1, b"2.0") + _field(2, info) + _field(8, b"") + _field(9, b"")


def _field(number: int, payload: bytes) -> bytes:
    return bytes([number << 3 | 2, len(payload)]) + payload


def v2() -> Obj:
    """The same for clients that want JSON."""
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": discovery.VERSION["gitVersion"]},
        "paths": {},
        "definitions": {},
    }


def v3_index(registry: Registry) -> Obj:
    """GET /openapi/v3: where each group version's document is; the hash changes with its content."""
    paths: Obj = {}
    for group, versions in registry.versions().items():
        for version in versions:
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            digest = hashlib.sha256(jsonio.encode(v3(registry, path))).hexdigest()[:32].upper()
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return {"paths": paths}


def v3(registry: Registry, path: str) -> Obj:
    """The document of `api/v1` or `apis/<group>/<version>`; raises 404."""
    parts = path.strip("/").split("/")
    group, version = ("", parts[1]) if parts[0] == "api" and len(parts) == 2 else ("", "")
    if parts[0] == "apis" and len(parts) == 3:
        group, version = parts[1], parts[2]
    resources = registry.in_version(group, version)
    if not resources:
        raise no_such_path()
    schemas: Obj = {}
    for resource in resources:
        schemas |= _schemas(resource)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": discovery.VERSION["gitVersion"]},
        "paths": {url: item for resource in resources for url, item in _paths(resource).items()},
        "components": {"schemas": schemas},
    }


def _type_name(resource: ServedResource) -> str:
    if resource.custom:
        return ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])
    group = resource.group.split(".")[0] or "core"
    return f"{group}.{resource.version}.{resource.kind}"


def _schemas(resource: ServedResource) -> Obj:
    name = _type_name(resource)
    kinds = [{"group": resource.group, "version": resource.version, "kind": resource.kind}]
    if resource.custom:
        return {name: {**resource.definition, "x-kubernetes-group-version-kind": kinds}}
    found: Obj = {}
    names = {"rbac": "rbac"}.get(name.split(".")[0], name.split(".")[0])
    _collect(f"{names}.{resource.version}.{resource.kind}", found)
    if f"{names}.{resource.version}.{resource.kind}" in found:
        found[name] = {**found[name], "x-kubernetes-group-version-kind": kinds}
    return found


def _collect(name: str, found: Obj) -> None:
    definitions = builtin_definitions()
    if name in found or name not in definitions:
        return
    found[name] = definitions[name]
    for ref in _references(definitions[name]):
        _collect(ref.rsplit("/", 1)[-1], found)


def _references(schema: Any) -> set[str]:
    if isinstance(schema, dict):
        own = {schema["$ref"]} if isinstance(schema.get("$ref"), str) else set()
        return own.union(*(_references(value) for value in schema.values()))
    return set()


def _paths(resource: ServedResource) -> Obj:
    base = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    collection = f"{base}{scope}/{resource.plural}"
    paths = {collection: {"post": _operation(resource, "post")}}
    if "patch" in resource.verbs:
        paths[collection + "/{name}"] = {verb: _operation(resource, verb) for verb in ("get", "put", "patch")}
    return paths


def _operation(resource: ServedResource, verb: str) -> Obj:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    query = [{"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}} for name in _QUERY]
    answer = {"schema": {"$ref": f"#/components/schemas/{_type_name(resource)}"}}
    return {
        "x-kubernetes-action": verb,
        "x-kubernetes-group-version-kind": kind,
        "parameters": query,
        "responses": {"200": {"description": "OK", "content": {"application/json": answer}}},
    }
