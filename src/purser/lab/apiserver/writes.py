"""Create, replace, patch and apply: from the bytes of a client to a record in the store."""

import random
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from . import admission, checks, definitions, managed, plugins, quotakeeping, strategies
from .cluster import ApiRequest, Cluster
from .decode import Unknown, strict_error
from .errors import (
    Cause,
    Obj,
    StatusError,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    modified,
    not_found,
    precondition_failed,
)
from .jsonio import deep_copy, now
from .patch import json_patch, merge_patch
from .resources import ServedResource, served, stored
from .store import StoredObject
from .strategic import strategic_patch

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_MAX_UPDATE_ATTEMPTS = 8
"""How often a write without a resourceVersion is retried after a concurrent write."""

_MUST_NAME_VERSION = (
    "leases.coordination.k8s.io",
    "poddisruptionbudgets.policy",
    "endpointslices.discovery.k8s.io",
    "devicetaintrules.resource.k8s.io",
)
CREATE_ON_UPDATE = ("leases.coordination.k8s.io", "events", "endpoints", "limitranges")
"""Kinds that a PUT creates when they are absent."""

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = ("application/apply-patch+yaml", "application/apply-patch+json")

Mutate = Callable[[Obj], Obj]


def decode_incoming(call: ApiRequest, body: Obj) -> Obj:
    """A body as its type reads it: kind checked, unknown fields dropped and reported as the client asked."""
    _check_kind(call.resource, body)
    obj, unknown = strategies.normalise(call.resource, body)
    if unknown and call.strict == "Strict":
        raise strict_error(Unknown([message.split('"')[1] for message in unknown]))
    if unknown and call.strict == "Warn":
        call.warnings += unknown
    obj.setdefault("metadata", {})
    return stored(call.resource, obj)


def _check_kind(resource: ServedResource, body: Obj) -> None:
    version, kind = body.setdefault("apiVersion", resource.api_version), body.setdefault("kind", resource.kind)
    if version != resource.api_version:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({resource.api_version})"
        )
    if kind != resource.kind:
        raise bad_request(f'{kind} in version "{version}" cannot be handled as a {resource.kind}')
    if body.get("metadata", 0) is None:
        del body["metadata"]
    if not isinstance(body.get("metadata", {}), dict):
        raise bad_request(f"{kind}: metadata must be an object")


async def create(cluster: Cluster, call: ApiRequest, body: Obj) -> Obj:
    """POST: the created object; raises 409 when the name is taken."""
    obj = decode_incoming(call, body)
    _place(cluster, call, obj["metadata"])
    _reset_for_create(obj["metadata"])
    return await _insert(cluster, call, obj)


async def _insert(cluster: Cluster, call: ApiRequest, obj: Obj) -> Obj:
    """Admission, preparation, checks and the write. An apply brings its managed fields along."""
    resource = call.resource
    obj = await admission.mutate(cluster, call, "CREATE", _complete_object(cluster, resource, obj), None)
    # Once more, as a webhook may have brought containers: the real server asks its own plugins again, too.
    plugins.complete_resources(cluster, resource, obj)
    _complete_metadata(call, resource, obj["metadata"])
    strategies.prepare_create(resource, obj)
    plugins.allocate(cluster, resource, obj)
    if not obj["metadata"].get("managedFields"):
        managed.update(
            None, obj, managed.FieldManager(call.manager, "Update", resource.api_version), resource.schema, now()
        )
    _check(resource, obj, checks.check_create(resource, obj))
    plugins.check_resources(cluster, resource, obj)
    await admission.validate(cluster, call, "CREATE", obj, None)
    _require_namespace(cluster, call)
    quotakeeping.admit(cluster, resource, obj)
    key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
    collection = cluster.collection(resource)
    if collection.get(key):
        raise already_exists(resource.group, resource.plural, key[1])
    if resource.storage == definitions.STORAGE:
        definitions.establish(obj)
    if not call.dry_run:
        collection.put(obj)
        quotakeeping.settle(cluster, resource, obj)
    return served(resource, obj)


def _complete_object(cluster: Cluster, resource: ServedResource, obj: Obj) -> Obj:
    strategies.fill_defaults(resource, obj)
    plugins.admit(cluster, resource, obj)
    return obj


def _place(cluster: Cluster, call: ApiRequest, metadata: Obj) -> None:
    if call.resource.namespaced:
        if metadata.setdefault("namespace", call.namespace) != call.namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    else:
        metadata.pop("namespace", None)
    if call.name and metadata.setdefault("name", call.name) != call.name:
        raise bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({call.name})"
        )
    _require_namespace(cluster, call)


