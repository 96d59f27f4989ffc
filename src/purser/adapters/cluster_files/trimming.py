"""What of a cluster's objects a decision needs. The types of `purser.adapters.objects` leave most out already: images,
commands, Secrets, managed fields. Here goes what they have for others, and all that somebody may have written."""

from collections.abc import Collection, Mapping
from typing import TypeVar

from msgspec.structs import replace

from purser.adapters.nodes import DEVICE_ANNOTATIONS
from purser.adapters.objects import ClusterObjects
from purser.core.dialects import SHARING, VENDORS, kai, policies, selectors
from purser.core.grant.share_variables import (
    CORE_POLICY,
    DEVICES,
    DISABLE_CONTROL,
    EXTRA_DEVICE_VARIABLES,
    LIMITS,
    LOADER_VARIABLES,
    MPS,
    VISIBLE_DEVICES,
)
from purser.core.names import (
    AWAITS_GRANT_ANNOTATION,
    DISPUTES_ANNOTATION,
    ENFORCEMENT_ANNOTATION,
    GPU_NIC_ANNOTATION,
    GPU_POLICY_ANNOTATION,
    GRANT_ANNOTATION,
    INIT_RESOURCES_ANNOTATION,
    KUBELET_ANNOTATION,
    MEMORY_UNITS_ANNOTATION,
    NODE_POLICY_ANNOTATION,
)
from purser.core.pod.manifest import ContainerEnvVar
from purser.core.vendors.catalogue import FAMILIES
from purser.kube.device_claims import DeviceClass, ResourceClaim
from purser.kube.objects import (
    MIRROR_POD_ANNOTATION,
    POD_SOURCE_ANNOTATION,
    STATIC_POD_UID_ANNOTATION,
    Namespace,
    Node,
    NodeStatus,
    NodeSystemInfo,
    ObjectMeta,
)
from purser.kube.pod_details import ContainerStatus, ScheduledContainer, ScheduledPod, ScheduledPodSpec
from purser.kube.resource_quotas import ResourceQuota
from purser.kube.volumes import PersistentVolume, PersistentVolumeClaim
from purser.kube.workloads import Workload

NamedT = TypeVar(
    "NamedT",
    Node,
    ScheduledPod,
    ResourceQuota,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    ResourceClaim,
    DeviceClass,
    Workload,
)

POD_ANNOTATIONS = frozenset(
    {
        GRANT_ANNOTATION,
        INIT_RESOURCES_ANNOTATION,
        MEMORY_UNITS_ANNOTATION,
        AWAITS_GRANT_ANNOTATION,
        NODE_POLICY_ANNOTATION,
        GPU_POLICY_ANNOTATION,
        GPU_NIC_ANNOTATION,
        ENFORCEMENT_ANNOTATION,
        policies.HAMI_NODE_POLICY,
        policies.HAMI_GPU_POLICY,
        policies.HAMI_WEIGHTS,
        selectors.USE_GPUTYPE,
        selectors.NOUSE_GPUTYPE,
        selectors.USE_GPUUUID,
        selectors.NOUSE_GPUUUID,
        selectors.NUMA_BIND,
        selectors.VGPU_MODE,
        selectors.MIG_PREFERENCE,
        selectors.VOLCANO_USE_GPUUUID,
        selectors.VOLCANO_NOUSE_GPUUUID,
        selectors.VOLCANO_VGPU_MODE,
        kai.GPU_FRACTION,
        kai.KAI_GPU_MEMORY,
        kai.GPU_FRACTION_NUM_DEVICES,
        kai.GPU_FRACTION_CONTAINER_NAME,
        kai.KAI_MPS,
        MIRROR_POD_ANNOTATION,
        STATIC_POD_UID_ANNOTATION,
        POD_SOURCE_ANNOTATION,
        *(name for dialect in (*SHARING.values(), *VENDORS.values()) for name in (*dialect.RECORDS, *dialect.MARKS)),
        *(name for family in FAMILIES for name in family.pod_annotations),
    }
)
"""Of pods. A grant's signature is not among them: who explains and simulates has no keys."""

