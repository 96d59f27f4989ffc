"""A node as the kernel's values: its GPUs, and what it has beside them."""

from collections.abc import Iterator, Sequence

import msgspec

from purser.core.decoding import JsonReader, UnreadableError, brief
from purser.core.device.limits import exceeded_limits
from purser.core.device.resources import is_gpu_resource
from purser.core.fleet.free_resources import MANY, FreeResources
from purser.core.kubelet.masks import MAX_NUMA_NODE
from purser.core.kubernetes.quantities import quantity_ceil, quantity_mib, quantity_milli
from purser.core.model import DeviceMode, Enforcement, NodeInventory
from purser.core.names import CORDON_ANNOTATIONS, INVENTORY_ANNOTATION
from purser.core.node.cordons import cordoned_gpus
from purser.core.vendors import hami_nodes
from purser.core.vendors.family import DeviceFamily
from purser.core.vendors.register_texts import RegisterError
from purser.core.vendors.registration import VendorDevices, vendor_devices
from purser.core.wording import counted
from purser.kube.objects import Node

MAX_INVENTORY_BYTES = 256 * 1024
"""As much as the API server lets all annotations of one object have."""

_inventory_reader = JsonReader(NodeInventory, f"annotation {INVENTORY_ANNOTATION}", max_bytes=MAX_INVENTORY_BYTES)


class InventoryError(ValueError):
    """A node's inventory annotation that makes no sense; the message names the field."""


DEVICE_ANNOTATIONS = (
    INVENTORY_ANNOTATION,
    hami_nodes.REGISTER_ANNOTATION,
    *CORDON_ANNOTATIONS,
)
"""All of a node's that say which GPUs it has for pods; other vendors' plugins have annotations of their own."""


def inventory_of(node: Node, families: Sequence[DeviceFamily] = ()) -> NodeInventory | None:
    """The inventory that a node's agent published or HAMi's device plugin registered, and devices of these families of
    other vendors, with the devices that people have cordoned; None where there is neither. Raises `InventoryError`."""
    own = own_inventory(node)
    return joined_inventory(node, own, devices_of_other_plugins(node, own, families))


def own_inventory(node: Node, problems: list[str] | None = None) -> NodeInventory | None:
    """What of it is NVIDIA's. ``problems`` takes a sentence for each GPU that is left out. Raises `InventoryError`."""
    return hami_inventory(node, problems) or published_inventory(node)


def joined_inventory(node: Node, own: NodeInventory | None, others: VendorDevices) -> NodeInventory | None:
    """A node's GPUs with what it has beside them; None where there is neither."""
    if not others.devices:
        return own
    if own is None:
        return NodeInventory(node.metadata.name, others.devices, cordoned=cordoned_gpus(node.metadata.annotations))
    return msgspec.structs.replace(own, devices=(*own.devices, *others.devices))


def hami_inventory(node: Node, problems: list[str] | None = None) -> NodeInventory | None:
    """The GPUs that HAMi's device plugin serves on a node; None where it does not serve it. ``problems`` takes a
    sentence for each that makes no sense and is left out. Raises `InventoryError`.

    An agent that serves a node publishes healthy GPUs; one that leaves says so first. What HAMi's plugin registered
    before such an agent came counts for nothing, also where an older agent did not replace it.
    """
    text = node.metadata.annotations.get(hami_nodes.REGISTER_ANNOTATION)
    if text is None:
        return None
    malformed: list[str] = []
    try:
        gpus = hami_nodes.read_gpus(text, malformed)
        if not hami_nodes.is_served_by_plugin(gpus) or _is_served(published_inventory(node)):
            return None
        devices = hami_nodes.devices(gpus, node.status.allocatable, malformed)
    except (RegisterError, UnreadableError) as error:
        raise InventoryError(brief(f"annotation {hami_nodes.REGISTER_ANNOTATION}: {error}")) from error
    if problems is not None:
        problems += (brief(f"annotation {hami_nodes.REGISTER_ANNOTATION}: {each}") for each in malformed)
    return NodeInventory(node.metadata.name, devices, cordoned=cordoned_gpus(node.metadata.annotations))


def hami_gpus(node: Node) -> frozenset[str]:
    """The uuids of all GPUs that HAMi's device plugin registered, those in its MIG mode as well; none where that cannot
    be read."""
    try:
        return frozenset(
            gpu.id for gpu in hami_nodes.read_gpus(node.metadata.annotations[hami_nodes.REGISTER_ANNOTATION])
        )
    except (KeyError, RegisterError, UnreadableError):
        return frozenset()


