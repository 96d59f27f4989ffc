"""Manifests of scenarios."""

from typing import Any

from purser.core.names import SCHEDULER_NAME
from purser.kube.resources import untyped_resource
from tests.scenarios.cluster import Cluster

GPU = "nvidia.com/gpu"
GPUMEM = "nvidia.com/gpumem"
GPUMEM_PERCENTAGE = "nvidia.com/gpumem-percentage"
GPUCORES = "nvidia.com/gpucores"

Raw = dict[str, Any]


def share(memory: int | str = 10240, cores: int | str = 30, count: int = 1) -> dict[str, str]:
    """The limits of a container that wants part of a card: MiB and percent."""
    return {GPU: str(count), GPUMEM: str(memory), GPUCORES: str(cores)}


def half() -> dict[str, str]:
    """The limits of a container that wants half a card, whatever its size."""
    return {GPU: "1", GPUMEM_PERCENTAGE: "50", GPUCORES: "50"}


def whole(count: int = 1) -> dict[str, str]:
    """The limits of a container that wants cards for itself."""
    return {GPU: str(count)}


def container(cluster: Cluster, limits: dict[str, str] | None, name: str = "main", **fields: Any) -> Raw:
    """A container that prints its environment and stays."""
    return {
        "name": name,
        "image": cluster.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", "env; sleep 36000"],
        **({"resources": {"limits": limits}} if limits else {}),
        **fields,
    }


def pod(
    cluster: Cluster,
    name: str,
    limits: dict[str, str] | None,
    *,
    annotations: dict[str, str] | None = None,
    init_containers: list[Raw] | None = None,
    container_fields: Raw | None = None,
    **spec: Any,
) -> Raw:
    """A pod with one container "main", on the node with the simulated cards unless ``spec`` says otherwise."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": cluster.namespace, "annotations": annotations or {}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"kubernetes.io/hostname": cluster.gpu_node},
            "containers": [container(cluster, limits, **(container_fields or {}))],
            **cluster.pod_fields,
            **({"initContainers": init_containers} if init_containers else {}),
            **spec,
        },
    }


def replica_set(cluster: Cluster, name: str, replicas: int, limits: dict[str, str]) -> Raw:
    """A ReplicaSet of such pods. They name their scheduler themselves: replicas also come while the webhook is away."""
    template = pod(cluster, name, limits, schedulerName=SCHEDULER_NAME)
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": cluster.namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": template["spec"]},
        },
    }


OWNERS = {
    "DaemonSet": untyped_resource("apps", "v1", "daemonsets", "DaemonSet"),
    "Deployment": untyped_resource("apps", "v1", "deployments", "Deployment"),
    "Job": untyped_resource("batch", "v1", "jobs", "Job"),
    "StatefulSet": untyped_resource("apps", "v1", "statefulsets", "StatefulSet"),
}


def owner(cluster: Cluster, kind: str, name: str, limits: dict[str, str] | None) -> Raw:
    """One of `OWNERS`, of one pod that leaves the choice of its scheduler to the webhook."""
    spec = {**pod(cluster, name, limits)["spec"], "restartPolicy": "Never" if kind == "Job" else "Always"}
    body: Raw = {"template": {"metadata": {"labels": {"app": name}}, "spec": spec}}
    if kind != "Job":
        body["selector"] = {"matchLabels": {"app": name}}
    if kind == "StatefulSet":
        body["serviceName"] = "none"
    return {"metadata": {"name": name, "namespace": cluster.namespace}, "spec": body}
