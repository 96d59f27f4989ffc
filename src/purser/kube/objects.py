"""What Purser reads of Kubernetes' objects: slim Structs.

They hold only fields that some part of Purser reads: decoding a list of pods into them costs a tenth of what dicts
cost, in time and memory, and the garbage collector need not look at them (``gc=False``: none holds a cycle). They are
frozen and shared by reference; their dicts must not be written to either. A field that is absent or null has its zero
value. Fields are named as in the API, in snake case.

They are for reading only: sending one back would drop every field that it does not know. What is written is a dict.
"""

import msgspec

from purser.core.quantities import QuantityLike


class _Slim(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    pass


class OwnerReference(_Slim, frozen=True, gc=False):
    """Whom an object belongs to."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(_Slim, frozen=True, gc=False):
    """An object's identity; timestamps are RFC 3339 text, as they came."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str = ""
    """Not empty once the object was asked to go."""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()


class ResourceRequirements(_Slim, frozen=True, gc=False):
    """What a container asks for and is limited to."""

    limits: dict[str, QuantityLike] = {}
    requests: dict[str, QuantityLike] = {}


class SecurityContext(_Slim, frozen=True, gc=False):
    """The one field that decides whether a container sees every device anyway."""

    privileged: bool = False


class EnvVar(_Slim, frozen=True, gc=False):
    """An environment variable; value is empty where it comes from elsewhere."""

    name: str = ""
    value: str = ""


class Container(_Slim, frozen=True, gc=False):
    """A container of a pod."""

    name: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    security_context: SecurityContext = SecurityContext()
    restart_policy: str = ""
    """``Always`` on an init container makes it a sidecar."""
    env: tuple[EnvVar, ...] = ()


class PodSpec(_Slim, frozen=True, gc=False):
    """What a pod asks for."""

    node_name: str = ""
    scheduler_name: str = ""
    priority: int = 0
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: dict[str, QuantityLike] = {}
    """What its RuntimeClass adds to what its containers ask for."""


class PodStatus(_Slim, frozen=True, gc=False):
    """How far a pod has come."""

    phase: str = ""
    reason: str = ""
    message: str = ""


class Pod(_Slim, frozen=True, gc=False):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class NodeSystemInfo(_Slim, frozen=True, gc=False):
    """What runs on a node."""

    kubelet_version: str = ""


class NodeStatus(_Slim, frozen=True, gc=False):
    """What kubelet said about its node."""

    capacity: dict[str, QuantityLike] = {}
    allocatable: dict[str, QuantityLike] = {}
    node_info: NodeSystemInfo = NodeSystemInfo()


class Node(_Slim, frozen=True, gc=False):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    status: NodeStatus = NodeStatus()


class ObjectReference(_Slim, frozen=True, gc=False):
    """What an event is about."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class Event(_Slim, frozen=True, gc=False):
    """A core/v1 Event."""

    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 0
    reporting_component: str = ""


class LeaseSpec(_Slim, frozen=True, gc=False):
    """Who holds a lease."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str = ""
    renew_time: str = ""
    lease_transitions: int = 0


class Lease(_Slim, frozen=True, gc=False):
    """A coordination.k8s.io/v1 Lease."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class ConfigMap(_Slim, frozen=True, gc=False):
    """Text under keys."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}


class Secret(_Slim, frozen=True, gc=False):
    """Bytes under keys, base64 already taken off."""

    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    data: dict[str, bytes] = {}

    def __repr__(self) -> str:
        """Without the values: Structs end up in logs."""
        return f"Secret({self.metadata.namespace}/{self.metadata.name}, keys={sorted(self.data)})"


class Namespace(_Slim, frozen=True, gc=False):
    """A namespace."""

    metadata: ObjectMeta = ObjectMeta()
