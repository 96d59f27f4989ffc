"""Picks CPUs that share an uncore (last level) cache: the option prefer-align-cpus-by-uncorecache (since 1.32).

For each cache in order: when the need is at least one cache, all whole caches that fit; then, where the cache at hand
can hold all that is left, that. What fits into no cache is packed core by core.
"""

from collections.abc import Iterable

from purser.core.kubelet.cpumanager.taking import Tally, lowest_cpus, nested
from purser.core.kubelet.cpuset import CpuSet, cpus_of


def take_caches(tally: Tally, numa_nodes: Iterable[CpuSet], *, odd_parts: bool) -> None:
    """Take whole caches, or the part of one. ``numa_nodes`` in the order in which they are used up; ``odd_parts``:
    `Behaviour.takes_odd_uncore_parts`."""
    nodes = list(numa_nodes)
    for cache in nested(nodes, tally.topology.machine.cpus_by_uncore, tally.free):
        if tally.needed >= tally.topology.cpus_per_uncore:
            _take_whole_caches(tally, nodes)
        if not tally.is_satisfied():
            _take_part(tally, cache, odd_parts)
        if tally.is_satisfied():
            return


def _take_whole_caches(tally: Tally, nodes: list[CpuSet]) -> None:
    caches = nested(nodes, tally.topology.machine.cpus_by_uncore, tally.free)
    for cache in [cache for cache in caches if cache & tally.free == cache]:
        if tally.needed >= cache.bit_count():
            tally.take(cache)


def _take_part(tally: Tally, cache: CpuSet, odd_parts: bool) -> None:
    """Take all that is needed from one cache if its first cores that have a free CPU yield exactly that. Cores half
    taken count as cores: kubelet then fails to see what would fit."""
    per_core = tally.topology.cpus_per_core
    part = _free_cpus_of_cores(tally, cache, -(-tally.needed // per_core) if odd_parts else tally.needed // per_core)
    if odd_parts and tally.needed % 2 and per_core > 1 and part.bit_count() > tally.needed:
        part = lowest_cpus(part, part.bit_count() - 1)
    if part.bit_count() == tally.needed:
        tally.take(part)


def _free_cpus_of_cores(tally: Tally, cache: CpuSet, count: int) -> CpuSet:
    cores = tally.topology.machine.cpus_by_core
    core_of = tally.topology.machine.core_of
    chosen = sorted({core_of[cpu] for cpu in cpus_of(cache & tally.free)})[:count]
    return sum(cores[core] & tally.free for core in chosen)
