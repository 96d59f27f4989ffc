"""How many devices a container, and a pod as a whole, asks for."""

from purser.core.kubelet.devicemanager.plugins import is_device_resource
from purser.core.kubelet.pod import KubeletContainer, KubeletPod, releases_resources
from purser.core.kubelet.state import DeviceManagerState
from purser.core.kubelet.versions import Behaviour
from purser.core.pod.manifest import ContainerKind


def container_request(state: DeviceManagerState, container: KubeletContainer) -> dict[str, int]:
    """The device resources among a container's limits, sorted by name (kubelet's order is random)."""
    return {name: n for name, n in sorted(container.limits.items()) if is_device_resource(state, name)}


def pod_request(behaviour: Behaviour, state: DeviceManagerState, pod: KubeletPod) -> dict[str, int]:
    """What a pod needs at most at one time.

    That is the sum over its app containers and sidecars, or more where an init container needs more together with the
    sidecars before it.
    """
    apps: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in pod.containers:
        is_init = releases_resources(behaviour, container)
        for name, n in container_request(state, container).items():
            if is_init:
                peak[name] = max(peak.get(name, 0), n + sidecars.get(name, 0))
            else:
                of_kind = sidecars if container.kind is ContainerKind.SIDECAR else apps
                of_kind[name] = of_kind.get(name, 0) + n
    names = sorted(apps.keys() | sidecars.keys() | peak.keys())
    return {name: max(peak.get(name, 0), apps.get(name, 0) + sidecars.get(name, 0)) for name in names}
