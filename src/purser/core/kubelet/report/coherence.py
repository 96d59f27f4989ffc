"""Whether the parts of a report are consistent, and whether a prediction from it takes bounded time.

A node may write anything about itself, and a prediction must neither fail on it nor take long.
"""

from collections.abc import Iterator

from purser.core.kubelet.config import KubeletConfig, TopologyPolicy
from purser.core.kubelet.cpuset import format_cpuset
from purser.core.kubelet.machine import Machine
from purser.core.kubelet.masks import Mask, mask_of, nodes_of
from purser.core.kubelet.report.format import ReportError
from purser.core.kubelet.state import (
    CpuState,
    KubeletNode,
    KubeletState,
    MemoryBlock,
    MemoryNode,
    MemoryState,
    PluginResource,
)
from purser.core.kubelet.versions import behaviour

MAX_COMBINED = 10
"""NUMA nodes with CPUs, with memory, and with devices of one resource, of which all sets are looked at. kubelet's own
limit is 8 by default."""

MAX_PLACES = 64
"""Distinct sets of NUMA nodes at which the devices of one resource are: each is counted for every set looked at."""

MAX_PARTS = 256
"""Sockets, and uncore caches: CPUs are sought in each of one within each of the other. Virtual machines may have as
many sockets as CPUs."""

MAX_DISTANCE = 255
"""The largest distance between NUMA nodes: firmware has one byte for each (ACPI's SLIT)."""


def check_coherence(node: KubeletNode, state: KubeletState) -> None:
    """Raises `ReportError` for what no kubelet reports, and for machines too large to predict."""
    for problem in _problems(node, state):
        raise ReportError(f"inconsistent kubelet state: {problem}")


def _problems(node: KubeletNode, state: KubeletState) -> Iterator[str]:
    yield from _machine_problems(node.machine)
    if _needs_distances(node.config):
        yield from _distance_problems(node.machine)
    for name, resource in state.devices.resources.items():
        yield from _resource_problems(node.machine, name, resource)
    if state.cpus is not None:
        yield from _cpu_problems(node.machine, state.cpus)
    if state.memory is not None:
        yield from _memory_problems(node.machine, state.memory)


def _machine_problems(machine: Machine) -> Iterator[str]:
    numbers = [numa.node for numa in machine.numa_nodes]
    if numbers != sorted(set(numbers)):
        yield f"NUMA nodes {numbers} are not in strictly ascending order"
    if len({cpu.cpu for cpu in machine.cpus}) < len(machine.cpus):
        yield "a CPU is listed twice"
    if unknown := set(machine.cpus_by_numa) - set(numbers):
        yield f"CPUs are on NUMA nodes {sorted(unknown)}, which do not exist on the machine"
    if len(machine.cpus_by_numa) > MAX_COMBINED:
        yield f"{len(machine.cpus_by_numa)} NUMA nodes have CPUs, but at most {MAX_COMBINED} are supported"
    for name, parts in (("sockets", machine.cpus_by_socket), ("uncore caches", machine.cpus_by_uncore)):
        if len(parts) > MAX_PARTS:
            yield f"{len(parts)} {name}, but at most {MAX_PARTS} are supported"


def _needs_distances(config: KubeletConfig) -> bool:
    """Whether kubelet compares them (prefer-closest-numa-nodes)."""
    compares = config.topology_policy in (TopologyPolicy.BEST_EFFORT, TopologyPolicy.RESTRICTED)
    has_option = behaviour(config.parsed_version).has_policy_options
    return compares and has_option and config.topology_options.prefer_closest_numa_nodes


def _distance_problems(machine: Machine) -> Iterator[str]:
    """kubelet takes a node's number for its place in the list. Linux lists the nodes that are online: where numbers are
    missing kubelet reads another node's distance, or crashes."""
    rows = [numa.distances for numa in machine.numa_nodes if numa.distances]
    if any(len(row) < machine.nodes_mask.bit_length() for row in rows):
        yield "prefer-closest-numa-nodes is on, but the distances to some NUMA nodes are missing"
    if any(not 0 <= distance <= MAX_DISTANCE for row in rows for distance in row):
        yield f"distances between NUMA nodes must be from 0 to {MAX_DISTANCE}"


def _resource_problems(machine: Machine, name: str, resource: PluginResource) -> Iterator[str]:
    places = {device.numa_nodes or () for device in resource.devices.values()}
    if len(places) > MAX_PLACES:
        yield (
            f"devices of {name!r} are on {len(places)} different sets of NUMA nodes, but at most {MAX_PLACES} are "
            "supported"
        )
        return
    occupied = machine.nodes_mask & mask_of(number for place in places for number in place)
    if occupied.bit_count() > MAX_COMBINED:
        yield f"devices of {name!r} are on {occupied.bit_count()} NUMA nodes, but at most {MAX_COMBINED} are supported"


def _cpu_problems(machine: Machine, cpus: CpuState) -> Iterator[str]:
    """That a CPU is held twice is not a problem: containers hold on to those of their pod's init containers, and older
    kubelets share them again once these are gone."""
    named = cpus.default | cpus.reserved
    for exclusive in cpus.exclusive.values():
        named |= exclusive
    if strange := named & ~machine.all_cpus:
        yield f"the machine does not have CPUs {format_cpuset(strange)}"


def _memory_problems(machine: Machine, memory: MemoryState) -> Iterator[str]:
    """Groups may disagree about their members: a container may be given one node of a group, which then leaves it, the
    others stay (see `purser.core.kubelet.memorymanager.tables.assign`)."""
    known = mask_of(memory.nodes)
    if known != machine.nodes_mask:
        yield (
            f"memory is on NUMA nodes {list(nodes_of(known))}, but the machine has {list(nodes_of(machine.nodes_mask))}"
        )
    for number, node in memory.nodes.items():
        if node.group & ~known or not node.group >> number & 1:
            yield f"NUMA node {number} cannot be in a group with {list(nodes_of(node.group))}"
        if any(min(t.total, t.system_reserved, t.allocatable, t.reserved, t.free) < 0 for t in node.tables.values()):
            yield f"NUMA node {number} has a negative amount of memory"
        if any(table.free + table.reserved != table.allocatable for table in node.tables.values()):
            yield f"NUMA node {number} has memory that is neither free nor reserved, or is both"
        if node.assignments < 0:
            yield f"NUMA node {number} has a negative number of assignments ({node.assignments})"
    if any(not block.nodes or block.nodes & ~known for block in _blocks(memory)):
        yield "memory is assigned without a NUMA node, or on a NUMA node without memory"
    if any(block.size < 0 for block in _blocks(memory)):
        yield "a negative amount of memory is assigned"
    nodes_with_memory: Mask = mask_of(number for number, node in memory.nodes.items() if _counts(node))
    if nodes_with_memory.bit_count() > MAX_COMBINED:
        yield f"{nodes_with_memory.bit_count()} NUMA nodes have memory, but at most {MAX_COMBINED} are supported"


def _counts(node: MemoryNode) -> bool:
    return node.assignments != 0 or any(table.allocatable for table in node.tables.values())


def _blocks(memory: MemoryState) -> Iterator[MemoryBlock]:
    return (block for of_container in memory.blocks.values() for block in of_container)
