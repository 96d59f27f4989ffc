"""Where objects live in the API, and what they are decoded into."""

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast
from urllib.parse import quote

from purser.core.decoding import UnreadableError, convert_value
from purser.kube.errors import DecodeError
from purser.kube.objects import (
    ConfigMap,
    Event,
    Lease,
    Namespace,
    Node,
    ObjectMeta,
    ObjectReference,
    Pod,
    Secret,
)

T = TypeVar("T")
S = TypeVar("S")

Raw = dict[str, Any]
"""A whole object, as its JSON."""


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """One kind of object: where it is served, and what it is decoded into."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    struct: type[T]
    """What an object is decoded into."""

    @property
    def api_version(self) -> str:
        """``v1`` or ``apps/v1``, as objects carry it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path of the collection (without a name), of one object, or of a subresource of it.

        Raises ValueError for a namespace on a cluster-scoped resource, and for an object of a namespaced one without.
        """
        if namespace and not self.namespaced:
            raise ValueError(f"{self.plural} are cluster-scoped, so namespace {namespace!r} does not apply")
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.kind} {name!r} needs a namespace")
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        parts += ["namespaces", namespace] if namespace else []
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/" + "/".join(quote(part, safe="") for part in parts)

    def as_type(self, other: type[S]) -> "Resource[S]":
        """The same resource decoded into another type, for a caller who needs other fields."""
        return Resource(self.group, self.version, self.plural, self.kind, self.namespaced, other)

    def raw(self) -> "Resource[Raw]":
        """The same resource with whole objects, for a caller who writes them back."""
        return self.as_type(Raw)


def untyped_resource(group: str, version: str, plural: str, kind: str, *, namespaced: bool = True) -> Resource[Raw]:
    """A resource that Purser has no Struct for."""
    return Resource(group, version, plural, kind, namespaced, Raw)


PODS = Resource("", "v1", "pods", "Pod", True, Pod)
NODES = Resource("", "v1", "nodes", "Node", False, Node)
EVENTS = Resource("", "v1", "events", "Event", True, Event)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", True, ConfigMap)
SECRETS = Resource("", "v1", "secrets", "Secret", True, Secret)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False, Namespace)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", True, Lease)
MUTATING_WEBHOOKS = untyped_resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
VALIDATING_WEBHOOKS = untyped_resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
DAEMON_SETS = untyped_resource("apps", "v1", "daemonsets", "DaemonSet")


class _HasMetadata(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


def meta_of(obj: object) -> ObjectMeta:
    """The identity of an object, be it a Struct or a whole object. Raises `DecodeError` for a dict without one."""
    if isinstance(obj, dict):
        return _raw_meta(obj)
    return cast(_HasMetadata, obj).metadata


def key_of(obj: object) -> str:
    """``namespace/name``, or ``name`` where there is no namespace."""
    metadata = meta_of(obj)
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def key_of_ref(about: ObjectReference) -> str:
    """The same key, of what a reference is about."""
    return f"{about.namespace}/{about.name}" if about.namespace else about.name


def ref_of(resource: Resource[T], obj: T) -> ObjectReference:
    """A reference to an object, as events carry it."""
    metadata = meta_of(obj)
    return ObjectReference(
        api_version=resource.api_version,
        kind=resource.kind,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
    )


def node_ref(name: str) -> ObjectReference:
    """A node, as events are about it: with its name as uid, which is where kubectl describe looks."""
    return ObjectReference(api_version=NODES.api_version, kind=NODES.kind, name=name, uid=name)


def pod_ref(namespace: str, name: str, uid: str) -> ObjectReference:
    """A pod, as events are about it."""
    return ObjectReference(api_version=PODS.api_version, kind=PODS.kind, namespace=namespace, name=name, uid=uid)


def _raw_meta(obj: Raw) -> ObjectMeta:
    metadata = obj.get("metadata") or {}
    try:
        return convert_value(
            {key: value for key, value in metadata.items() if value is not None}, ObjectMeta, "metadata"
        )
    except (AttributeError, UnreadableError) as error:
        raise DecodeError(f"an object without usable metadata: {error}") from error