def _is_served(published: NodeInventory | None) -> bool:
    return published is not None and any(device.healthy for device in published.devices)


def devices_of_other_plugins(node: Node, own: NodeInventory | None, families: Sequence[DeviceFamily]) -> VendorDevices:
    """What the device plugins of these families say of a node, beside its GPUs."""
    status, metadata = node.status, node.metadata
    uuids = () if own is None else {device.uuid for device in own.devices}
    amounts = status.capacity, status.allocatable
    return vendor_devices(families, metadata.name, metadata.annotations, *amounts, uuids, metadata.labels)


def published_inventory(node: Node) -> NodeInventory | None:
    """The inventory that a node's agent published, with the GPUs that people have cordoned; None where none did.
    Raises `InventoryError`."""
    text = node.metadata.annotations.get(INVENTORY_ANNOTATION)
    if text is None:
        return None
    inventory = _decode_inventory(text)
    _check_inventory(inventory, node.metadata.name)
    return msgspec.structs.replace(
        _with_device_enforcement(inventory), cordoned=cordoned_gpus(node.metadata.annotations)
    )


def allocatable(node: Node) -> FreeResources:
    """What a node has for pods; what it does not name is not limited. Raises `QuantityError`."""
    amounts = node.status.allocatable
    return FreeResources(
        _capped(quantity_milli(amounts["cpu"])) if "cpu" in amounts else MANY,
        _capped(quantity_mib(amounts["memory"])) if "memory" in amounts else MANY,
        _capped(quantity_ceil(amounts["pods"])) if "pods" in amounts else MANY,
    )


def _capped(amount: int) -> int:
    return max(0, min(amount, MANY))


def _decode_inventory(text: str) -> NodeInventory:
    try:
        return _inventory_reader.read(text)
    except UnreadableError as error:
        raise InventoryError(str(error)) from error


def _with_device_enforcement(inventory: NodeInventory) -> NodeInventory:
    """What agents of before devices had their own word say of all of them."""
    word = inventory.enforcement
    if word is Enforcement.NONE:
        return inventory
    replace = msgspec.structs.replace
    devices = tuple(
        replace(each, enforcement=word) if each.enforcement is Enforcement.NONE else each for each in inventory.devices
    )
    return replace(inventory, devices=devices)


def _check_inventory(inventory: NodeInventory, node: str) -> None:
    for problem in _problems(inventory, node):
        raise InventoryError(brief(f"annotation {INVENTORY_ANNOTATION} {problem}"))


def _problems(inventory: NodeInventory, node: str) -> Iterator[str]:
    if inventory.node != node:
        yield f"is for node {inventory.node!r}, not for {node!r}"
    yield from exceeded_limits(inventory)
    if len({device.uuid for device in inventory.devices}) < len(inventory.devices):
        yield "lists a device twice"
    for device in inventory.devices:
        if not device.uuid:
            yield "lists a device without a UUID"
        if device.replicas not in (1, device.slots):
            replicas, slots = counted(device.replicas, "replica"), counted(device.slots, "slot")
            yield f"lists device {device.uuid!r} with {replicas} but {slots}"
        if device.mig_kind and device.replicas > 1:
            yield f"says that device {device.uuid!r} is partitioned on demand, but gives it {device.replicas} replicas"
        if device.mig_kind and device.mode is not DeviceMode.MIG:
            mode = f"its mode is {device.mode}, not {DeviceMode.MIG}"
            yield f"says that device {device.uuid!r} is partitioned on demand, but {mode}"
        if not is_gpu_resource(device.resource):
            yield f"lists device {device.uuid!r} as {device.resource!r}, which is not a GPU resource"
    if len({pool.resource for pool in inventory.pools}) < len(inventory.pools):
        yield "lists a pool twice"
    for pool in inventory.pools:
        if is_gpu_resource(pool.resource):
            yield f"has pool {pool.resource!r}, which is a GPU resource"
        if len({place.id for place in pool.places}) < len(pool.places):
            yield f"lists a device of pool {pool.resource!r} twice"
        if any(place.numa_node is not None and not 0 <= place.numa_node <= MAX_NUMA_NODE for place in pool.places):
            yield (
                f"has pool {pool.resource!r} on a NUMA node that cannot exist: NUMA nodes range from 0 to "
                f"{MAX_NUMA_NODE}"
            )
