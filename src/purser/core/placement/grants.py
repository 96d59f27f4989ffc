"""From a placement to the grant that goes on the book and on the pod."""

import msgspec

from purser.core.grant.enforcement import enforcement_of
from purser.core.model import ContainerGrant, Grant, LibraryHold, NodeInventory, PodRequest
from purser.core.placement.place import ContainerPlacement, Placement


def to_grant(placement: Placement, request: PodRequest, inventory: NodeInventory) -> Grant:
    """The grant of a placed pod; it says what will hold each container, not what one would wish for."""
    holds = {container.name: container.hold for container in request.containers}
    parts = tuple(_part(container, holds[container.container], inventory) for container in placement.containers)
    return Grant(request.uid, request.namespace, request.name, placement.node, parts)


def _part(container: ContainerPlacement, hold: LibraryHold, inventory: NodeInventory) -> ContainerGrant:
    part = ContainerGrant(container.container, container.kind, container.shares)
    return msgspec.structs.replace(part, enforcement=enforcement_of(part, hold, inventory.enforcement))
