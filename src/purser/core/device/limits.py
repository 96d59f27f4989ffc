"""What a node may have at the most: more takes memory or time without end. Pure."""

from collections.abc import Iterator

from purser.core.device.ids import MAX_NODE_DEVICES, MAX_SLOTS
from purser.core.kubelet.masks import MAX_NUMA_NODE
from purser.core.model import NodeInventory


def exceeded_limits(inventory: NodeInventory) -> Iterator[str]:
    """What of an inventory is more, each as the rest of a sentence that begins with what the inventory was read of."""
    if len(inventory.devices) > MAX_NODE_DEVICES:
        yield f"lists {len(inventory.devices)} devices: the maximum is {MAX_NODE_DEVICES}"
    for device in inventory.devices:
        if device.slots > MAX_SLOTS:
            yield f"gives device {device.uuid!r} {device.slots} slots: the maximum is {MAX_SLOTS}"
        if any(not 0 <= number <= MAX_NUMA_NODE for number in device.numa_nodes):
            yield (
                f"has device {device.uuid!r} on a NUMA node that cannot exist: NUMA nodes range from 0 to "
                f"{MAX_NUMA_NODE}"
            )
