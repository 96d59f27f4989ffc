"""What Purser reads of Kubernetes' objects: slim Structs.

They hold only fields that some part of Purser reads: decoding a list of pods into them costs a tenth of what dicts
cost, in time and memory, and the garbage collector need not look at them (``gc=False``: none holds a cycle). They are
frozen and shared by reference; their dicts must not be written to either. A field that is absent or null has its zero
value. Fields are named as in the API, in snake case.

They are for reading only: sending one back would drop every field that it does not know. What is written is a dict.
"""

from typing import Any

import msgspec

from purser.core.kubernetes.quantities import QuantityLike
from purser.core.kubernetes.taints import PodToleration, Taint
from purser.core.pod.manifest import ContainerEnvVar, EnvFrom, PodVolume, VolumeDevice, VolumeMount

DEFAULT_SCHEDULER = "default-scheduler"
"""``schedulerName`` of pods that name none."""

MIRROR_POD_ANNOTATION = "kubernetes.io/config.mirror"
"""On the API's image of a static pod, by kubelet: the uid by which kubelet itself knows the pod."""

STATIC_POD_UID_ANNOTATION = "kubernetes.io/config.hash"
"""The same, on every pod that kubelet was not given by the API server."""

POD_SOURCE_ANNOTATION = "kubernetes.io/config.source"
"""Where kubelet has a pod from; ``api`` or nothing for pods of the API server."""


class Slim(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What all of them are, and those of other groups."""


class OwnerReference(Slim, frozen=True, gc=False):
    """Whom an object belongs to."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(Slim, frozen=True, gc=False):
    """An object's identity; timestamps are RFC 3339 text, as they came."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    """Not empty once the object was asked to go."""
    deletion_grace_period_seconds: int = 0
    """How long a pod that was asked to go may take."""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()


class ResourceRequirements(Slim, frozen=True, gc=False):
    """What a container, or a pod as a whole, asks for and is limited to."""

    limits: dict[str, QuantityLike] = {}
    requests: dict[str, QuantityLike] = {}


class Capabilities(Slim, frozen=True, gc=False):
    """What a container may do beyond what the runtime lets all do."""

    add: tuple[str, ...] = ()


class SecurityContext(Slim, frozen=True, gc=False):
    """What decides whether a container sees every device anyway."""

    privileged: bool = False
    capabilities: Capabilities = Capabilities()


class Container(Slim, frozen=True, gc=False):
    """A container of a pod."""

    name: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    security_context: SecurityContext = SecurityContext()
    restart_policy: str = ""
    """``Always`` on an init container makes it a sidecar."""
    env: tuple[ContainerEnvVar, ...] = ()
    env_from: tuple[EnvFrom, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    volume_devices: tuple[VolumeDevice, ...] = ()


class PodSpec(Slim, frozen=True, gc=False):
    """What a pod asks for."""

    node_name: str = ""
    scheduler_name: str = ""
    node_selector: dict[str, str] = {}
    tolerations: tuple[PodToleration, ...] = ()
    affinity: Any = None
    """As received; it and the next field are only needed by `eligibility`."""
    topology_spread_constraints: Any = None
    scheduling_gates: Any = None
    """As they came: with any, kube-scheduler leaves the pod alone."""
    priority: int = 0
    preemption_policy: str = ""
    """``Never``: no other pod is to go for this one."""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[Container, ...] = ()
    volumes: tuple[PodVolume, ...] = ()
    host_pid: bool = msgspec.field(default=False, name="hostPID")
    overhead: dict[str, QuantityLike] = {}
    """What its RuntimeClass adds to what its containers ask for."""
    resources: ResourceRequirements = ResourceRequirements()
    """What it asks for as a whole, instead of its containers (Kubernetes 1.34)."""


class PodStatus(Slim, frozen=True, gc=False):
    """How far a pod has come."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    start_time: str = ""
    """When kubelet took the pod, or refused it; empty before."""
    nominated_node_name: str = ""
    """Where room is being made for it."""


class Pod(Slim, frozen=True, gc=False):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class NodeSystemInfo(Slim, frozen=True, gc=False):
    """What runs on a node."""

    kubelet_version: str = ""
    os_image: str = ""
    kernel_version: str = ""
    container_runtime_version: str = ""
    """``containerd://1.7.22``."""
    boot_id: str = msgspec.field(default="", name="bootID")


class NodeCondition(Slim, frozen=True, gc=False):
    """A condition of a node."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class NodeAddress(Slim, frozen=True, gc=False):
    """One of the addresses of a node."""

    type: str = ""
    """``InternalIP``, ``Hostname`` and others."""
    address: str = ""


class NodeStatus(Slim, frozen=True, gc=False):
    """What kubelet said about its node."""

    capacity: dict[str, QuantityLike] = {}
    allocatable: dict[str, QuantityLike] = {}
    node_info: NodeSystemInfo = NodeSystemInfo()
    conditions: tuple[NodeCondition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()


class NodeSpec(Slim, frozen=True, gc=False):
    """Which pods may come to a node."""

    unschedulable: bool = False
    """Cordoned."""
    taints: tuple[Taint, ...] = ()


class Node(Slim, frozen=True, gc=False):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ObjectReference(Slim, frozen=True, gc=False):
    """What an event is about."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class Event(Slim, frozen=True, gc=False):
    """A core/v1 Event."""

    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 0
    reporting_component: str = ""


class LeaseSpec(Slim, frozen=True, gc=False):
    """Who holds a lease."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str = ""
    renew_time: str = ""
    lease_transitions: int = 0


class Lease(Slim, frozen=True, gc=False):
    """A coordination.k8s.io/v1 Lease."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class ConfigMap(Slim, frozen=True, gc=False):
    """Text under keys."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}


class Secret(Slim, frozen=True, gc=False):
    """Bytes under keys, base64 already taken off."""

    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    data: dict[str, bytes] = {}

    def __repr__(self) -> str:
        """Without the values: Structs end up in logs."""
        return f"Secret({self.metadata.namespace}/{self.metadata.name}, keys={sorted(self.data)})"


class Namespace(Slim, frozen=True, gc=False):
    """A namespace."""

    metadata: ObjectMeta = ObjectMeta()


class Identified(Slim, frozen=True, gc=False):
    """An object of which only the identity is of interest."""

    metadata: ObjectMeta = ObjectMeta()
