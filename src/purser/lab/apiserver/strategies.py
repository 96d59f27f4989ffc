"""How each kind of object is read and prepared before it is stored: what the registry strategies do. Pure.

The checks are in checks.py, the always-on admission plugins in plugins.py.
"""

from . import defaults, ephemeral, pods, structural
from .decode import Unknown, decode
from .errors import Obj
from .jsonio import deep_copy
from .resources import ServedResource

_KINDS_KEEPING_STATUS = ("nodes", "events")


def normalise(resource: ServedResource, obj: Obj) -> tuple[Obj, list[str]]:
    """The object as its type reads it, and a message for each field that the type does not know."""
    if resource.custom:
        return _normalise_custom(resource, obj)
    unknown = Unknown()
    return decode(obj, resource.schema, unknown), unknown.messages()


def _normalise_custom(resource: ServedResource, obj: Obj) -> tuple[Obj, list[str]]:
    obj = deep_copy(obj)
    dropped: list[str] = []
    structural.prune(obj, resource.schema, "", dropped)
    structural.fill_defaults(obj, resource.schema)
    structural.drop_nulls(obj, resource.schema)
    unknown = Unknown()
    obj["metadata"] = decode({"metadata": obj.get("metadata", {})}, resource.schema, unknown).get("metadata", {})
    return obj, [f'unknown field "{path}"' for path in dropped + unknown.paths]


def fill_defaults(resource: ServedResource, obj: Obj) -> None:
    """Defaults of built-in types, in place (custom ones are filled when they are read)."""
    if fill := defaults.BY_STORAGE.get(resource.storage):
        fill(obj)


def has_status(resource: ServedResource) -> bool:
    """Whether status is written through its own subresource only."""
    return "status" in resource.subresources


def prepare_create(resource: ServedResource, obj: Obj) -> None:
    """Drop what a creator may not set and start the status, in place."""
    if has_status(resource) and resource.storage not in _KINDS_KEEPING_STATUS:
        obj.pop("status", None)
    if resource.storage == "pods":
        pods.fill_requests_as_a_whole(obj["spec"])
        obj["status"] = pods.new_status(obj["spec"], obj["metadata"]["creationTimestamp"])
    elif resource.storage == "namespaces":
        obj["spec"] = {"finalizers": ["kubernetes"]}
        obj["status"] = {"phase": "Active"}
    elif resource.storage in ("persistentvolumes", "persistentvolumeclaims"):
        obj["status"] = {"phase": "Available" if resource.storage == "persistentvolumes" else "Pending"}
    elif has_status(resource) and resource.group in ("apps", "batch", "policy"):
        obj["status"] = _zero_status(resource)
    if resource.storage == "jobs.batch" and not obj["spec"].get("manualSelector"):
        _set_uid_selector(obj)
    elif resource.storage == "services":
        obj["status"] = {"loadBalancer": {}}


def _set_uid_selector(job: Obj) -> None:
    """A job's pods carry its uid as a label, by which it finds them."""
    own = {"batch.kubernetes.io/controller-uid": job["metadata"]["uid"]}
    job["spec"]["selector"] = {"matchLabels": own}
    metadata = job["spec"]["template"].setdefault("metadata", {})
    name = job["metadata"].get("name", "")
    metadata["labels"] = {**(metadata.get("labels") or {}), **own, "batch.kubernetes.io/job-name": name}


def _zero_status(resource: ServedResource) -> Obj:
    """Counters that the real types write even when they are zero."""
    if resource.plural == "daemonsets":
        counters = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
        return dict.fromkeys(counters, 0)
    if resource.plural == "replicasets":
        return {"replicas": 0}
    return {}


def prepare_update(resource: ServedResource, new: Obj, old: Obj, subresource: str) -> None:
    """Keep what this endpoint may not change, in place: status behind the main one, all else behind `status`."""
    if subresource == "status":
        for key in list(new):
            if key not in ("status", "metadata", "apiVersion", "kind"):
                del new[key]
        new.update({key: value for key, value in old.items() if key not in ("status", "metadata")})
        if resource.custom:
            _keep_metadata(new, old)
    elif subresource == ephemeral.SUBRESOURCE:
        ephemeral.keep_other_fields(new, old)
    elif has_status(resource):
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]
    if resource.storage == "namespaces" and subresource != "finalize":
        new["spec"] = old["spec"]


def applicable_fields(resource: ServedResource, config: Obj, subresource: str) -> Obj:
    """What an apply through this endpoint can set, and so own: not the status here, nothing but the status there."""
    if subresource == "status":
        identity = ("name", "namespace", "uid", "resourceVersion")
        metadata = {key: value for key, value in config["metadata"].items() if key in identity}
        kept: Obj = {key: config[key] for key in ("apiVersion", "kind", "status") if key in config}
        return {**kept, "metadata": metadata}
    if subresource == ephemeral.SUBRESOURCE:
        spec = {key: value for key, value in (config.get("spec") or {}).items() if key == "ephemeralContainers"}
        return {**{key: config[key] for key in ("apiVersion", "kind", "metadata") if key in config}, "spec": spec}
    if has_status(resource):
        return {key: value for key, value in config.items() if key != "status"}
    return config


def _keep_metadata(new: Obj, old: Obj) -> None:
    kept = deep_copy(old["metadata"])
    if "managedFields" in new["metadata"]:
        kept["managedFields"] = new["metadata"]["managedFields"]
    new["metadata"] = kept


def spec_changed(resource: ServedResource, new: Obj, old: Obj) -> bool:
    """Whether `metadata.generation` goes up: anything but metadata and status differs."""
    ignored = ("metadata", "apiVersion", "kind") + (("status",) if has_status(resource) else ())
    return {k: v for k, v in new.items() if k not in ignored} != {k: v for k, v in old.items() if k not in ignored}


_GENERATED_GROUPS = (
    "apps",
    "batch",
    "policy",
    "networking.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
)
_GENERATED_KINDS = tuple(f"{kind}.resource.k8s.io" for kind in ("deviceclasses", "devicetaintrules", "resourceslices"))


def has_generation(resource: ServedResource) -> bool:
    """Core objects of old kinds carry no generation; pods have one since 1.33 only."""
    return resource.custom or resource.group in _GENERATED_GROUPS or resource.storage in _GENERATED_KINDS
