"""Which containers hold which devices, by kubelet's list: as DCGM exporter finds the pods of its metrics."""

from collections.abc import Iterable, Mapping

import msgspec

from purser.agent.allocation.book import BookedPod
from purser.agent.kubeletapi.podresources.v1 import api_pb2
from purser.core.device.ids import uuid_of

RESOURCE_PREFIX = "nvidia.com/"
"""Before the names of all resources that NVIDIA's plugins and Purser's offer, renamed ones and MIG's included."""


class DeviceHolder(msgspec.Struct, frozen=True, order=True):
    """A container that holds a device."""

    namespace: str
    pod: str
    container: str


DeviceHolders = Mapping[str, tuple[DeviceHolder, ...]]
"""By uuid of the GPU or MIG device."""


def holders_of(listing: Iterable[api_pb2.PodResources], ended: frozenset[str] = frozenset()) -> DeviceHolders:
    """Who holds what. ``ended`` are keys of pods that are over: some kubelets list them still."""
    found: dict[str, set[DeviceHolder]] = {}
    for pod in listing:
        if f"{pod.namespace}/{pod.name}" in ended:
            continue
        for container in pod.containers:
            for devices in container.devices:
                if devices.resource_name.startswith(RESOURCE_PREFIX):
                    holder = DeviceHolder(pod.namespace, pod.name, container.name)
                    for device_id in devices.device_ids:
                        found.setdefault(uuid_of(device_id), set()).add(holder)
    return {uuid: tuple(sorted(its)) for uuid, its in found.items()}


def holders_in_book(pods: Iterable[BookedPod]) -> DeviceHolders:
    """Who holds what by the agent's book."""
    found: dict[str, set[DeviceHolder]] = {}
    for pod in pods:
        for name in pod.containers:
            part = pod.grant.of(name)
            for uuid in part.uuids if part is not None else ():
                found.setdefault(uuid, set()).add(DeviceHolder(pod.grant.namespace, pod.grant.pod, name))
    return {uuid: tuple(sorted(its)) for uuid, its in found.items()}


def sole_holder(holders: Iterable[DeviceHolder]) -> dict[str, str]:
    """Labels of the exclusive holder of a device: a container, or a pod with several of its containers. Empty: none, or
    several pods."""
    found = tuple(holders)
    if len({(each.namespace, each.pod) for each in found}) != 1:
        return {}
    container = {"container": found[0].container} if len(found) == 1 else {}
    return {"pod": found[0].pod, "namespace": found[0].namespace, **container}
