"""Deleting: preconditions, grace, finalizers, propagation, whole collections."""

from typing import Any

from . import admission, pods, strategies
from .cluster import ApiRequest, Cluster
from .errors import Obj, StatusError, bad_request, conflict, forbidden, not_found
from .jsonio import later
from .resources import served
from .store import Selection, StoredObject
from .writes import is_finished

_UNDELETABLE_NAMESPACES = ("default", "kube-system", "kube-public")
ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
_KINDS_RETURNING_OBJECT = ("pods", "persistentvolumeclaims", "namespaces", "services", "serviceaccounts")
"""Kinds whose deletion is answered with the object even when it is gone at once."""


async def delete(cluster: Cluster, call: ApiRequest, options: Obj) -> Obj:
    """DELETE of one object: its last state, or a Status of success where nothing is left of it."""
    call.options = {key: value for key, value in options.items() if key not in ("kind", "apiVersion")}
    record = _existing(cluster, call)
    if call.resource.storage == "namespaces" and call.name in _UNDELETABLE_NAMESPACES:
        raise forbidden("", "namespaces", call.name, "this namespace may not be deleted")
    _check_preconditions(call, record, options.get("preconditions") or {})
    before = served(call.resource, record.object())
    await admission.mutate(cluster, call, "DELETE", before, before)
    await admission.validate(cluster, call, "DELETE", None, before)
    record = _existing(cluster, call)
    _check_preconditions(call, record, options.get("preconditions") or {})
    return _carry_out(cluster, call, record, options)


def _existing(cluster: Cluster, call: ApiRequest) -> StoredObject:
    record = cluster.collection(call.resource).get(call.key)
    if record is None:
        raise not_found(call.resource.group, call.resource.plural, call.name)
    return record


def _check_preconditions(call: ApiRequest, record: StoredObject, wanted: Obj) -> None:
    actual = {"uid": record.uid, "resourceVersion": str(record.revision)}
    words = {"uid": ("UID", "deleted and then recreated"), "resourceVersion": ("ResourceVersion", "modified")}
    for name, (word, guess) in words.items():
        if wanted.get(name) and wanted[name] != actual[name]:
            why = (
                f"the {word} in the precondition ({wanted[name]}) does not match the {word} in record "
                f"({actual[name]}). The object might have been {guess}"
            )
            raise conflict(call.resource.group, call.resource.kind, call.name, why)


def _carry_out(cluster: Cluster, call: ApiRequest, record: StoredObject, options: Obj) -> Obj:
    collection = cluster.collection(call.resource)
    obj = record.object()
    changed = _mark_deleted(call, obj, options)
    gone = is_finished(obj)
    if gone and call.resource.storage != "pods" and not record.object()["metadata"].get("deletionTimestamp"):
        obj = record.object()  # gone at once: the last state never was "being deleted"
    if not call.dry_run and gone:
        collection.remove(obj)
    elif not call.dry_run and changed:
        collection.put(obj)
    return _answer(call, obj, gone=gone)


def _mark_deleted(call: ApiRequest, obj: Obj, options: Obj) -> bool:
    """Write the deletion into the object; False where it was already said."""
    metadata = obj["metadata"]
    before = _deletion_state(metadata)
    _set_finalizers(metadata, options)
    grace = options.get("gracePeriodSeconds")
    seconds = pods.grace_seconds(obj, grace) if call.resource.storage == "pods" else 0
    running = metadata.get("deletionGracePeriodSeconds")
    if not metadata.get("deletionTimestamp"):
        if strategies.has_generation(call.resource):
            metadata["generation"] = metadata.get("generation", 0) + 1
        metadata["deletionTimestamp"] = later(seconds)
        metadata["deletionGracePeriodSeconds"] = seconds
    elif running is not None and seconds < running and grace is not None:
        metadata["deletionTimestamp"] = later(seconds)
        metadata["deletionGracePeriodSeconds"] = seconds
    if call.resource.storage == "namespaces":
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        metadata.pop("deletionGracePeriodSeconds", None)
    return _deletion_state(metadata) != before


def _deletion_state(metadata: Obj) -> tuple[Any, ...]:
    return (
        metadata.get("deletionTimestamp"),
        metadata.get("deletionGracePeriodSeconds"),
        list(metadata.get("finalizers") or ()),
    )


def _set_finalizers(metadata: Obj, options: Obj) -> None:
    policy = options.get("propagationPolicy")
    if policy not in (None, "Orphan", "Background", "Foreground"):
        raise bad_request(f'DeleteOptions.propagationPolicy: Unsupported value: "{policy}"')
    if policy is None and options.get("orphanDependents"):
        policy = "Orphan"
    wanted = {"Orphan": ORPHAN, "Foreground": FOREGROUND}.get(policy or "")
    finalizers = metadata.get("finalizers") or []
    if policy is not None:
        finalizers = [each for each in finalizers if each not in (ORPHAN, FOREGROUND)]
    if wanted:
        finalizers = [*finalizers, wanted]
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)


def _answer(call: ApiRequest, obj: Obj, *, gone: bool) -> Obj:
    if not gone or call.resource.storage in _KINDS_RETURNING_OBJECT:
        return served(call.resource, obj)
    details = {
        "name": call.name,
        "group": call.resource.group,
        "kind": call.resource.plural,
        "uid": obj["metadata"]["uid"],
    }
    details = {key: value for key, value in details.items() if value}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


async def delete_collection(
    cluster: Cluster, call: ApiRequest, selection: Selection, options: Obj
) -> list[StoredObject]:
    """DELETE of a list: every selected object, each as a deletion of its own; returns what was selected."""
    records = cluster.collection(call.resource).records(selection)
    for record in records:
        one = ApiRequest(
            call.resource, record.key[0], record.key[1], user=call.user, dry_run=call.dry_run, manager=call.manager
        )
        try:
            await delete(cluster, one, options)
        except StatusError as error:
            if error.reason != "NotFound":
                raise
    return records
