"""A pod as the kernel's values."""

from collections.abc import Mapping

from purser.core.device.resources import is_gpu_resource
from purser.core.kubernetes.quantities import QuantityLike, quantity_ceil
from purser.core.model import ContainerKind, Grant, GrantState, PodRequest
from purser.core.pod.manifest import ContainerSpec, PodManifest
from purser.kube.objects import Container, ObjectReference, Pod
from purser.kube.resources import pod_ref


def pod_spec(pod: Pod) -> PodManifest:
    """What dialects read of a pod, its containers in kubelet's order."""
    return PodManifest(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        annotations=pod.metadata.annotations,
        containers=(
            *(container_spec(container, _init_kind(container)) for container in pod.spec.init_containers),
            *(container_spec(container, ContainerKind.APP) for container in pod.spec.containers),
        ),
        labels=pod.metadata.labels,
        priority=pod.spec.priority,
        node_name=pod.spec.node_name,
        node_selector=pod.spec.node_selector,
        scheduler_name=pod.spec.scheduler_name,
        overhead=_quantities(pod.spec.overhead),
        requests=_quantities({**pod.spec.resources.limits, **pod.spec.resources.requests}),
        ephemeral=tuple(container_spec(container, ContainerKind.APP) for container in pod.spec.ephemeral_containers),
        volumes=pod.spec.volumes,
        host_pid=pod.spec.host_pid,
    )


def container_spec(container: Container, kind: ContainerKind) -> ContainerSpec:
    """What dialects read of one container."""
    return ContainerSpec(
        name=container.name,
        kind=kind,
        limits=_quantities(container.resources.limits),
        requests=_quantities(container.resources.requests),
        privileged=container.security_context.privileged,
        capabilities=container.security_context.capabilities.add,
        env=container.env,
        env_from=container.env_from,
        mounts=container.volume_mounts,
        block_devices=container.volume_devices,
    )


def devices_asked(pod: Pod) -> dict[str, int]:
    """How many of kubelet's devices each container of a pod asks for; only those that ask.

    A container with only other resource names for GPUs gets none from kubelet, whatever they mean to a scheduler.
    """
    counts = {each.name: _devices_asked(each) for each in (*pod.spec.init_containers, *pod.spec.containers)}
    return {name: count for name, count in counts.items() if count}


def families_asked(pod: Pod, words: Mapping[str, str]) -> frozenset[str]:
    """The families of other vendors' devices of which a pod asks for anything. ``words``: families by every resource
    of theirs."""
    if not words:
        return frozenset()
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    limits = (each.resources.limits for each in containers)
    return frozenset(words[name] for each in limits for name in each if name in words and _is_positive(each[name]))


def _is_positive(amount: QuantityLike) -> bool:
    try:
        return quantity_ceil(amount) > 0
    except ValueError:  # as above
        return False


def _devices_asked(container: Container) -> int:
    limits = container.resources.limits
    try:
        return sum(quantity_ceil(limits[resource]) for resource in limits if is_gpu_resource(resource))
    except ValueError:  # the API server does not let this in
        return 0


def ref_of_grant(grant: Grant) -> ObjectReference:
    """The pod that a grant is of."""
    return pod_ref(grant.namespace, grant.pod, grant.pod_uid)


def ref_of_request(request: PodRequest) -> ObjectReference:
    """The pod that asks for this."""
    return pod_ref(request.namespace, request.name, request.uid)


def grant_state(pod: Pod) -> GrantState:
    """How far the grant of a bound pod is."""
    return GrantState.RUNNING if pod.status.phase == "Running" else GrantState.BOUND


def _init_kind(container: Container) -> ContainerKind:
    return ContainerKind.SIDECAR if container.restart_policy == "Always" else ContainerKind.INIT


def _quantities(amounts: dict[str, QuantityLike]) -> dict[str, str]:
    return {resource: str(amount) for resource, amount in amounts.items()}