NODE_ANNOTATIONS = frozenset(
    {
        *DEVICE_ANNOTATIONS,
        KUBELET_ANNOTATION,
        DISPUTES_ANNOTATION,
        *(name for family in FAMILIES for name in family.node_annotations),
    }
)
NAMESPACE_ANNOTATIONS = frozenset({ENFORCEMENT_ANNOTATION})

_VARIABLES = (EXTRA_DEVICE_VARIABLES, DEVICES, LIMITS, LOADER_VARIABLES, MPS)
"""Names of variables that decide where a pod goes by being there."""

_VALUES = frozenset({DISABLE_CONTROL, CORE_POLICY, VISIBLE_DEVICES})
"""And those whose value does."""


def trim_objects(objects: ClusterObjects) -> ClusterObjects:
    """What a decision on any pod of the cluster reads."""
    return replace(
        objects,
        nodes=tuple(map(_node, objects.nodes)),
        pods=tuple(map(_pod, objects.pods)),
        quotas=tuple(_trim_metadata(each) for each in objects.quotas),
        namespaces=tuple(_trim_metadata(each, NAMESPACE_ANNOTATIONS) for each in objects.namespaces),
        claims=_trim_known(objects.claims),
        volumes=tuple(_trim_metadata(each) for each in objects.volumes),
        resource_claims=_trim_known(objects.resource_claims),
        device_classes=_trim_known(objects.device_classes),
        workloads={kind: tuple(_trim_metadata(each) for each in found) for kind, found in objects.workloads.items()},
    )


def _trim_known(found: tuple[NamedT, ...] | None) -> tuple[NamedT, ...] | None:
    return None if found is None else tuple(_trim_metadata(each) for each in found)


def _trim_metadata(found: NamedT, annotations: Collection[str] = ()) -> NamedT:
    return replace(found, metadata=_metadata(found.metadata, annotations))


def _metadata(found: ObjectMeta, annotations: Collection[str]) -> ObjectMeta:
    return replace(found, resource_version="", annotations=_filter_by_name(found.annotations, annotations))


def _filter_by_name(found: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    return {name: value for name, value in found.items() if name in names}


def _node(node: Node) -> Node:
    status = node.status
    info = NodeSystemInfo(kubelet_version=status.node_info.kubelet_version)
    not_ready = tuple(each for each in status.conditions if each.type == "Ready" and each.status != "True")
    kept = NodeStatus(status.capacity, status.allocatable, info, not_ready)
    return replace(_trim_metadata(node, NODE_ANNOTATIONS), status=kept)


def _pod(pod: ScheduledPod) -> ScheduledPod:
    spec: ScheduledPodSpec = replace(
        pod.spec,
        containers=tuple(map(_container, pod.spec.containers)),
        init_containers=tuple(map(_container, pod.spec.init_containers)),
        ephemeral_containers=(),
    )
    status = replace(
        pod.status,
        conditions=tuple(each for each in pod.status.conditions if each.type == "PodScheduled"),
        init_container_statuses=tuple(filter(_is_informative, pod.status.init_container_statuses)),
        container_statuses=tuple(filter(_is_informative, pod.status.container_statuses)),
    )
    return replace(_trim_metadata(pod, POD_ANNOTATIONS), spec=spec, status=status)


def _is_informative(found: ContainerStatus) -> bool:
    """Whether it is that of a container that does not run: it says why, or that another one's end is not the pod's."""
    return found.state.waiting is not None or found.state.terminated is not None


def _container(found: ScheduledContainer) -> ScheduledContainer:
    ports = tuple(port for port in found.ports if port.host_port)
    return replace(found, env=tuple(_variable(each) for each in found.env if _affects_decisions(each)), ports=ports)


def _affects_decisions(variable: ContainerEnvVar) -> bool:
    return variable.name in _VALUES or any(names.has(variable.name) for names in _VARIABLES)


def _variable(found: ContainerEnvVar) -> ContainerEnvVar:
    return found if found.name in _VALUES else replace(found, value="")
