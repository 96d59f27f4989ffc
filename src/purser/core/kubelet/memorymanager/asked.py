"""How much memory a container or a pod asks for, by resource in bytes."""

from collections.abc import Mapping

from purser.core.kubelet.pod import MEMORY, KubeletContainer, KubeletPod, releases_resources
from purser.core.kubelet.versions import Behaviour
from purser.core.pod.manifest import ContainerKind

_HUGEPAGES = "hugepages-"

Amounts = Mapping[str, int]
"""Bytes by resource: ``memory`` or ``hugepages-<size>``."""


def of_container(container: KubeletContainer) -> Amounts:
    """What one container requests (getRequestedResources), in the order of names: kubelet's own order is random.

    kubelet fails a pod whose quantity is not a whole number of bytes; here it was rounded up before.
    """
    return {name: size for name, size in sorted(container.requests.items()) if _is_memory(name)}


def of_pod(behaviour: Behaviour, pod: KubeletPod) -> Amounts:
    """The most that a pod holds at any time (getPodRequestedResources): what its long-running containers hold
    together, or one init container beside the sidecars that started before it. Only resources that an app container
    asks for count."""
    apps: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    inits: dict[str, int] = {}
    for container in pod.containers:
        is_init = releases_resources(behaviour, container)
        for name, size in of_container(container).items():
            if is_init:
                inits[name] = max(inits.get(name, 0), sidecars.get(name, 0) + size)
            else:
                of_kind = sidecars if container.kind is ContainerKind.SIDECAR else apps
                of_kind[name] = of_kind.get(name, 0) + size
    return {name: max(apps[name] + sidecars.get(name, 0), inits.get(name, 0)) for name in sorted(apps)}


def _is_memory(resource: str) -> bool:
    return resource == MEMORY or resource.startswith(_HUGEPAGES)
