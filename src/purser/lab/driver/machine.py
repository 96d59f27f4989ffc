"""The part of a profile that is CPUs, NUMA nodes and memory, and the `Machine` that kubelet would find there.

Siblings, sockets and caches are derived from few numbers: hardware is regular. What a profile leaves out is assumed:
one thread per core, one socket per NUMA node that holds CPUs, no smaller caches, and the distances below.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

import msgspec

from purser.core.kubelet.cpuset import cpus_of, parse_cpuset
from purser.core.kubelet.machine import Cpu, Machine
from purser.core.kubelet.machine import NumaNode as MachineNode
from purser.core.kubernetes.quantities import QuantityError, quantity_ceil
from purser.core.wording import counted

MEMORY = "memory"
HUGEPAGES = "hugepages-"

LOCAL_DISTANCE, SAME_SOCKET, OTHER_SOCKET, CPULESS_DISTANCE = 10, 12, 21, 80
"""Distances where a profile gives none: to a node itself, on its socket, on another one, to or from a node without
CPUs (a GPU's memory on a coherent link)."""

MAX_NUMA_NODES = 64

PositiveInt = Annotated[int, msgspec.Meta(gt=0)]


class Siblings(StrEnum):
    """Where the threads of a core stand in a NUMA node's list of CPUs."""

    OFFSET = "offset"
    """First every core's first thread, then every core's second: 0 and 56 of ``0-55,112-167`` are 0 and 112."""
    ADJACENT = "adjacent"
    """One after the other: 0 and 1."""


class CpuLayout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How CPUs make cores, caches and sockets."""

    threads_per_core: PositiveInt = 1
    siblings: Siblings = Siblings.OFFSET
    sockets: PositiveInt | None = None
    """NUMA nodes with CPUs are dealt out to them in order; None: each has its own."""
    cores_per_uncore_cache: PositiveInt | None = None
    """Cores that share a last level cache, where it is not all of a NUMA node's."""


class NumaLayout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One NUMA node."""

    node: Annotated[int, msgspec.Meta(ge=0, lt=MAX_NUMA_NODES)]
    cpus: str = ""
    """In the kernel's list format; empty: it has memory alone, or nothing."""
    memory: str = "0"
    """A quantity, hugepages included."""
    hugepages: dict[str, str] = {}
    """A quantity by page size: ``{2Mi: 8Gi}``."""
    distances: tuple[PositiveInt, ...] = ()
    """To every node in the order of the profile."""


DEFAULT_NUMA = (NumaLayout(0, "0-127", "1Ti"),)
"""Of a profile that does not speak of NUMA."""


def machine_of(numa: tuple[NumaLayout, ...], topology: CpuLayout) -> Machine:
    """The hardware of a profile in which `machine_problems` finds nothing wrong."""
    numa = numa or DEFAULT_NUMA
    sockets = _sockets(numa, topology)
    return Machine(
        numa_nodes=tuple(_machine_nodes(numa, sockets)),
        cpus=tuple(sorted(_cpus(numa, topology, sockets), key=lambda cpu: cpu.cpu)),
        num_sockets=len(set(sockets.values())),
    )


def _machine_nodes(numa: tuple[NumaLayout, ...], sockets: dict[int, int]) -> Iterator[MachineNode]:
    order = sorted(range(len(numa)), key=lambda place: numa[place].node)
    for place in order:
        each = numa[place]
        memory = {MEMORY: quantity_ceil(each.memory)}
        memory |= {f"{HUGEPAGES}{size}": quantity_ceil(amount) for size, amount in each.hugepages.items()}
        distances = [
            each.distances[other] if each.distances else _distance(each.node, numa[other].node, sockets)
            for other in order
        ]
        yield MachineNode(each.node, memory, tuple(distances))


def _distance(one: int, other: int, sockets: dict[int, int]) -> int:
    if one == other:
        return LOCAL_DISTANCE
    if one not in sockets or other not in sockets:
        return CPULESS_DISTANCE
    return SAME_SOCKET if sockets[one] == sockets[other] else OTHER_SOCKET


def _sockets(numa: tuple[NumaLayout, ...], topology: CpuLayout) -> dict[int, int]:
    """The socket of each NUMA node that holds CPUs."""
    bearing = sorted(each.node for each in numa if each.cpus)
    per_socket = len(bearing) // (topology.sockets or len(bearing)) if bearing else 1
    return {node: place // per_socket for place, node in enumerate(bearing)}


def _cpus(numa: tuple[NumaLayout, ...], topology: CpuLayout, sockets: dict[int, int]) -> Iterator[Cpu]:
    first_cache = 0
    for each in sorted(numa, key=lambda each: each.node):
        cores = list(_cores(cpus_of(parse_cpuset(each.cpus)), topology))
        # As cadvisor reports it to kubelet: a cache of the whole node is no uncore cache, and the socket is used
        # instead.
        per_cache = topology.cores_per_uncore_cache or len(cores)
        is_split = per_cache < len(cores)
        for place, threads in enumerate(cores):
            cache = first_cache + place // per_cache if is_split else sockets[each.node]
            for cpu in threads:
                yield Cpu(cpu, each.node, sockets[each.node], min(threads), cache)
        first_cache += -(-len(cores) // per_cache) if is_split else 0


def _cores(cpus: tuple[int, ...], topology: CpuLayout) -> Iterator[tuple[int, ...]]:
    threads = topology.threads_per_core
    count = len(cpus) // threads
    for core in range(count):
        if topology.siblings is Siblings.OFFSET:
            yield cpus[core::count]
        else:
            yield cpus[core * threads : (core + 1) * threads]


def machine_problems(numa: tuple[NumaLayout, ...], topology: CpuLayout) -> Iterator[str]:
    """What is wrong, field by field, each with what to write instead."""
    yield from _node_problems(numa)
    yield from _cpu_problems(numa, topology)
    bearing = sum(bool(each.cpus) for each in numa or DEFAULT_NUMA)
    if topology.sockets is not None and (topology.sockets > bearing or bearing % topology.sockets):
        yield (
            f"cpu.sockets: {counted(bearing, 'NUMA node')} with CPUs cannot be divided evenly among "
            f"{topology.sockets} sockets: must be a divisor of {bearing}"
        )


def _node_problems(numa: tuple[NumaLayout, ...]) -> Iterator[str]:
    seen: set[int] = set()
    for index, each in enumerate(numa):
        if each.node in seen:
            yield f"numa[{index}].node: node {each.node} is already defined: use each number only once"
        seen.add(each.node)
        yield from _quantity_problems(f"numa[{index}].memory", each.memory)
        for size, amount in each.hugepages.items():
            yield from _quantity_problems(f"numa[{index}].hugepages", size)
            yield from _quantity_problems(f"numa[{index}].hugepages.{size}", amount)
        if each.distances and len(each.distances) != len(numa):
            numbers, nodes = counted(len(each.distances), "number"), counted(len(numa), "node")
            yield f"numa[{index}].distances: {numbers} for {nodes}: use one per node"
    if numa and not any(each.cpus for each in numa):
        yield "numa: no node has CPUs: set cpus for at least one node"


def _quantity_problems(field: str, text: str) -> Iterator[str]:
    try:
        if quantity_ceil(text) < 0:
            yield f"{field}: {text} is negative: use an amount such as 512Gi"
    except QuantityError as error:
        yield f"{field}: {error}"


def _cpu_problems(numa: tuple[NumaLayout, ...], topology: CpuLayout) -> Iterator[str]:
    holders: dict[int, int] = {}
    for index, each in enumerate(numa):
        try:
            cpus = cpus_of(parse_cpuset(each.cpus))
        except ValueError:
            yield f"numa[{index}].cpus: {each.cpus!r} is not a CPU list: use one such as 0-15,128-143"
            continue
        twice = [cpu for cpu in cpus if cpu in holders]
        if twice:
            yield f"numa[{index}].cpus: CPU {twice[0]} is also in numa[{holders[twice[0]]}]: list each CPU only once"
        holders.update(dict.fromkeys(cpus, index))
        if len(cpus) % topology.threads_per_core:
            yield (
                f"numa[{index}].cpus: the number of CPUs, {len(cpus)}, is not a multiple of cpu.threads_per_core "
                f"({topology.threads_per_core}): correct either one"
            )
