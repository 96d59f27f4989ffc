"""What another scheduler has given a pod, as a grant of Purser's. Pure."""

from collections.abc import Collection

import msgspec

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
from purser.core.placement.granted import Placement, to_grant
from purser.core.wording import counted


class AdoptionError(ValueError):
    """What the pod was given is not what it asks for, or is not there; the message says what."""


def adopted_grant(request: PodRequest, given: Grant, inventory: NodeInventory) -> Grant:
    """The devices that the other scheduler chose, with the amounts that the pod asks for.

    Annotations may be anybody's: only which devices is taken from them. Whether there is room is the ledger's to say.
    Raises `AdoptionError`.
    """
    devices = {device.uuid: device for device in inventory.devices}
    names = {part.container for part in given.containers}
    container_names = {container.name for container in request.containers}
    if names != container_names:
        raise AdoptionError(f"GPUs were assigned to {_named(names)}, but requested by {_named(container_names)}")
    parts = tuple(_part(container, given.of(container.name), devices, inventory) for container in request.containers)
    return to_grant(Placement(given.node, parts), request, inventory)


def _named(containers: Collection[str]) -> str:
    if not containers:
        return "no container"
    return f"{'container' if len(containers) == 1 else 'containers'} {', '.join(sorted(containers))}"


def raised_to_request(given: Grant, request: PodRequest, inventory: NodeInventory) -> Grant:
    """What another scheduler recorded, and no less of any GPU than the pod asks for: its author may change records."""
    devices = {device.uuid: device for device in inventory.devices}
    asked = {container.name: container.devices for container in request.containers}
    parts = tuple(
        msgspec.structs.replace(
            part,
            shares=tuple(
                _raise_share(share, asked.get(part.container), devices.get(share.uuid)) for share in part.shares
            ),
        )
        for part in given.containers
    )
    return msgspec.structs.replace(given, containers=parts)


def _raise_share(share: DeviceShare, asked: DeviceRequest | None, device: Device | None) -> DeviceShare:
    if asked is None:
        return share
    memory_mib = max(share.memory_mib, _memory_mib(asked, 0 if device is None else device.memory_mib))
    return DeviceShare(share.uuid, memory_mib, max(share.cores_percent, asked.cores_percent))


def _memory_mib(asked: DeviceRequest, total_mib: int) -> int:
    return asked.memory_mib if asked.memory_mib is not None else total_mib * (asked.memory_percent or 0) // 100


def _part(
    container: ContainerRequest, given: ContainerGrant | None, devices: dict[str, Device], inventory: NodeInventory
) -> ContainerGrant:
    asked, uuids = container.devices, () if given is None else given.uuids
    if len(uuids) != asked.count:
        raise AdoptionError(
            f'container "{container.name}" asks for {counted(asked.count, "GPU")} but was given {len(uuids)}'
        )
    if len(set(uuids)) < len(uuids):
        raise AdoptionError(f'container "{container.name}" was given the same GPU twice')
    shares = tuple(_share(uuid, asked, devices.get(uuid), inventory) for uuid in uuids)
    return ContainerGrant(container.name, container.kind, shares)


def _share(uuid: str, asked: DeviceRequest, device: Device | None, inventory: NodeInventory) -> DeviceShare:
    if device is None:
        raise AdoptionError(f"the node has no GPU {uuid[:64]}")
    if obstacle := _obstacle(device, asked, inventory):
        raise AdoptionError(f"GPU {uuid} {obstacle}")
    return DeviceShare(uuid, _memory_mib(asked, device.memory_mib), asked.cores_percent)


def _obstacle(device: Device, asked: DeviceRequest, inventory: NodeInventory) -> str:
    """Why the pod cannot have a device that another scheduler chose, to follow its name; empty: it can."""
    if device.resource != asked.resource:
        return f"is listed as {device.resource}, but the pod asks for {asked.resource}"
    if device.mig_kind:
        return "is partitioned on demand, so only Purser can choose a GPU instance on it"
    if device.replicas > 1:
        return "is divided into replicas, of which only Purser can choose one"
    if not device.healthy:
        return "is unhealthy"
    if device.uuid in inventory.cordoned:
        return "is cordoned"
    return "is excluded by the pod's annotations" if asked.excludes(device.uuid) else ""
