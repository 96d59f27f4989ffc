"""From Kubernetes' objects to the kernel's values.

Here and nowhere else is known where in a Pod or Node the kernel finds what it reads.
"""

import msgspec

from purser.core.fleet.room import MANY, NodeRoom
from purser.core.model import ContainerKind, GrantState, NodeInventory
from purser.core.names import INVENTORY_ANNOTATION
from purser.core.podspec import ContainerSpec, PodSpec
from purser.core.quantities import QuantityLike, quantity_ceil, quantity_mib, quantity_milli
from purser.kube.objects import Container, Node, Pod

MAX_INVENTORY_BYTES = 256 * 1024
"""As much as the API server lets all annotations of one object have."""

_inventories = msgspec.json.Decoder(NodeInventory)


class InventoryError(ValueError):
    """A node's inventory annotation that makes no sense; the message names the field."""


def pod_spec(pod: Pod) -> PodSpec:
    """What dialects read of a pod, its containers in kubelet's order."""
    return PodSpec(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        annotations=pod.metadata.annotations,
        containers=(
            *(container_spec(container, _init_kind(container)) for container in pod.spec.init_containers),
            *(container_spec(container, ContainerKind.APP) for container in pod.spec.containers),
        ),
        labels=pod.metadata.labels,
        priority=pod.spec.priority,
        node_name=pod.spec.node_name,
        scheduler_name=pod.spec.scheduler_name,
        overhead=_quantities(pod.spec.overhead),
    )


def container_spec(container: Container, kind: ContainerKind) -> ContainerSpec:
    """What dialects read of one container."""
    return ContainerSpec(
        name=container.name,
        kind=kind,
        limits=_quantities(container.resources.limits),
        requests=_quantities(container.resources.requests),
        privileged=container.security_context.privileged,
    )


def inventory_of(node: Node) -> NodeInventory | None:
    """The inventory that a node's agent published; None where none did. Raises `InventoryError`."""
    text = node.metadata.annotations.get(INVENTORY_ANNOTATION)
    if text is None:
        return None
    inventory = _decode_inventory(text)
    _check_inventory(inventory, node.metadata.name)
    return inventory


def allocatable(node: Node) -> NodeRoom:
    """What a node has for pods; what it does not name is not limited. Raises `QuantityError`."""
    amounts = node.status.allocatable
    return NodeRoom(
        quantity_milli(amounts["cpu"]) if "cpu" in amounts else MANY,
        quantity_mib(amounts["memory"]) if "memory" in amounts else MANY,
        quantity_ceil(amounts["pods"]) if "pods" in amounts else MANY,
    )


def is_terminal(pod: Pod) -> bool:
    """Whether the pod has ended for good, so that it holds no devices any more."""
    return pod.status.phase in ("Succeeded", "Failed")


def grant_state(pod: Pod) -> GrantState:
    """How far the grant of a bound pod is."""
    return GrantState.RUNNING if pod.status.phase == "Running" else GrantState.BOUND


def _init_kind(container: Container) -> ContainerKind:
    return ContainerKind.SIDECAR if container.restart_policy == "Always" else ContainerKind.INIT


def _quantities(amounts: dict[str, QuantityLike]) -> dict[str, str]:
    return {resource: str(amount) for resource, amount in amounts.items()}


def _decode_inventory(text: str) -> NodeInventory:
    if len(text) > MAX_INVENTORY_BYTES:
        raise InventoryError(f"annotation {INVENTORY_ANNOTATION} has more than {MAX_INVENTORY_BYTES} characters")
    try:
        return _inventories.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InventoryError(f"annotation {INVENTORY_ANNOTATION} is no inventory: {error}") from error


def _check_inventory(inventory: NodeInventory, node: str) -> None:
    if inventory.node != node:
        raise InventoryError(f"annotation {INVENTORY_ANNOTATION} is that of node {inventory.node!r}, not of {node!r}")
    uuids = [device.uuid for device in inventory.devices]
    if len(set(uuids)) < len(uuids):
        raise InventoryError(f"annotation {INVENTORY_ANNOTATION} names one device twice")
    for device in inventory.devices:
        if not device.uuid or device.memory_mib < 0 or device.cores_percent < 0 or device.slots < 0:
            raise InventoryError(
                f"annotation {INVENTORY_ANNOTATION}: device {device.uuid!r} needs a uuid and amounts of 0 or more"
            )
