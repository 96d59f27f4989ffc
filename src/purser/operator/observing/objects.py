"""What the operator reads of nodes, pods and budgets, beyond what other rooms read: slim Structs, for reading only."""

from typing import Any

import msgspec

from purser.kube.objects import MIRROR_POD_ANNOTATION, NodeSpec, ObjectMeta, OwnerReference, ResourceRequirements, Slim
from purser.kube.resources import NODES, PODS


class Identified(Slim, frozen=True, gc=False):
    """An object of which only the identity is of interest."""

    metadata: ObjectMeta = ObjectMeta()


class ObservedCondition(Slim, frozen=True, gc=False):
    """A condition of a node or pod."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class ObservedNodeInfo(Slim, frozen=True, gc=False):
    """What kubelet says of its machine."""

    os_image: str = ""
    kernel_version: str = ""
    container_runtime_version: str = ""
    boot_id: str = msgspec.field(default="", name="bootID")
    kubelet_version: str = ""


class ObservedNodeStatus(Slim, frozen=True, gc=False):
    """What kubelet says of its node."""

    conditions: tuple[ObservedCondition, ...] = ()
    node_info: ObservedNodeInfo = ObservedNodeInfo()


class ObservedNode(Slim, frozen=True, gc=False):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: ObservedNodeStatus = ObservedNodeStatus()


class PodMeta(ObjectMeta, frozen=True, gc=False, rename="camel"):
    """A pod's identity, and its age."""

    creation_timestamp: str = ""


class ContainerStateWaiting(Slim, frozen=True, gc=False):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class Terminated(Slim, frozen=True, gc=False):
    """How a container ended."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""


class ContainerState(Slim, frozen=True, gc=False):
    """One of these, or neither where it runs."""

    waiting: ContainerStateWaiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(Slim, frozen=True, gc=False):
    """How a container is doing."""

    name: str = ""
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class ObservedPodStatus(Slim, frozen=True, gc=False):
    """How a pod is doing."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[ObservedCondition, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class NodeSelectorRequirement(Slim, frozen=True, gc=False):
    """A condition on a node."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Slim, frozen=True, gc=False):
    """Conditions on a node; only those on its fields, of which ``metadata.name`` is the only one."""

    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Slim, frozen=True, gc=False):
    """Terms of which one has to hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(Slim, frozen=True, gc=False):
    """Where a pod has to run."""

    required: NodeSelector = msgspec.field(
        default=NodeSelector(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Slim, frozen=True, gc=False):
    """Where a pod wants to run."""

    node_affinity: NodeAffinity = NodeAffinity()


class ObservedPodSpec(Slim, frozen=True, gc=False):
    """Where an operand's pod runs, or is to run."""

    node_name: str = ""
    affinity: Affinity = Affinity()


class ObservedPod(Slim, frozen=True, gc=False):
    """An operand's pod."""

    metadata: PodMeta = PodMeta()
    spec: ObservedPodSpec = ObservedPodSpec()
    status: ObservedPodStatus = ObservedPodStatus()


class MirrorMark(Slim, frozen=True, gc=False):
    """Of a pod's annotations the one that tells a static pod; some of the others are long."""

    config: str | None = msgspec.field(default=None, name=MIRROR_POD_ANNOTATION)


class OtherMeta(Slim, frozen=True, gc=False):
    """Identity of a pod that is no operand's."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str = ""
    labels: dict[str, str] = {}
    annotations: MirrorMark = MirrorMark()
    owner_references: tuple[OwnerReference, ...] = ()


class ObservedContainer(Slim, frozen=True, gc=False):
    """What a container asks for."""

    resources: ResourceRequirements = ResourceRequirements()


class Volume(Slim, frozen=True, gc=False):
    """A volume; only whether it is an emptyDir."""

    empty_dir: dict[str, Any] | None = None


class ResourceClaim(Slim, frozen=True, gc=False):
    """A claim of dynamic resource allocation that a pod names."""

    name: str = ""


class OtherSpec(Slim, frozen=True, gc=False):
    """Where a pod runs, and what it uses."""

    node_name: str = ""
    containers: tuple[ObservedContainer, ...] = ()
    init_containers: tuple[ObservedContainer, ...] = ()
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[ResourceClaim, ...] = ()


class OtherStatus(Slim, frozen=True, gc=False):
    """How far a pod has come."""

    phase: str = ""
    conditions: tuple[ObservedCondition, ...] = ()


class OtherPod(Slim, frozen=True, gc=False):
    """Any pod of the cluster: as little of it as decides whether its node can be emptied."""

    metadata: OtherMeta = OtherMeta()
    spec: OtherSpec = OtherSpec()
    status: OtherStatus = OtherStatus()


OPERATOR_NODES = NODES.as_type(ObservedNode)
OPERATOR_PODS = PODS.as_type(ObservedPod)
OTHER_PODS = PODS.as_type(OtherPod)
