"""What of a pod counts at kubelet's admission."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from purser.core.kubelet.versions import Behaviour
from purser.core.kubernetes.quantities import quantity_ceil, quantity_milli
from purser.core.pod.manifest import ContainerKind, ContainerSpec, PodManifest

CPU = "cpu"
MEMORY = "memory"


class QosClass(StrEnum):
    """status.qosClass."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class KubeletContainer(msgspec.Struct, frozen=True):
    """One container. CPU in millicores, everything else in its base unit (bytes, devices), rounded up."""

    name: str
    kind: ContainerKind = ContainerKind.APP
    limits: Mapping[str, int] = {}
    requests: Mapping[str, int] = {}


class KubeletPod(msgspec.Struct, frozen=True):
    """A pod, its containers in kubelet's order: init containers and sidecars as in the spec, then app containers."""

    uid: str
    containers: tuple[KubeletContainer, ...]
    qos: QosClass = QosClass.BEST_EFFORT
    """The class that its CPUs and its memory are managed by: see `kubelet_pod`."""
    is_pod_level: bool = False
    """Whether it asks for amounts at pod level (spec.resources)."""


def releases_resources(behaviour: Behaviour, container: KubeletContainer) -> bool:
    """Whether a container ends before the next one starts, so that the next one may have what it held: sidecars do
    where kubelet takes them for common init containers."""
    if container.kind is ContainerKind.SIDECAR:
        return not behaviour.has_sidecars
    return container.kind is ContainerKind.INIT


def kubelet_pod(spec: PodManifest) -> KubeletPod:
    """A pod as kubelet sees it. Raises `purser.core.kubernetes.quantities.QuantityError`.

    The CPU and the memory manager leave out pods with amounts at pod level, whatever their containers ask for, while
    the gate PodLevelResourceManagers is off, as in 1.37. Such a pod is taken for a Burstable one, of which they leave
    out all. API servers keep these amounts since 1.34. Kubelets of 1.31 to 1.33 beside such a server look at the
    containers alone, which is not modelled.
    """
    containers = tuple(_container(container) for container in spec.containers)
    return _with_qos_class(KubeletPod(spec.uid, containers, is_pod_level=bool(spec.requests)))


def with_containers(pod: KubeletPod, containers: tuple[KubeletContainer, ...]) -> KubeletPod:
    """The pod if its containers asked for this instead."""
    return _with_qos_class(msgspec.structs.replace(pod, containers=containers))


def _with_qos_class(pod: KubeletPod) -> KubeletPod:
    return msgspec.structs.replace(pod, qos=QosClass.BURSTABLE if pod.is_pod_level else qos_class(pod.containers))


def _container(spec: ContainerSpec) -> KubeletContainer:
    limits = {name: _amount(name, value) for name, value in spec.limits.items()}
    requests = {name: _amount(name, value) for name, value in spec.requests.items()}
    return KubeletContainer(spec.name, spec.kind, limits, limits | requests)


def _amount(resource: str, value: str) -> int:
    return quantity_milli(value) if resource == CPU else quantity_ceil(value)


def qos_class(containers: tuple[KubeletContainer, ...]) -> QosClass:
    """The QoS class of a pod with these containers (GetPodQOS): Guaranteed when each one limits both CPU and memory
    and requests the same, BestEffort when none names either."""
    named = [c for c in containers if any(_cpu_and_memory(c.limits)) or any(_cpu_and_memory(c.requests))]
    if not named:
        return QosClass.BEST_EFFORT
    limited = all(
        all(_cpu_and_memory(c.limits)) and _cpu_and_memory(c.limits) == _cpu_and_memory(c.requests) for c in containers
    )
    return QosClass.GUARANTEED if limited else QosClass.BURSTABLE


def _cpu_and_memory(amounts: Mapping[str, int]) -> tuple[int, int]:
    return amounts.get(CPU, 0), amounts.get(MEMORY, 0)
