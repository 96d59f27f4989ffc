"""Pods as the agent keeps them: with the ids of their containers, by which processes are assigned to containers, and
their grace periods.

Only the agent needs these, and the scheduler keeps all pods of a cluster.
"""

from collections.abc import Iterable

import msgspec

from purser.core.monitoring.accounts import PodContainers
from purser.core.monitoring.cgroups import cgroup_id_of
from purser.kube.objects import MIRROR_POD_ANNOTATION, Pod, PodSpec, PodStatus, Slim
from purser.kube.resources import PODS


class ContainerIdentity(Slim, frozen=True, gc=False):
    """Which container of the runtime a container of the pod is."""

    name: str = ""
    container_id: str = msgspec.field(default="", name="containerID")
    """``containerd://<id>``; empty before it was created."""


class NodePodStatus(PodStatus, frozen=True, gc=False):
    """How far a pod has come, and its containers."""

    container_statuses: tuple[ContainerIdentity, ...] = ()
    init_container_statuses: tuple[ContainerIdentity, ...] = ()
    ephemeral_container_statuses: tuple[ContainerIdentity, ...] = ()


class NodePodSpec(PodSpec, frozen=True, gc=False):
    """What a pod asks for, and how it is to end."""

    termination_grace_period_seconds: int = 30
    """How long it may take to end."""


class NodePod(Pod, frozen=True, gc=False):
    """A pod of this node."""

    spec: NodePodSpec = NodePodSpec()
    status: NodePodStatus = NodePodStatus()


NODE_PODS = PODS.as_type(NodePod)


def by_kubelet_uid(pods: Iterable[NodePod]) -> dict[str, PodContainers]:
    """Pods by the uid that kubelet knows them by: that of a static pod is in its annotation. Anybody may write that
    annotation on a pod of his own, so that the uids that the API server gave come first."""
    found, static = {}, {}
    for pod in pods:
        meta, status = pod.metadata, pod.status
        statuses = (*status.container_statuses, *status.init_container_statuses, *status.ephemeral_container_statuses)
        containers = {cgroup_id_of(each.container_id): each.name for each in statuses if each.container_id}
        entry = PodContainers(meta.uid, meta.namespace, meta.name, containers)
        found[meta.uid] = entry
        if mirrored := meta.annotations.get(MIRROR_POD_ANNOTATION):
            static[mirrored] = entry
    return {**static, **found}
