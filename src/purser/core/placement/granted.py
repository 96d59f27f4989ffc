"""What a pod gets on a node once that is decided: by positions of devices, as devices, as the grant of the ledger."""

from collections.abc import Mapping

import msgspec

from purser.core.fleet import NodeState
from purser.core.grant.enforcement import enforcement_of
from purser.core.mig.on_demand import instance_share, kind_of
from purser.core.model import (
    ContainerGrant,
    Device,
    DeviceRequest,
    DeviceShare,
    Enforcement,
    GpuNic,
    Grant,
    MigPlacement,
    NodeInventory,
    PodRequest,
    PoolShare,
    SpecHold,
)
from purser.core.placement.numbering import with_core_numbers
from purser.core.placement.shape import share_of

Positions = tuple[int, ...]


class DeviceAssignment(msgspec.Struct, frozen=True, gc=False):
    """A pod fits: by positions of devices, so that it holds for every node in an equal state. The position of a device
    that is divided is there once for each part."""

    choice: tuple[Positions, ...]
    """For each container of the request the positions of its devices, in the order in which it sees them."""
    instances: tuple[tuple[MigPlacement | None, ...], ...]
    """For each of these what it gets of a GPU that is cut on demand; None of others."""
    pools: tuple[PoolShare, ...] = ()
    """Where its network devices come from, by places that nodes in an equal state have alike."""
    pairs: int = 0
    """How many of its GPUs have one of these under the same PCIe switch."""


class Placement(msgspec.Struct, frozen=True):
    """What a pod would hold on a node."""

    node: str
    containers: tuple[ContainerGrant, ...]
    """How they are enforced is not decided yet, see `to_grant`."""
    pools: tuple[PoolShare, ...] = ()
    """Of SR-IOV pools."""


def placement_of(node: NodeState, request: PodRequest, fit: DeviceAssignment) -> Placement:
    """A verdict made concrete for one of the nodes it holds for."""
    containers = tuple(
        ContainerGrant(
            container.name,
            container.kind,
            tuple(
                granted_share(node.devices[place].device, container.devices, instance)
                for place, instance in zip(positions, instances, strict=True)
            ),
        )
        for container, positions, instances in zip(request.containers, fit.choice, fit.instances, strict=True)
    )
    if any(state.device.cores for state in node.devices):
        containers = with_core_numbers(node.devices, containers)
    return Placement(node.name, containers, fit.pools)


def granted_share(device: Device, asked: DeviceRequest, instance: MigPlacement | None) -> DeviceShare:
    """What a container gets of a device; ``instance``: of one that is cut on demand."""
    kind = None if instance is None else kind_of(device)
    profile = None if instance is None or kind is None else kind.profile(instance.profile)
    if profile is None:
        return share_of(device, asked)
    return msgspec.structs.replace(instance_share(device, profile), mig=instance)


def to_grant(placement: Placement, request: PodRequest, inventory: NodeInventory) -> Grant:
    """The grant of a placed pod; it says what will hold each container, not what one would wish for."""
    holds = {container.name: container.hold for container in request.containers}
    of_devices = {device.uuid: device.enforcement for device in inventory.devices}
    parts = tuple(_part(container, holds[container.container], of_devices) for container in placement.containers)
    required = any(container.devices.held_by for container in request.containers)
    pairs_required = bool(placement.pools) and request.gpu_nic is GpuNic.REQUIRED
    whose = (request.uid, request.namespace, request.name, placement.node)
    return Grant(*whose, parts, required, placement.pools, pairs_required)


def _part(part: ContainerGrant, hold: SpecHold, of_devices: Mapping[str, Enforcement]) -> ContainerGrant:
    words = [of_devices[uuid] for uuid in part.uuids]
    return msgspec.structs.replace(part, enforcement=enforcement_of(part, hold, words))
