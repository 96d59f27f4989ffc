"""From a placement to the grant that goes on the book and on the pod."""

from purser.core.model import ContainerGrant, Enforcement, Grant, NodeInventory, PodRequest
from purser.core.placement.place import ContainerPlacement, Placement


def to_grant(placement: Placement, request: PodRequest, inventory: NodeInventory) -> Grant:
    """The grant of a placed pod; it says what its node can enforce, not what one would wish for."""
    parts = tuple(_part(container, inventory) for container in placement.containers)
    return Grant(request.uid, request.namespace, request.name, placement.node, parts)


def _part(container: ContainerPlacement, inventory: NodeInventory) -> ContainerGrant:
    alone = all(share.is_whole for share in container.shares)
    enforcement = Enforcement.WHOLE_DEVICE if alone else inventory.enforcement
    return ContainerGrant(container.container, container.kind, container.shares, enforcement)