def _require_namespace(cluster: Cluster, call: ApiRequest) -> None:
    if not call.resource.namespaced:
        return
    namespace = cluster.object("namespaces", "", call.namespace)
    if namespace is None:
        raise not_found("", "namespaces", call.namespace)
    if namespace["metadata"].get("deletionTimestamp"):
        why = f"unable to create new content in namespace {call.namespace} because it is being terminated"
        raise forbidden(call.resource.group, call.resource.plural, call.name, why)


def _reset_for_create(metadata: Obj) -> None:
    if metadata.get("resourceVersion"):
        raise bad_request("resourceVersion should not be set on objects to be created")
    for name in (
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "selfLink",
    ):
        metadata.pop(name, None)


def _complete_metadata(call: ApiRequest, resource: ServedResource, metadata: Obj) -> None:
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = metadata["generateName"] + "".join(random.choices(_SUFFIX, k=5))
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = now()
    if strategies.has_generation(resource):
        metadata["generation"] = 1


def _check(resource: ServedResource, obj: Obj, causes: list[Cause]) -> None:
    if causes:
        raise invalid(resource.group, resource.kind, obj["metadata"].get("name", ""), causes)


async def replace(cluster: Cluster, call: ApiRequest, body: Obj) -> tuple[int, Obj]:
    """PUT: HTTP status and object; raises 409 when the version sent is not the current one."""
    obj = decode_incoming(call, body)
    _name_matches(call, obj["metadata"])
    if cluster.collection(call.resource).get(call.key) is None and call.resource.storage in CREATE_ON_UPDATE:
        _reset_for_create(obj["metadata"])
        return 201, await create(cluster, call, served(call.resource, obj))
    _require_version(call, obj)
    return 200, await update(cluster, call, lambda live: deep_copy(obj))


def _name_matches(call: ApiRequest, metadata: Obj) -> None:
    if metadata.setdefault("name", call.name) != call.name:
        raise bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({call.name})"
        )
    if metadata.setdefault("namespace", call.namespace) != call.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def _require_version(call: ApiRequest, obj: Obj) -> None:
    unconditional = not call.resource.custom and call.resource.storage not in _MUST_NAME_VERSION
    if not unconditional and not obj["metadata"].get("resourceVersion"):
        why = "Invalid value: 0: must be specified for an update"
        cause = Cause("FieldValueInvalid", "metadata.resourceVersion", why)
        raise invalid(call.resource.group, call.resource.kind, call.name, [cause])


async def patch(cluster: Cluster, call: ApiRequest, content_type: str, patch_body: Any) -> tuple[int, Obj]:
    """PATCH in any of the four types: HTTP status and object."""
    if content_type in APPLY:
        return await _apply(cluster, call, patch_body)
    return 200, await update(cluster, call, _build_mutate(call, content_type, patch_body))


def _build_mutate(call: ApiRequest, content_type: str, patch_body: Any) -> Mutate:
    resource = call.resource
    if content_type == STRATEGIC and resource.custom:
        message = "the body of the request was in an unknown format - accepted media types include: "
        raise StatusError(415, "UnsupportedMediaType", message + ", ".join((JSON, MERGE, *APPLY[:1])))
    if content_type != JSON and not isinstance(patch_body, dict):
        raise bad_request("the patch must be a JSON object")

    def patched(live: Obj) -> Obj:
        current = served(resource, live)
        if content_type == JSON:
            result = json_patch(current, patch_body)
        elif content_type == STRATEGIC:
            result = strategic_patch(current, patch_body, resource.schema)
        else:
            result = merge_patch(current, patch_body)
        if not isinstance(result, dict):
            raise bad_request("the result of the patch must be an object")
        return decode_incoming(call, result)

    return patched


async def _apply(cluster: Cluster, call: ApiRequest, body: Obj) -> tuple[int, Obj]:
    resource = call.resource
    config = decode_incoming(call, body)
    if config["metadata"].get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    _name_matches(call, config["metadata"])
    if not call.namespace:
        config["metadata"].pop("namespace", None)
    manager = managed.FieldManager(call.manager, "Apply", resource.api_version, call.subresource)
    config = strategies.applicable_fields(resource, config, call.subresource)

    def applied(live: Obj | None) -> Obj:
        return managed.apply(live, config, manager, resource.schema, force=call.force, time=now())

    if cluster.collection(resource).get(call.key) is None and not call.subresource:
        if config["metadata"].get("uid") or config["metadata"].get("resourceVersion"):
            why = "uid or resourceVersion mismatch: the object does not exist"
            raise conflict(resource.group, resource.plural, call.name, why)
        _require_namespace(cluster, call)
        return 201, await _insert(cluster, call, applied(None))
    return 200, await update(cluster, call, applied, applies=True)


