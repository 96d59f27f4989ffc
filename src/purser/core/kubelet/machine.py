"""A node's CPUs, NUMA nodes and memory, as kubelet discovers them (cadvisor's MachineInfo)."""

from functools import cached_property

import msgspec

from purser.core.kubelet.cpuset import CpuSet, cpuset_of
from purser.core.kubelet.masks import Mask, mask_of


class Cpu(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One logical CPU."""

    cpu: int
    numa: int
    socket: int
    core: int
    """The lowest CPU number of the core's threads: kernel core ids are not unique."""
    uncore: int = 0
    """The uncore (last level) cache it shares."""


class NumaNode(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One NUMA node."""

    node: int
    memory: dict[str, int] = {}
    """Bytes by resource: ``memory`` and every ``hugepages-<size>``."""
    distances: tuple[int, ...] = ()
    """To every node in the order of the machine's nodes, itself included (10); empty where unknown."""


class Machine(msgspec.Struct, frozen=True, dict=True):
    """The hardware that the managers reason about. ``dict=True`` holds what is derived once."""

    numa_nodes: tuple[NumaNode, ...] = ()
    """Ascending by number. Nodes without CPUs are in it too (GB200 has 34 nodes)."""
    cpus: tuple[Cpu, ...] = ()
    """Ascending by number."""
    num_sockets: int = 0
    """As cadvisor counts them; 0: as many as the CPUs name."""

    @cached_property
    def nodes_mask(self) -> Mask:
        """All NUMA nodes."""
        return mask_of(node.node for node in self.numa_nodes)

    @cached_property
    def all_cpus(self) -> CpuSet:
        """Every CPU."""
        return cpuset_of(cpu.cpu for cpu in self.cpus)

    @cached_property
    def cpus_by_numa(self) -> dict[int, CpuSet]:
        """The CPUs of each NUMA node that has any."""
        return self._grouped("numa")

    @cached_property
    def cpus_by_socket(self) -> dict[int, CpuSet]:
        """The CPUs of each socket."""
        return self._grouped("socket")

    @cached_property
    def cpus_by_core(self) -> dict[int, CpuSet]:
        """The threads of each core."""
        return self._grouped("core")

    @cached_property
    def cpus_by_uncore(self) -> dict[int, CpuSet]:
        """The CPUs of each uncore cache."""
        return self._grouped("uncore")

    def _grouped(self, column: str) -> dict[int, CpuSet]:
        groups: dict[int, CpuSet] = {}
        for cpu in self.cpus:
            groups[getattr(cpu, column)] = groups.get(getattr(cpu, column), 0) | 1 << cpu.cpu
        return dict(sorted(groups.items()))
