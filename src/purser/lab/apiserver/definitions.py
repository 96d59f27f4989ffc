"""CustomResourceDefinitions at work: an accepted definition becomes a served resource and says so in conditions."""

from .cluster import Cluster
from .conversions import renamed
from .errors import Obj
from .jsonio import now
from .resources import ServedResource, get_path
from .schema import custom
from .store import DELETED, StoreEvent

STORAGE = "customresourcedefinitions.apiextensions.k8s.io"
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
"""Finalizer of definitions: their objects are deleted first."""


def watch_definitions(cluster: Cluster) -> None:
    """Serve whatever is defined, from now on, at once with the write that defines it."""
    cluster.store.collections[STORAGE].subscribe(lambda event: _follow(cluster, event))


def _follow(cluster: Cluster, event: StoreEvent) -> None:
    definition = event.after.object()
    spec = definition["spec"]
    cluster.registry.remove(spec["group"], spec["names"]["plural"])
    if event.type != DELETED:
        for resource in resources_of(definition):
            cluster.registry.add(resource)
            cluster.collection(resource)


def resources_of(definition: Obj) -> list[ServedResource]:
    """One resource for each served version; they share one collection, converted by name only (strategy None)."""
    spec = definition["spec"]
    return [_resource(spec, version) for version in spec["versions"] if version.get("served")]


def _resource(spec: Obj, version: Obj) -> ServedResource:
    names, raw = spec["names"], get_path(version, "schema.openAPIV3Schema") or {}
    subresources = tuple(name for name in ("status",) if name in (version.get("subresources") or {}))
    stored = next(each["name"] for each in spec["versions"] if each.get("storage"))
    api_version, stored_version = (f"{spec['group']}/{each}" for each in (version["name"], stored))
    return ServedResource(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        kind=names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        schema=custom(raw),
        singular=names.get("singular") or names["kind"].lower(),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=subresources,
        storage=f"{names['plural']}.{spec['group']}",
        conversion=renamed(api_version, stored_version) if api_version != stored_version else None,
        custom=True,
        columns=tuple(version.get("additionalPrinterColumns") or ()),
        definition=raw,
    )


def establish(definition: Obj) -> None:
    """Accept a new definition: its status, and the finalizer that holds it until its objects are gone. In place."""
    definition["metadata"].setdefault("finalizers", []).append(CLEANUP)
    definition["status"] = _status(definition)


def _status(definition: Obj) -> Obj:
    spec, time = definition["spec"], now()
    conditions = [
        _true_condition("NamesAccepted", time, "NoConflicts", "no conflicts found"),
        _true_condition("Established", time, "InitialNamesAccepted", "the initial names have been accepted"),
    ]
    stored = [version["name"] for version in spec["versions"] if version.get("storage")]
    return {"conditions": conditions, "acceptedNames": spec["names"], "storedVersions": stored}


def _true_condition(kind: str, time: str, reason: str, message: str) -> Obj:
    return {"type": kind, "status": "True", "lastTransitionTime": time, "reason": reason, "message": message}
