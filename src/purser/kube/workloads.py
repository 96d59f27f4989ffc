"""Deployments and other objects that create pods, as far as they say which pods they have, and why they have none."""

from purser.kube.objects import ObjectMeta, Pod, Slim
from purser.kube.pod_details import PodCondition
from purser.kube.pods import controller_of
from purser.kube.resources import Resource

POD_TEMPLATE_HASH = "pod-template-hash"
"""Label of a Deployment's pods; the name of their ReplicaSet is the Deployment's, a hyphen and this label's value."""


class WorkloadSpec(Slim, frozen=True, gc=False):
    """How many pods it wants."""

    replicas: int | None = None
    """Of Deployments, ReplicaSets and StatefulSets; None: 1, as the API server's own default."""
    paused: bool = False
    """Of a Deployment: it makes no ReplicaSet for a changed template."""
    suspend: bool = False
    """Of a Job: it creates no pods."""


class WorkloadStatus(Slim, frozen=True, gc=False):
    """What its controller says of it."""

    conditions: tuple[PodCondition, ...] = ()
    desired_number_scheduled: int = 0
    """Of a DaemonSet: the nodes that are to have a pod."""


class Workload(Slim, frozen=True, gc=False):
    """A Deployment, ReplicaSet, StatefulSet, DaemonSet or Job."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", True, Workload)
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", True, Workload)
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet", True, Workload)
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet", True, Workload)
JOBS = Resource("batch", "v1", "jobs", "Job", True, Workload)
WORKLOADS = (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, DAEMON_SETS, JOBS)


def is_of(pod: Pod, kind: str, name: str) -> bool:
    """Whether a workload of the pod's namespace created it, a Deployment by way of a ReplicaSet."""
    owner = controller_of(pod)
    if owner is None:
        return False
    if kind != DEPLOYMENTS.kind:
        return (owner.kind, owner.name) == (kind, name)
    hashed = pod.metadata.labels.get(POD_TEMPLATE_HASH)
    return bool(hashed) and (owner.kind, owner.name) == (REPLICA_SETS.kind, f"{name}-{hashed}")


def wanted_pods(found: Workload, kind: str) -> int | None:
    """How many pods it is to have; of a Job, which ends, None."""
    if kind == JOBS.kind:
        return None
    if kind == DAEMON_SETS.kind:
        return found.status.desired_number_scheduled
    return 1 if found.spec.replicas is None else found.spec.replicas


def wanted_field(kind: str) -> str:
    """The field that says so."""
    return "status.desiredNumberScheduled" if kind == DAEMON_SETS.kind else "spec.replicas"
