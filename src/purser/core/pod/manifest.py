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


class _Part(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A part of a pod that is read as the API has it: informers hold it for every pod, so nothing is copied."""


class ValueSource(_Part, frozen=True, gc=False):
    """Where a variable's value comes from: only that it comes from elsewhere is of interest."""


class ContainerEnvVar(_Part, frozen=True, gc=False):
    """An environment variable; the value is empty where it comes from elsewhere."""

    name: str = ""
    value: str = ""
    value_from: ValueSource | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the value is what stands there: neither from elsewhere nor made of other variables."""
        return self.value_from is None and "$(" not in self.value


class EnvFrom(_Part, frozen=True, gc=False):
    """A ConfigMap or Secret whose keys become variables, each behind the prefix."""

    prefix: str = ""


class VolumeMount(_Part, frozen=True, gc=False):
    """Where a container sees a volume."""

    name: str = ""
    mount_path: str = ""
    sub_path: str = ""
    sub_path_expr: str = ""


class VolumeDevice(_Part, frozen=True, gc=False):
    """Where a container sees a volume that is a block device."""

    device_path: str = ""


class HostPath(_Part, frozen=True, gc=False):
    """A path of the node."""

    path: str = ""


class PodVolume(_Part, frozen=True, gc=False):
    """A volume of a pod."""

    name: str = ""
    host_path: HostPath | None = None


class ContainerSpec(msgspec.Struct, frozen=True):
    """One container as its author (or an earlier webhook) wrote it; quantities are the API's strings."""

    name: str
    kind: ContainerKind
    limits: Mapping[str, str] = {}
    requests: Mapping[str, str] = {}
    privileged: bool = False
    capabilities: tuple[str, ...] = ()
    """Those that are added to the runtime's own."""
    env: tuple[ContainerEnvVar, ...] = ()
    env_from: tuple[EnvFrom, ...] = ()
    mounts: tuple[VolumeMount, ...] = ()
    block_devices: tuple[VolumeDevice, ...] = ()

    def quantity(self, resource: str) -> str | None:
        """The container's limit for a resource, else its request, else None."""
        return self.limits.get(resource, self.requests.get(resource))


class PodManifest(msgspec.Struct, frozen=True):
    """A pod: identity, annotations, and its containers in kubelet's order (init and sidecars first)."""

    uid: str
    namespace: str
    name: str
    annotations: Mapping[str, str]
    containers: tuple[ContainerSpec, ...]
    labels: Mapping[str, str] = {}
    priority: int = 0
    node_name: str = ""
    node_selector: Mapping[str, str] = {}
    scheduler_name: str = ""
    overhead: Mapping[str, str] = {}
    """What its RuntimeClass adds to what its containers ask for."""
    requests: Mapping[str, str] = {}
    """What it asks for as a whole: of each resource here, this counts instead of what its containers ask for."""
    ephemeral: tuple[ContainerSpec, ...] = ()
    """Debugging containers, which ask for nothing and come later."""
    volumes: tuple[PodVolume, ...] = ()
    host_pid: bool = False
    """Whether it sees the processes of its whole node."""
    families: frozenset[str] = frozenset()
    """Families of other vendors' devices that Purser serves, by name; the words of others are not looked at."""
    enforcement_of_namespace: str = ""
    """What its namespace's annotation `purser.core.names.ENFORCEMENT_ANNOTATION` says; empty: nothing."""
