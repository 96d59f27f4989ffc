"""Whether the parts of a report fit together, and whether what they make can be reckoned with in little time.

Any node may write anything about itself, and whoever predicts must neither fail on it nor be kept busy by it.
"""

from collections.abc import Iterator

from purser.core.kubelet.cpuset import format_cpuset
from purser.core.kubelet.machine import Machine
from purser.core.kubelet.masks import Mask, mask_of, nodes_of
from purser.core.kubelet.report.format import ReportError
from purser.core.kubelet.state import CpuState, MemoryBlock, MemoryNode, MemoryState, Node, NodeState

MOST_COMBINED = 10
"""NUMA nodes with CPUs, and with memory, of which all sets are looked at. kubelet's own limit is 8 by default."""


def check_coherence(node: Node, state: NodeState) -> None:
    """Raises `ReportError` for what no kubelet reports, and for machines too large to predict."""
    for problem in _problems(node, state):
        raise ReportError(f"a kubelet report that does not fit together: {problem}")


def _problems(node: Node, state: NodeState) -> Iterator[str]:
    yield from _of_machine(node.machine)
    if state.cpus is not None:
        yield from _of_cpus(node.machine, state.cpus)
    if state.memory is not None:
        yield from _of_memory(node.machine, state.memory)


def _of_machine(machine: Machine) -> Iterator[str]:
    numbers = [numa.node for numa in machine.numa_nodes]
    if numbers != sorted(set(numbers)):
        yield f"NUMA nodes {numbers} are not ascending"
    if len({cpu.cpu for cpu in machine.cpus}) < len(machine.cpus):
        yield "a CPU is on two NUMA nodes"
    if strange := set(machine.cpus_by_numa) - set(numbers):
        yield f"CPUs are on NUMA nodes {sorted(strange)}, which the machine does not have"
    if len(machine.cpus_by_numa) > MOST_COMBINED:
        yield f"{len(machine.cpus_by_numa)} NUMA nodes have CPUs, {MOST_COMBINED} are the most that can be predicted"
    if any(0 < len(numa.distances) <= max(numbers) for numa in machine.numa_nodes):
        yield "distances are not given to all NUMA nodes"


def _of_cpus(machine: Machine, cpus: CpuState) -> Iterator[str]:
    """That a CPU is held twice is no problem: containers hold on to those of their pod's init containers, and older
    kubelets share them again once these are gone."""
    named = cpus.default | cpus.reserved
    for exclusive in cpus.exclusive.values():
        named |= exclusive
    if strange := named & ~machine.all_cpus:
        yield f"the machine has no CPUs {format_cpuset(strange)}"


def _of_memory(machine: Machine, memory: MemoryState) -> Iterator[str]:
    known = mask_of(memory.nodes)
    if known & ~machine.nodes_mask:
        yield f"memory is on NUMA nodes {list(nodes_of(known & ~machine.nodes_mask))}, which the machine does not have"
    for number, node in memory.nodes.items():
        if node.group & ~known or not node.group >> number & 1:
            yield f"NUMA node {number} cannot be in a group with {list(nodes_of(node.group))}"
        if any(min(t.total, t.system_reserved, t.allocatable, t.reserved, t.free) < 0 for t in node.tables.values()):
            yield f"NUMA node {number} has less than no memory"
    if any(not block.nodes or block.nodes & ~known for block in _blocks(memory)):
        yield "memory is held on no NUMA node, or on one that has none"
    if any(block.size < 0 for block in _blocks(memory)):
        yield "less than no memory is held"
    counting: Mask = mask_of(number for number, node in memory.nodes.items() if _counts(node))
    if counting.bit_count() > MOST_COMBINED:
        yield f"{counting.bit_count()} NUMA nodes have memory, {MOST_COMBINED} are the most that can be predicted"


def _counts(node: MemoryNode) -> bool:
    return node.assignments != 0 or any(table.allocatable for table in node.tables.values())


def _blocks(memory: MemoryState) -> Iterator[MemoryBlock]:
    return (block for of_container in memory.blocks.values() for block in of_container)
