"""How many exclusive CPUs containers and pods ask for."""

from collections.abc import Iterable

from purser.core.kubelet.pod import CPU, KubeletContainer, KubeletPod, QosClass, releases_resources
from purser.core.kubelet.versions import Behaviour
from purser.core.pod.manifest import ContainerKind

_MILLI = 1000


def guaranteed_cpus(pod: KubeletPod, container: KubeletContainer) -> int:
    """Exclusive CPUs of a container: its request where the pod is Guaranteed and it is a whole number, else none."""
    cpu_millis = container.requests.get(CPU, 0)
    return cpu_millis // _MILLI if pod.qos is QosClass.GUARANTEED and cpu_millis % _MILLI == 0 else 0


def pod_guaranteed_cpus(behaviour: Behaviour, pod: KubeletPod) -> int:
    """Exclusive CPUs of a pod at its peak: while one init container runs beside the sidecars that were started before
    it, or while everything else runs."""
    sidecars = peak = 0
    for container in pod.containers:
        asked = guaranteed_cpus(pod, container)
        if releases_resources(behaviour, container):
            peak = max(peak, sidecars + asked)
        elif container.kind is not ContainerKind.APP:
            sidecars += asked
    return max(peak, sidecars + sum(guaranteed_cpus(pod, container) for container in _app_containers(pod)))


def _app_containers(pod: KubeletPod) -> Iterable[KubeletContainer]:
    return (container for container in pod.containers if container.kind is ContainerKind.APP)
