"""Pods with more, or less, than `purser.kube.objects.Pod` has: slim Structs, for reading only.

`ScheduledPod` also has what only kube-scheduler's filters read, host ports and claims, and what it says of the pod.
`CachedPod` has of these only what it said last of a pod that waits: a cache has all pods of a cluster.
`DetailedPod` also has what containers do, which is most of a pod's status: watches of all pods of a cluster leave it
out. `PodSummary` has only what decides whether its node can be drained.
"""

from functools import lru_cache
from typing import Any

import msgspec

from purser.core.decoding import brief
from purser.core.pod.manifest import PodVolume
from purser.kube.objects import (
    MIRROR_POD_ANNOTATION,
    Container,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    Slim,
)
from purser.kube.resources import PODS, Resource

MAX_SCHEDULER_MESSAGE = 1000
"""Characters: kube-scheduler counts nodes by reason, and names none."""

MAX_KEPT_MESSAGES = 1024
"""Messages that are kept once for all pods that wait for the same."""


class PodCondition(Slim, frozen=True, gc=False):
    """A condition of a pod."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class ContainerStateWaiting(Slim, frozen=True, gc=False):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class ContainerStateTerminated(Slim, frozen=True, gc=False):
    """How a container ended."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""


class ContainerState(Slim, frozen=True, gc=False):
    """One of these, or neither where it runs."""

    waiting: ContainerStateWaiting | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Slim, frozen=True, gc=False):
    """How a container is doing."""

    name: str = ""
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class DetailedPodStatus(Slim, frozen=True, gc=False):
    """How a pod is doing."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[PodCondition, ...] = ()
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


class PodLocation(Slim, frozen=True, gc=False):
    """Where a pod runs, or is to run."""

    node_name: str = ""
    affinity: Affinity = Affinity()


class DetailedPod(Slim, frozen=True, gc=False):
    """A pod, with what its containers do."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodLocation = PodLocation()
    status: DetailedPodStatus = DetailedPodStatus()


class MirrorAnnotation(Slim, frozen=True, gc=False):
    """Of a pod's annotations the one that marks a static pod; some of the others are long."""

    config: str | None = msgspec.field(default=None, name=MIRROR_POD_ANNOTATION)


class PodIdentity(Slim, frozen=True, gc=False):
    """A pod's identity, and the owner that recreates it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str = ""
    labels: dict[str, str] = {}
    annotations: MirrorAnnotation = MirrorAnnotation()
    owner_references: tuple[OwnerReference, ...] = ()


class ContainerResources(Slim, frozen=True, gc=False):
    """What a container asks for."""

    resources: ResourceRequirements = ResourceRequirements()


class Volume(Slim, frozen=True, gc=False):
    """A volume; only whether it is an emptyDir."""

    empty_dir: dict[str, Any] | None = None


class PodResourceClaim(Slim, frozen=True, gc=False):
    """A claim of dynamic resource allocation that a pod names."""

    name: str = ""
    resource_claim_name: str = ""
    """Empty: a claim is made for the pod from the template."""
    resource_claim_template_name: str = ""


class PodUsage(Slim, frozen=True, gc=False):
    """Where a pod runs, and what it uses."""

    node_name: str = ""
    containers: tuple[ContainerResources, ...] = ()
    init_containers: tuple[ContainerResources, ...] = ()
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()


class PodPhase(Slim, frozen=True, gc=False):
    """How far a pod has come."""

    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()


class PodSummary(Slim, frozen=True, gc=False):
    """Any pod of the cluster: as little of it as decides whether its node can be emptied."""

    metadata: PodIdentity = PodIdentity()
    spec: PodUsage = PodUsage()
    status: PodPhase = PodPhase()


class ContainerPort(Slim, frozen=True, gc=False):
    """A port of a container."""

    host_port: int = 0
    """On the node; 0: none."""
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class ScheduledContainer(Container, frozen=True, gc=False):
    """A container with its ports."""

    ports: tuple[ContainerPort, ...] = ()


class ClaimSource(Slim, frozen=True, gc=False):
    """A claim that a volume names."""

    claim_name: str = ""


class ScheduledVolume(PodVolume, frozen=True, gc=False, rename="camel"):
    """A volume with its claim."""

    persistent_volume_claim: ClaimSource | None = None


class ScheduledPodSpec(PodSpec, frozen=True, gc=False):
    """What a pod asks for."""

    containers: tuple[ScheduledContainer, ...] = ()
    init_containers: tuple[ScheduledContainer, ...] = ()
    volumes: tuple[ScheduledVolume, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()


class PodResourceClaimStatus(Slim, frozen=True, gc=False):
    """The ResourceClaim that was made for a pod."""

    name: str = ""
    """As the pod names its claim."""
    resource_claim_name: str = ""
    """Empty: on purpose none was made."""


class ScheduledPodStatus(PodStatus, frozen=True, gc=False):
    """How far a pod has come, what its scheduler said of it, and what keeps its containers from running."""

    conditions: tuple[PodCondition, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()


class ScheduledPod(Pod, frozen=True, gc=False):
    """A pod, with all that decides where it can go."""

    spec: ScheduledPodSpec = ScheduledPodSpec()
    status: ScheduledPodStatus = ScheduledPodStatus()


class CachedCondition(Slim, frozen=True, gc=False):
    """A condition of a pod that waits."""

    type: str = ""
    status: str = ""
    message: str = ""


class CachedPodStatus(PodStatus, frozen=True, gc=False):
    """How far a pod has come; of its conditions only PodScheduled, and that only while it is not scheduled."""

    conditions: tuple[CachedCondition, ...] = ()

    def __post_init__(self) -> None:
        if self.conditions:
            said = next((each.message for each in self.conditions if _says_why(each)), None)
            kept = () if said is None else _kept(said[: 4 * MAX_SCHEDULER_MESSAGE])
            msgspec.structs.force_setattr(self, "conditions", kept)


class CachedPod(Pod, frozen=True, gc=False):
    """A pod as a cache of all pods keeps it."""

    status: CachedPodStatus = CachedPodStatus()


def scheduler_message(pod: Pod) -> str:
    """Why a pod is not scheduled, by its condition PodScheduled; empty where nobody has said, or it was not read."""
    conditions = pod.status.conditions if isinstance(pod, ScheduledPod | CachedPod) else ()
    return next((each.message for each in conditions if _says_why(each)), "")


def _says_why(condition: PodCondition | CachedCondition) -> bool:
    return (condition.type, condition.status) == ("PodScheduled", "False")


@lru_cache(MAX_KEPT_MESSAGES)
def _kept(message: str) -> tuple[CachedCondition, ...]:
    return (CachedCondition("PodScheduled", "False", brief(message, MAX_SCHEDULER_MESSAGE)),)


CACHED_PODS: Resource[Pod] = PODS.as_type(CachedPod)
"""To be read as pods, of which `scheduler_message` knows more."""
SCHEDULED_PODS = PODS.as_type(ScheduledPod)
DETAILED_PODS = PODS.as_type(DetailedPod)
POD_SUMMARIES = PODS.as_type(PodSummary)
