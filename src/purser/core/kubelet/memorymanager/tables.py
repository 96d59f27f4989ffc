"""Bytes on NUMA nodes: taken from one node after the other of a mask, and given back the same way."""

from collections.abc import Mapping

from msgspec.structs import replace

from purser.core.kubelet.masks import Mask, nodes_of
from purser.core.kubelet.memorymanager.asked import Amounts
from purser.core.kubelet.state import MemoryBlock, MemoryNode, MemoryTable

Nodes = Mapping[int, MemoryNode]


def free_bytes(nodes: Nodes, mask: Mask, resource: str) -> int:
    """Free bytes on the nodes of a mask."""
    return sum(table.free for table in _tables(nodes, mask, resource))


def allocatable_bytes(nodes: Nodes, mask: Mask, resource: str) -> int:
    """Bytes on the nodes of a mask that pods may have, free or not."""
    return sum(table.allocatable for table in _tables(nodes, mask, resource))


def has_free(nodes: Nodes, mask: Mask, asked: Amounts) -> bool:
    """Whether as much is free on the nodes of a mask (isAffinitySatisfyRequest)."""
    return all(free_bytes(nodes, mask, resource) >= size for resource, size in asked.items())


def _tables(nodes: Nodes, mask: Mask, resource: str) -> list[MemoryTable]:
    """A node without the resource counts as having none of it; kubelet dereferences nil there and crashes."""
    found = (nodes[number].tables.get(resource) for number in nodes_of(mask) if number in nodes)
    return [table for table in found if table is not None]


def assign(nodes: Nodes, block: MemoryBlock, new_bytes: int) -> Nodes:
    """The nodes once a block is theirs and ``new_bytes`` of it were taken: every node of the mask counts one more
    assignment and belongs to the mask's group, the lowest nodes are emptied first (updateMachineState)."""
    changed = dict(nodes)
    for number in nodes_of(block.nodes):
        node = nodes[number]
        taken = min(new_bytes, node.tables[block.resource].free) if block.resource in node.tables else 0
        new_bytes -= taken
        changed[number] = replace(
            _reserve_bytes(node, block.resource, taken), group=block.nodes, assignments=node.assignments + 1
        )
    return changed


def release(nodes: Nodes, block: MemoryBlock) -> Nodes:
    """The nodes once a block is given back (RemoveContainer): the lowest nodes get theirs first, and a node without
    any assignment leaves its group."""
    changed = dict(nodes)
    left = block.size
    for number in nodes_of(block.nodes):
        node = nodes[number]
        given = min(left, node.tables[block.resource].reserved) if block.resource in node.tables else 0
        left -= given
        assignments = node.assignments - 1
        changed[number] = replace(
            _reserve_bytes(node, block.resource, -given),
            group=node.group if assignments else 1 << number,
            assignments=assignments,
        )
    return changed


def _reserve_bytes(node: MemoryNode, resource: str, size: int) -> MemoryNode:
    """A node with so many bytes moved from free to reserved."""
    if not size:
        return node
    table = node.tables[resource]
    moved = replace(table, reserved=table.reserved + size, free=table.free - size)
    return replace(node, tables={**node.tables, resource: moved})


def violates_groups(nodes: Nodes, mask: Mask) -> bool:
    """Whether an allocation over several nodes meets one that is used alone or by another group
    (isAffinityViolatingNUMAAllocations). kubelet never objects to a single node here, also not to one in a group."""
    if mask.bit_count() == 1:
        return False
    return any(nodes[number].assignments and nodes[number].group != mask for number in nodes_of(mask))
