"""Subresources with a meaning of their own: binding, eviction, scale, a namespace's finalize."""

from typing import Any

from . import admission, budgets, deletion, managed, pods, writes
from .cluster import ApiRequest, Cluster
from .decode import Unknown, decode
from .errors import Cause, Obj, bad_request, conflict, invalid, not_found, precondition_failed
from .jsonio import deep_copy, now
from .patch import json_patch, merge_patch
from .resources import ServedResource, get_path
from .schema import builtin

SUCCESS: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


async def bind(cluster: Cluster, call: ApiRequest, body: Obj) -> Obj:
    """POST pods/<name>/binding: node and annotations appear on the pod in one write; 409 where it is bound
    already."""
    binding = decode(body, builtin("core.v1.Binding"), Unknown())
    metadata = binding.setdefault("metadata", {})
    metadata.setdefault("name", call.name)
    metadata.setdefault("namespace", call.namespace)
    if metadata["name"] != call.name:
        raise bad_request(f"name in URL does not match name in Binding object: {call.name} {metadata['name']}")
    if not get_path(binding, "target.name"):
        raise invalid("", "Binding", call.name, [Cause("FieldValueRequired", "target.name", "Required value")])
    binding = await admission.mutate(cluster, call, "CREATE", binding, None)
    await admission.validate(cluster, call, "CREATE", binding, None)
    collection = cluster.collection(call.resource)
    record = collection.get(call.key)
    if record is None:
        raise not_found("", "pods", call.name)
    pod = record.object()
    if metadata.get("uid", record.uid) != record.uid:
        raise precondition_failed("", "pods", call.name, metadata["uid"], record.uid)
    if why := pods.check_binding(pod, binding):
        raise conflict("", "pods/binding", call.name, why)
    bound = pods.bound(pod, binding, now())
    manager = managed.FieldManager(call.manager, "Update", "v1", "binding")
    managed.update(pod, bound, manager, call.resource.schema, now())
    if not call.dry_run:
        collection.put(bound)
    return SUCCESS


async def evict(cluster: Cluster, call: ApiRequest, body: Obj) -> Obj:
    """POST pods/<name>/eviction: a deletion that PodDisruptionBudgets may refuse with 429."""
    eviction = decode(body, builtin("policy.v1.Eviction"), Unknown())
    pod = cluster.object("pods", call.namespace, call.name)
    if pod is None:
        raise not_found("", "pods", call.name)
    uid = get_path(eviction, "deleteOptions.preconditions.uid")
    if uid and uid != pod["metadata"]["uid"]:
        raise precondition_failed("", "pods", call.name, uid, pod["metadata"]["uid"])
    budgets.charge_budget(cluster, call, pod)
    plain = ApiRequest(
        call.resource, call.namespace, call.name, user=call.user, dry_run=call.dry_run, manager=call.manager
    )
    await deletion.delete(cluster, plain, eviction.get("deleteOptions") or {})
    return SUCCESS


def scale_of(resource: ServedResource, obj: Obj) -> Obj:
    """GET .../scale."""
    metadata = {
        key: obj["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    }
    selector = get_path(obj, "spec.selector.matchLabels") or {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": replicas} if (replicas := get_path(obj, "spec.replicas")) else {},
        "status": {
            "replicas": get_path(obj, "status.replicas") or 0,
            "selector": ",".join(f"{key}={value}" for key, value in sorted(selector.items())),
        },
    }


async def set_scale(cluster: Cluster, call: ApiRequest, content_type: str, body: Any) -> Obj:
    """PUT or PATCH .../scale: changes `spec.replicas` of the object."""
    plain = ApiRequest(
        call.resource, call.namespace, call.name, user=call.user, dry_run=call.dry_run, manager=call.manager
    )

    def scaled(live: Obj) -> Obj:
        scale = _new_scale(scale_of(call.resource, live), content_type, body)
        new = deep_copy(live)
        new["spec"]["replicas"] = scale["spec"].get("replicas", 0)
        new["metadata"]["resourceVersion"] = scale["metadata"].get(
            "resourceVersion", live["metadata"]["resourceVersion"]
        )
        return new

    return scale_of(call.resource, await writes.update(cluster, plain, scaled))


def _new_scale(current: Obj, content_type: str, body: Any) -> Obj:
    if content_type == writes.JSON:
        current = json_patch(current, body)
    elif content_type in (writes.MERGE, writes.STRATEGIC):
        current = merge_patch(current, body)
    else:
        current = body
    return decode(current, builtin("autoscaling.v1.Scale"), Unknown())


async def finalize_namespace(cluster: Cluster, call: ApiRequest, body: Obj) -> Obj:
    """PUT namespaces/<name>/finalize: the one way to change a namespace's own finalizers."""
    namespace = writes.decode_incoming(call, body)
    return await writes.update(cluster, call, lambda live: {**live, "spec": namespace.get("spec") or {}})
