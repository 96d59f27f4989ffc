"""Shares of cards near the CPUs and the memory of their container.

kubelet is told no NUMA node of shared cards (`purser.core.device.ids.told_numa_nodes`), so it aligns CPUs and memory
alone. Where it will put these is known, and a share is taken there when there is one.
"""

from msgspec.structs import replace

from purser.core.fleet import NodeState
from purser.core.kubelet.masks import mask_of
from purser.core.kubelet.state import KubeletState as KubeletState
from purser.core.model import ContainerRequest, PodRequest
from purser.core.names import GPU_RESOURCE
from purser.core.placement.foresight import Granted


def nearer(node: NodeState, request: PodRequest, granted: Granted, after: KubeletState | None) -> PodRequest | None:
    """The request for devices nearer to where kubelet will put the pod that holds these; None where they are near.

    ``after`` is what kubelet holds once it has taken the pod with these; None: not known.
    """
    if after is None or _kubelet_aligns_cards(after):
        return None
    containers = tuple(_nearer(node, request.uid, each, after, granted) for each in request.containers)
    return None if containers == request.containers else replace(request, containers=containers)


def _kubelet_aligns_cards(state: KubeletState) -> bool:
    resource = state.devices.resources.get(GPU_RESOURCE)
    return resource is not None and any(device.numa_nodes for device in resource.devices.values())


def _nearer(
    node: NodeState, uid: str, container: ContainerRequest, after: KubeletState, granted: Granted
) -> ContainerRequest:
    hint = after.hints.get((uid, container.name))
    if hint is None or hint.mask is None:
        return container
    cards = (state.device for state in node.devices)
    near = {card.uuid for card in cards if not card.numa_nodes or mask_of(card.numa_nodes) & hint.mask}
    if near.issuperset(granted.get(container.name, ())):
        return container
    allowed = near.intersection(container.devices.uuids_allowed or near)
    return replace(container, devices=replace(container.devices, uuids_allowed=tuple(sorted(allowed)) or ("none",)))
