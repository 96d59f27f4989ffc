"""Which GPUs of a node Volcano's scheduler chose for a pod, by the annotations that its Binding brings.

Facts are those of Volcano 1.14 (``pkg/scheduler/api/devices/nvidia``): ``gpushare`` writes indices of the node's GPUs,
one for memory and all containers of the pod, several for GPUs by number, in any order; ``vgpu`` writes uuids, for the
containers that ask and for no others. Volcano counts the GPUs of a node from 0 without gaps, so that an index may mean
no GPU, or another one: it is a wish.
"""

import re
from collections.abc import Iterator

from purser.core.dialects.volcano import GPU_INDEX
from purser.core.dialects.volcano_codec import decode_vgpu_devices
from purser.core.dialects.volcano_vgpu import VGPU_IDS, VGPU_NODE
from purser.core.model import ContainerGrant, ContainerKind, DeviceShare, Grant, NodeInventory, PodRequest
from purser.core.pod.manifest import PodManifest

_INDICES = re.compile(r"[0-9]{1,4}(?:,[0-9]{1,4}){0,255}", re.ASCII)


def chosen_grant(pod: PodManifest, request: PodRequest, inventory: NodeInventory) -> Grant | None:
    """The GPUs by container, without amounts; None where nothing is written that can be read."""
    annotations = pod.annotations
    if annotations.get(VGPU_NODE) == inventory.node:
        chosen = _by_uuid(annotations.get(VGPU_IDS, ""), request)
    else:
        chosen = _by_index(annotations.get(GPU_INDEX, ""), request, inventory)
    parts = tuple(
        ContainerGrant(each.name, each.kind, tuple(DeviceShare(uuid, 0, 0) for uuid in uuids))
        for each, uuids in zip(request.containers, chosen, strict=False)
    )
    whole = len(parts) == len(request.containers) and all(part.shares for part in parts)
    return Grant(request.uid, request.namespace, request.name, inventory.node, parts) if whole else None


def _by_uuid(text: str, request: PodRequest) -> list[list[str]]:
    """Volcano knows no init containers."""
    if any(each.kind is not ContainerKind.APP for each in request.containers):
        return []
    return [[device.uuid for device in devices] for devices in decode_vgpu_devices(text) if devices]


def _by_index(text: str, request: PodRequest, inventory: NodeInventory) -> list[list[str]]:
    uuids = {device.index: device.uuid for device in inventory.devices}
    indices = [int(each) for each in text.split(",")] if _INDICES.fullmatch(text) else []
    chosen = [uuids[index] for index in indices if index in uuids]
    return list(_split_by_container(chosen, request)) if chosen else []


def _split_by_container(chosen: list[str], request: PodRequest) -> Iterator[list[str]]:
    """One GPU is for all containers. Of several, init containers have the first, and the others have theirs alone."""
    rest = iter(chosen)
    for container in request.containers:
        count = container.devices.count
        if len(chosen) == 1 or container.kind is ContainerKind.INIT:
            yield chosen[:count]
        else:
            yield [uuid for uuid, _ in zip(rest, range(count), strict=False)]
