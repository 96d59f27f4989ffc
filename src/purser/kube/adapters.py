"""From Kubernetes' objects to the kernel's values.

Here and nowhere else is known where in a Pod or Node the kernel finds what it reads.
"""

from collections.abc import Iterator

from purser.core.decoding import JsonReader, UnreadableError, brief
from purser.core.fleet.room import MANY, NodeRoom
from purser.core.model import ContainerKind, Grant, GrantState, NodeInventory, PodRequest
from purser.core.names import GPU_RESOURCE, INVENTORY_ANNOTATION
from purser.core.podspec import ContainerSpec, PodManifest
from purser.core.quantities import QuantityLike, quantity_ceil, quantity_mib, quantity_milli
from purser.kube.objects import Container, Node, ObjectReference, OwnerReference, Pod
from purser.kube.resources import pod_ref

MAX_INVENTORY_BYTES = 256 * 1024
"""As much as the API server lets all annotations of one object have."""

MAX_DEVICES = 256
"""On one node: 32 cards cut into 7 MIG devices each are fewer. One node's number is every node's column."""

MAX_SLOTS = 1000
"""Of one device."""

MAX_NUMA_NODE = 1023
"""The largest number that Linux can be built for."""

_inventories = JsonReader(NodeInventory, f"annotation {INVENTORY_ANNOTATION}", max_bytes=MAX_INVENTORY_BYTES)


class InventoryError(ValueError):
    """A node's inventory annotation that makes no sense; the message names the field."""


def pod_spec(pod: Pod) -> PodManifest:
    """What dialects read of a pod, its containers in kubelet's order."""
    return PodManifest(
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
        node_selector=pod.spec.node_selector,
        scheduler_name=pod.spec.scheduler_name,
        overhead=_quantities(pod.spec.overhead),
        ephemeral=tuple(container_spec(container, ContainerKind.APP) for container in pod.spec.ephemeral_containers),
        volumes=pod.spec.volumes,
        host_pid=pod.spec.host_pid,
    )


def container_spec(container: Container, kind: ContainerKind) -> ContainerSpec:
    """What dialects read of one container."""
    return ContainerSpec(
        name=container.name,
        kind=kind,
        limits=_quantities(container.resources.limits),
        requests=_quantities(container.resources.requests),
        privileged=container.security_context.privileged,
        capabilities=container.security_context.capabilities.add,
        env=container.env,
        env_from=container.env_from,
        mounts=container.volume_mounts,
        block_devices=container.volume_devices,
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
        _at_most_many(quantity_milli(amounts["cpu"])) if "cpu" in amounts else MANY,
        _at_most_many(quantity_mib(amounts["memory"])) if "memory" in amounts else MANY,
        _at_most_many(quantity_ceil(amounts["pods"])) if "pods" in amounts else MANY,
    )


def devices_asked(pod: Pod) -> dict[str, int]:
    """How many of kubelet's devices each container of a pod asks for; only those that ask.

    Whoever writes other words for GPUs alone is given none by kubelet, whatever the words mean to a scheduler.
    """
    counts = {each.name: _devices_asked(each) for each in (*pod.spec.init_containers, *pod.spec.containers)}
    return {name: count for name, count in counts.items() if count}


def _devices_asked(container: Container) -> int:
    try:
        return quantity_ceil(container.resources.limits.get(GPU_RESOURCE, 0))
    except ValueError:  # the API server does not let this in
        return 0


def is_terminal(pod: Pod) -> bool:
    """Whether the pod has ended for good, so that it holds no devices any more."""
    return pod.status.phase in ("Succeeded", "Failed")


def has_started(pod: Pod) -> bool:
    """Whether kubelet has taken the pod: before that it holds no devices."""
    return bool(pod.status.start_time) or pod.status.phase == "Running"


def ref_of_grant(grant: Grant) -> ObjectReference:
    """The pod that a grant is of."""
    return pod_ref(grant.namespace, grant.pod, grant.pod_uid)


def ref_of_request(request: PodRequest) -> ObjectReference:
    """The pod that asks for this."""
    return pod_ref(request.namespace, request.name, request.uid)


def controller_of(pod: Pod) -> OwnerReference | None:
    """Who makes a pod anew that goes; None: nobody does."""
    return next((owner for owner in pod.metadata.owner_references if owner.controller), None)


def grant_state(pod: Pod) -> GrantState:
    """How far the grant of a bound pod is."""
    return GrantState.RUNNING if pod.status.phase == "Running" else GrantState.BOUND


def _at_most_many(amount: int) -> int:
    return max(0, min(amount, MANY))


def _init_kind(container: Container) -> ContainerKind:
    return ContainerKind.SIDECAR if container.restart_policy == "Always" else ContainerKind.INIT


def _quantities(amounts: dict[str, QuantityLike]) -> dict[str, str]:
    return {resource: str(amount) for resource, amount in amounts.items()}


def _decode_inventory(text: str) -> NodeInventory:
    try:
        return _inventories.read(text)
    except UnreadableError as error:
        raise InventoryError(str(error)) from error


def _check_inventory(inventory: NodeInventory, node: str) -> None:
    for problem in _problems(inventory, node):
        raise InventoryError(brief(f"annotation {INVENTORY_ANNOTATION} {problem}"))


def _problems(inventory: NodeInventory, node: str) -> Iterator[str]:
    if inventory.node != node:
        yield f"is that of node {inventory.node!r}, not of {node!r}"
    if len(inventory.devices) > MAX_DEVICES:
        yield f"names {len(inventory.devices)} devices: {MAX_DEVICES} are the most"
    if len({device.uuid for device in inventory.devices}) < len(inventory.devices):
        yield "names one device twice"
    for device in inventory.devices:
        if not device.uuid:
            yield "names a device without a uuid"
        if device.slots > MAX_SLOTS:
            yield f"gives device {device.uuid!r} {device.slots} slots: {MAX_SLOTS} are the most"
        if any(not 0 <= number <= MAX_NUMA_NODE for number in device.numa_nodes):
            yield f"has device {device.uuid!r} on a NUMA node that there is none of: they go from 0 to {MAX_NUMA_NODE}"
