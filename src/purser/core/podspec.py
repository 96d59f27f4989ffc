"""The part of a Kubernetes pod that dialects read, free of any client library."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec


class ContainerKind(StrEnum):
    """When a container runs relative to the others of its pod."""

    INIT = "init"
    SIDECAR = "sidecar"
    """An init container with restartPolicy Always: it stays beside everything that starts after it."""
    APP = "app"


class ContainerSpec(msgspec.Struct, frozen=True):
    """One container as its author (or an earlier webhook) wrote it; quantities are the API's strings."""

    name: str
    kind: ContainerKind
    limits: Mapping[str, str] = {}
    requests: Mapping[str, str] = {}
    privileged: bool = False

    def quantity(self, resource: str) -> str | None:
        """The container's limit for a resource, else its request, else None."""
        return self.limits.get(resource, self.requests.get(resource))


class PodSpec(msgspec.Struct, frozen=True):
    """A pod: identity, annotations, and its containers in kubelet's order (init and sidecars first)."""

    uid: str
    namespace: str
    name: str
    annotations: Mapping[str, str]
    containers: tuple[ContainerSpec, ...]
    labels: Mapping[str, str] = {}
    priority: int = 0
    node_name: str = ""
    scheduler_name: str = ""
    overhead: Mapping[str, str] = {}
    """What its RuntimeClass adds to what its containers ask for."""
