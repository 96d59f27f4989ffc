"""What all algorithms that pick CPUs share: a tally of what is free, taken and still needed, and orders of groups."""

from collections.abc import Iterable, Mapping

from purser.core.kubelet.cpumanager.topology import CpuTopology
from purser.core.kubelet.cpuset import CpuSet


class NotTakenError(Exception):
    """No CPUs could be picked; the message is kubelet's."""


class Tally:
    """CPUs free, taken and needed while one algorithm runs (kubelet's accumulator)."""

    __slots__ = ("free", "needed", "taken", "topology")

    def __init__(self, topology: CpuTopology, available: CpuSet, count: int) -> None:
        self.topology = topology
        self.free: CpuSet = available & topology.machine.all_cpus
        self.taken: CpuSet = 0
        self.needed = count

    def take(self, cpus: CpuSet) -> None:
        """Take these. Those that are not free are left out: on unequal sockets kubelet would hand them out again."""
        cpus &= self.free
        self.free ^= cpus
        self.taken |= cpus
        self.needed -= cpus.bit_count()

    def take_lowest(self, cpus: CpuSet) -> None:
        """Take the free CPUs with the lowest numbers out of some, as many as are needed."""
        self.take(lowest_cpus(cpus & self.free, self.needed))

    def is_satisfied(self) -> bool:
        """Whether nothing more is needed."""
        return self.needed < 1

    def is_failed(self) -> bool:
        """Whether more is needed than is free."""
        return self.needed > self.free.bit_count()


def lowest_cpus(cpus: CpuSet, count: int) -> CpuSet:
    """The ``count`` CPUs with the lowest numbers."""
    chosen = 0
    for _ in range(min(count, cpus.bit_count())):
        bit = cpus & -cpus
        chosen |= bit
        cpus ^= bit
    return chosen


def fewest_free_first(groups: Mapping[int, CpuSet], free: CpuSet, within: CpuSet = -1) -> list[CpuSet]:
    """The groups that have a free CPU inside ``within``, those with the fewest free CPUs first, then by id."""
    found = [((cpus & free).bit_count(), id_) for id_, cpus in groups.items() if cpus & free & within]
    return [groups[id_] for _, id_ in sorted(found)]


def nested(outers: Iterable[CpuSet], groups: Mapping[int, CpuSet], free: CpuSet) -> list[CpuSet]:
    """The groups of one outer group after the other, in each as `fewest_free_first`."""
    return [group for outer in outers for group in fewest_free_first(groups, free, outer)]


def shortage_error(requested: int, available: CpuSet, *, counted: bool) -> NotTakenError:
    """The error of a request that is larger than what there is; ``counted``: `Behaviour.counts_cpus_in_errors`."""
    text = "not enough cpus available to satisfy request"
    return NotTakenError(f"{text}: requested={requested}, available={available.bit_count()}" if counted else text)
