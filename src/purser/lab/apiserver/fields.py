"""Which fields a resource can be selected by, as in the real server's conversion functions."""

from collections.abc import Callable

from .errors import Obj
from .resources import ServedResource, get_path

_COMMON_FIELDS = ("metadata.name", "metadata.namespace")
_BY_STORAGE = {
    "pods": ("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
             "status.phase", "status.podIP", "status.nominatedNodeName"),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
    "events": ("involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
               "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath",
               "reason", "reportingComponent", "source", "type"),
    "replicasets.apps": ("status.replicas",),
    "jobs.batch": ("status.successful",),
}  # fmt: skip
_PATHS = {"source": "source.component"}
_BOOLEANS = ("spec.unschedulable", "spec.hostNetwork")
INDEXED_FIELDS = {"pods": "spec.nodeName"}
"""The field by which a collection is usually watched."""


def supported(resource: ServedResource) -> tuple[str, ...]:
    """Names that a field selector may use; events.k8s.io uses its own words for some."""
    names = _COMMON_FIELDS + _BY_STORAGE.get(resource.storage, ())
    if resource.group == "events.k8s.io":
        return tuple(to_new_event(name) for name in names)
    return names


def to_new_event(name: str) -> str:
    """A core event's field as events.k8s.io calls it."""
    return name.replace("involvedObject.", "regarding.").replace("reportingComponent", "reportingController")


def extractor(storage: str) -> Callable[[Obj], dict[str, str]]:
    """Reads the selectable fields out of a stored object."""
    names = _COMMON_FIELDS + _BY_STORAGE.get(storage, ())

    def extract(obj: Obj) -> dict[str, str]:
        fields = {name: _text(get_path(obj, _PATHS.get(name, name)), name) for name in names}
        if storage == "events":
            fields |= {to_new_event(name): value for name, value in fields.items()}
        return fields

    return extract


def _text(value: object, name: str) -> str:
    if name in _BOOLEANS:
        return "true" if value else "false"
    return "" if value is None else str(value)