async def update(cluster: Cluster, call: ApiRequest, mutate: Mutate, *, applies: bool = False) -> Obj:
    """Read, change, admit, check, write; starts over when another write came between, unless a version was named."""
    collection = cluster.collection(call.resource)
    for _ in range(_MAX_UPDATE_ATTEMPTS):
        record = collection.get(call.key)
        if record is None:
            raise not_found(call.resource.group, call.resource.plural, call.name)
        live = record.object()
        new = mutate(live)
        _check_preconditions(call, new["metadata"], live["metadata"])
        new = await _prepare_update(cluster, call, new, live, applies=applies)
        if collection.get(call.key) is record:
            if not call.subresource:
                quotakeeping.admit(cluster, call.resource, new, live)
            return served(call.resource, _commit(cluster, call, new, live, record))
    raise modified(call.resource.group, call.resource.plural, call.name)


def _check_preconditions(call: ApiRequest, new: Mapping[str, Any], live: Mapping[str, Any]) -> None:
    resource = call.resource
    if new.get("uid") and new["uid"] != live["uid"]:
        raise precondition_failed(resource.group, resource.plural, call.name, new["uid"], live["uid"])
    if new.get("resourceVersion") and new["resourceVersion"] != live["resourceVersion"]:
        raise modified(resource.group, resource.plural, call.name)


async def _prepare_update(cluster: Cluster, call: ApiRequest, new: Obj, live: Obj, *, applies: bool) -> Obj:
    resource = call.resource
    _keep_system_fields(new, live)
    strategies.fill_defaults(resource, new)
    strategies.prepare_update(resource, new, live, call.subresource)
    new = await admission.mutate(cluster, call, "UPDATE", new, live)
    if not applies:
        manager = managed.FieldManager(call.manager, "Update", resource.api_version, call.subresource)
        managed.update(live, new, manager, resource.schema, now())
    if resource.storage == "pods" and not call.subresource:
        plugins.mirror_service_account(new)
    if strategies.has_generation(resource) and strategies.spec_changed(resource, new, live):
        new["metadata"]["generation"] = live["metadata"].get("generation", 0) + 1
    _check(resource, new, checks.check_update(resource, new, live, call.subresource) or checks.check(resource, new))
    await admission.validate(cluster, call, "UPDATE", new, live)
    return new


_SYSTEM_FIELDS = ("uid", "name", "namespace", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
                  "generation", "resourceVersion", "selfLink", "generateName")  # fmt: skip


def _keep_system_fields(new: Obj, live: Obj) -> None:
    metadata = new["metadata"]
    if metadata.get("name", live["metadata"]["name"]) != live["metadata"]["name"]:
        raise bad_request("the name of the object does not match the name on the URL")
    for name in _SYSTEM_FIELDS:
        if name in live["metadata"]:
            metadata[name] = live["metadata"][name]
        else:
            metadata.pop(name, None)
    new.setdefault("apiVersion", live["apiVersion"])
    new.setdefault("kind", live["kind"])


def _commit(cluster: Cluster, call: ApiRequest, new: Obj, live: Obj, record: StoredObject) -> Obj:
    if call.dry_run or _is_unchanged(new, live):
        return new
    collection = cluster.collection(call.resource)
    if is_finished(new):
        collection.remove(new)
    else:
        collection.put(new)
        quotakeeping.settle(cluster, call.resource, new, live)
    return new


def is_finished(obj: Obj) -> bool:
    """A deleted object that nothing holds any more: no finalizer, no grace left to a kubelet."""
    metadata = obj["metadata"]
    held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    if obj["kind"] == "Namespace":
        held = held or obj.get("spec", {}).get("finalizers")
    return bool(metadata.get("deletionTimestamp")) and not held


def _is_unchanged(new: Obj, live: Obj) -> bool:
    """A write that changes nothing is not written, so that it makes no event."""
    return _content(new) == _content(live)


def _content(obj: Obj) -> Obj:
    metadata = obj["metadata"]
    managers = [{k: v for k, v in entry.items() if k != "time"} for entry in metadata.get("managedFields") or ()]
    return {**obj, "metadata": {**metadata, "managedFields": managers}}
