"""The memory manager's state when kubelet starts: made from the machine, or a saved one that still fits it."""

from collections.abc import Mapping

from purser.core.kubelet.errors import KubeletStartError
from purser.core.kubelet.machine import NumaNode
from purser.core.kubelet.masks import nodes_of
from purser.core.kubelet.memorymanager.tables import Nodes, assign
from purser.core.kubelet.pod import MEMORY
from purser.core.kubelet.state import KubeletNode, MemoryNode, MemoryState, MemoryTable


def start(node: KubeletNode, saved: MemoryState | None = None) -> MemoryState:
    """The state to go on with: ``saved`` (from memory_manager_state) where there is one, else an empty machine.

    Raises `KubeletStartError` with kubelet's message. Its check that reservedMemory adds up to systemReserved,
    kubeReserved and the hard eviction threshold is not here: `KubeletConfig` does not know these.
    """
    fresh = _initial_nodes(node)
    if saved is None or not saved.nodes:
        if saved is not None and saved.blocks:
            raise KubeletStartError("[memorymanager] machine state can not be empty when it has memory assignments")
        return MemoryState(fresh)
    if not _are_equal(saved.nodes, _expected_nodes(fresh, saved)):
        raise KubeletStartError("[memorymanager] the expected machine state is different from the real one")
    return saved


def _initial_nodes(node: KubeletNode) -> dict[int, MemoryNode]:
    reserved = node.config.reserved_memory
    numbers = {numa.node for numa in node.machine.numa_nodes}
    for number in sorted(reserved.keys() - numbers):
        raise KubeletStartError(
            f"the reserved memory configuration references a NUMA node {number} that does not exist on this machine"
        )
    if sum(amounts.get(MEMORY, 0) for amounts in reserved.values()) <= 0:
        raise KubeletStartError("[memorymanager] you should specify the system reserved memory")
    return {numa.node: _node(numa, reserved.get(numa.node, {})) for numa in node.machine.numa_nodes}


def _node(numa: NumaNode, reserved: Mapping[str, int]) -> MemoryNode:
    """An unused node (getDefaultMachineState): hugepages are not there to be had as regular memory."""
    hugepages = {name: size for name, size in numa.memory.items() if name != MEMORY}
    tables = {name: _memory_table(size, reserved.get(name, 0), 0) for name, size in hugepages.items()}
    tables[MEMORY] = _memory_table(numa.memory.get(MEMORY, 0), reserved.get(MEMORY, 0), sum(hugepages.values()))
    return MemoryNode(tables, group=1 << numa.node)


def _memory_table(total: int, reserved: int, elsewhere: int) -> MemoryTable:
    """Where more is reserved than there is, nothing is left; kubelet's unsigned count wraps around there."""
    allocatable = max(0, total - reserved - elsewhere)
    return MemoryTable(total=total, system_reserved=reserved, allocatable=allocatable, reserved=0, free=allocatable)


def _expected_nodes(fresh: Nodes, saved: MemoryState) -> Nodes:
    """What the machine would look like if the saved blocks were assigned now."""
    nodes = fresh
    for (pod, container), blocks in sorted(saved.blocks.items()):
        for block in blocks:
            where = f"[memorymanager] (pod: {pod}, container: {container}) the memory assignment uses"
            if any(number not in nodes for number in nodes_of(block.nodes)):
                raise KubeletStartError(f"{where} the NUMA that does not exist")
            if any(block.resource not in nodes[number].tables for number in nodes_of(block.nodes)):
                raise KubeletStartError(f"{where} memory resource that does not exist")
            nodes = assign(nodes, block, block.size)
    return nodes


def _are_equal(saved: Nodes, expected: Nodes) -> bool:
    """areMachineStatesEqual: free and reserved bytes only have to agree over each group, since their distribution
    within it depends on the order of events."""
    return saved.keys() == expected.keys() and all(
        saved[number].assignments == expected[number].assignments
        and saved[number].group == expected[number].group
        and _are_tables_equal(saved, expected, number)
        for number in saved
    )


def _are_tables_equal(saved: Nodes, expected: Nodes, number: int) -> bool:
    mine, theirs = saved[number].tables, expected[number].tables
    return mine.keys() == theirs.keys() and all(
        _hardware(mine[name]) == _hardware(theirs[name])
        and _used_bytes(saved, saved[number].group, name) == _used_bytes(expected, saved[number].group, name)
        for name in mine
    )


def _hardware(table: MemoryTable) -> tuple[int, int, int]:
    return table.total, table.system_reserved, table.allocatable


def _used_bytes(nodes: Nodes, group: int, resource: str) -> tuple[int, int]:
    tables = [nodes[n].tables[resource] for n in nodes_of(group) if n in nodes and resource in nodes[n].tables]
    return sum(table.free for table in tables), sum(table.reserved for table in tables)
