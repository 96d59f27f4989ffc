"""A grant of Purser's for what another scheduler has given a pod. Pure."""

from purser.core.model import (
    ContainerGrant,
    ContainerRequest,
    Device,
    DeviceRequest,
    DeviceShare,
    Grant,
    NodeInventory,
    PodRequest,
)
from purser.core.placement.place import Placement, to_grant


class AdoptionError(ValueError):
    """What the pod was given is not what it asks for, or is not there; the message says what."""


def adopted_grant(request: PodRequest, given: Grant, inventory: NodeInventory) -> Grant:
    """The devices that the other scheduler chose, with the amounts that the pod asks for.

    Annotations may be anybody's: only which devices is taken from them. Whether there is room is the ledger's to say.
    Raises `AdoptionError`.
    """
    devices = {device.uuid: device for device in inventory.devices}
    names = {part.container for part in given.containers}
    if names != {container.name for container in request.containers}:
        raise AdoptionError(f"containers {', '.join(sorted(names))} were given GPUs, and others ask for some")
    parts = tuple(_part(container, given.of(container.name), devices, inventory) for container in request.containers)
    return to_grant(Placement(given.node, parts), request, inventory)


def _part(
    container: ContainerRequest, given: ContainerGrant | None, devices: dict[str, Device], inventory: NodeInventory
) -> ContainerGrant:
    asked, uuids = container.devices, () if given is None else given.uuids
    if len(uuids) != asked.count or len(set(uuids)) < len(uuids):
        raise AdoptionError(f'container "{container.name}" asks for {asked.count} GPUs and was given {len(uuids)}')
    shares = tuple(_share(uuid, asked, devices.get(uuid), inventory) for uuid in uuids)
    return ContainerGrant(container.name, container.kind, shares)


def _share(uuid: str, asked: DeviceRequest, device: Device | None, inventory: NodeInventory) -> DeviceShare:
    if device is None or device.resource != asked.resource or device.mig_kind or device.replicas > 1:
        raise AdoptionError(f"GPU {uuid[:64]} is none of which amounts can be had")
    if not device.healthy or uuid in inventory.cordoned or asked.excludes(uuid):
        raise AdoptionError(f"GPU {uuid} takes no such pod")
    percent = asked.memory_percent or 0
    memory_mib = asked.memory_mib if asked.memory_mib is not None else device.memory_mib * percent // 100
    return DeviceShare(uuid, memory_mib, asked.cores_percent)
