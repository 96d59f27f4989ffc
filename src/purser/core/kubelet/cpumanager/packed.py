"""Picks CPUs so that as few NUMA nodes, sockets, caches and cores as possible are broken open (since 1.22).

Whole groups first, from the widest to the core, then single threads. At each level the groups with the fewest free CPUs
come first: what is already broken open is used up. `spread` and `uncore` vary it.
"""

from purser.core.kubelet.cpumanager import spread, uncore
from purser.core.kubelet.cpumanager.taking import NotTakenError, Tally, fewest_free_first, nested, shortage_error
from purser.core.kubelet.cpumanager.topology import CpuTopology
from purser.core.kubelet.cpuset import CpuSet


def take_packed(
    topology: CpuTopology,
    available: CpuSet,
    count: int,
    *,
    is_spread: bool = False,
    by_uncore: bool = False,
    odd_uncore_parts: bool = True,
    counted_errors: bool = True,
) -> CpuSet:
    """``count`` of the available CPUs (takeByTopologyNUMAPacked). Raises `NotTakenError`.

    The keyword arguments are the options distribute-cpus-across-cores and prefer-align-cpus-by-uncorecache and the two
    switches of `purser.core.kubelet.versions.Behaviour` that bear on it.
    """
    tally = Tally(topology, available, count)
    if tally.is_satisfied():
        return 0
    if tally.is_failed():
        raise shortage_error(count, available, counted=counted_errors)
    _take_wide_groups(tally)
    if by_uncore and not tally.is_satisfied():
        uncore.take_caches(tally, sorted_numa_nodes(tally), odd_parts=odd_uncore_parts)
    if is_spread:
        spread.take_from_sockets(tally, sorted_sockets(tally))
    else:
        _take_cores(tally)
        _take_threads(tally)
    if not tally.is_satisfied():
        raise NotTakenError("failed to allocate cpus")
    return tally.taken


def sorted_numa_nodes(tally: Tally) -> list[CpuSet]:
    """The NUMA nodes with free CPUs in the order in which they are used up."""
    groups = tally.topology.machine.cpus_by_numa
    if tally.topology.is_numa_first:
        return fewest_free_first(groups, tally.free)
    return nested(sorted_sockets(tally), groups, tally.free)


def sorted_sockets(tally: Tally) -> list[CpuSet]:
    """The sockets with free CPUs in the order in which they are used up."""
    groups = tally.topology.machine.cpus_by_socket
    if tally.topology.is_numa_first:
        return nested(sorted_numa_nodes(tally), groups, tally.free)
    return fewest_free_first(groups, tally.free)


def sorted_cores(tally: Tally) -> list[CpuSet]:
    """The cores with free CPUs in the order in which they are used up."""
    outer_groups = sorted_sockets(tally) if tally.topology.is_numa_first else sorted_numa_nodes(tally)
    return nested(outer_groups, tally.topology.machine.cpus_by_core, tally.free)


def _take_wide_groups(tally: Tally) -> None:
    levels = [_take_numa_nodes, _take_sockets]
    for take in levels if tally.topology.is_numa_first else reversed(levels):
        take(tally)


def _take_numa_nodes(tally: Tally) -> None:
    for node in [node for node in sorted_numa_nodes(tally) if node & tally.free == node]:
        if tally.needed >= node.bit_count():
            tally.take(node)


def _take_sockets(tally: Tally) -> None:
    whole = tally.topology.cpus_per_socket
    for socket in [socket for socket in sorted_sockets(tally) if (socket & tally.free).bit_count() == whole]:
        if tally.needed >= socket.bit_count():
            tally.take(socket)


def _take_cores(tally: Tally) -> None:
    whole = tally.topology.cpus_per_core
    for core in [core for core in sorted_cores(tally) if (core & tally.free).bit_count() == whole]:
        if tally.needed >= core.bit_count():
            tally.take(core)


def _take_threads(tally: Tally) -> None:
    for core in sorted_cores(tally):
        if tally.is_satisfied():
            return
        tally.take_lowest(core)
