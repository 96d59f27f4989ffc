"""What one request works on: the caller, the parsed call, and the state of the cluster."""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field

import aiohttp

from . import fields
from .errors import Obj, no_such_path
from .resources import Registry, ServedResource
from .store import Collection, ObjectStore

API_AUDIENCE = "https://kubernetes.default.svc.cluster.local"
"""For whom tokens are that name no audience: this server, by the name that kubeadm gives it."""


@dataclass(frozen=True, slots=True)
class User:
    """Who a bearer token belongs to."""

    name: str
    groups: tuple[str, ...] = ("system:authenticated",)
    uid: str = ""
    has_rights: bool = True
    """Whether it may do everything, or nothing at all."""
    audiences: tuple[str, ...] = (API_AUDIENCE,)
    """For whom its token is: requests with one for others alone are nobody's here."""

    def to_json(self) -> Obj:
        """`userInfo` of an admission or token review."""
        info: Obj = {"username": self.name, "groups": list(self.groups)}
        return {**info, "uid": self.uid} if self.uid else info


ADMIN = User("kubernetes-admin", ("system:masters", "system:authenticated"))
SYSTEM = User("system:apiserver", ("system:masters", "system:authenticated"))


@dataclass(slots=True)
class ApiRequest:
    """One API request after its path and query have been read."""

    resource: ServedResource
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    user: User = SYSTEM
    dry_run: bool = False
    manager: str = "unknown"
    strict: str = "Warn"
    """fieldValidation: Ignore, Warn or Strict."""
    force: bool = False
    options: Obj = field(default_factory=dict)
    """Create-, Patch- or DeleteOptions as the webhook sees them."""
    warnings: list[str] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str]:
        """The object's key in its collection."""
        return (self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Query of `GET pods/<name>/log`."""

    container: str = ""
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    since_seconds: int | None = None
    limit_bytes: int | None = None


PodLogs = Callable[[Obj, LogOptions], AsyncIterator[bytes]]
"""Serves a pod's log; the emulated kubelets give one to the server. May raise `ApiError`."""


@dataclass(slots=True)
class Webhooks:
    """Where admission webhooks are called from: the HTTP session and the addresses of Services in this lab."""

    session: aiohttp.ClientSession
    service_urls: Mapping[tuple[str, str], str]
    """Base URL of a Service by (namespace, name): there is no service network."""


class Cluster:
    """The state behind the server: what is served and what is stored. One per server, handed to every handler."""

    def __init__(self, history: int) -> None:
        self.store = ObjectStore(history)
        self.registry = Registry()
        self.webhooks: Webhooks | None = None
        for resource in self.registry:
            if resource.storage:
                self.collection(resource)

    def collection(self, resource: ServedResource) -> Collection:
        """Where a resource's objects live."""
        if not resource.storage:
            raise no_such_path()
        storage = resource.storage
        return self.store.collection(storage, fields.extractor(storage), fields.INDEXED_FIELDS.get(storage, ""))

    def resource(self, storage: str) -> ServedResource:
        """The resource in whose version a collection is stored."""
        found = self.registry.stored_as(storage)
        if found is None:
            raise no_such_path()
        return found

    def object(self, storage: str, namespace: str, name: str) -> Obj | None:
        """A copy of one stored object, if it exists."""
        collection = self.store.collections.get(storage)
        record = collection.get((namespace, name)) if collection else None
        return record.object() if record else None
