"""A node's CPUs, NUMA nodes and memory, as kubelet discovers them (cadvisor's MachineInfo)."""

from collections.abc import Iterable
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
    """To node 0, 1, 2 and so on, itself included (10): kubelet takes a node's number for its place. Empty where
    unknown."""


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
        return self._group_by("numa")

    @cached_property
    def cpus_by_socket(self) -> dict[int, CpuSet]:
        """The CPUs of each socket."""
        return self._group_by("socket")

    @cached_property
    def cpus_by_core(self) -> dict[int, CpuSet]:
        """The threads of each core."""
        return self._group_by("core")

    @cached_property
    def cpus_by_uncore(self) -> dict[int, CpuSet]:
        """The CPUs of each uncore cache."""
        return self._group_by("uncore")

    @cached_property
    def core_of(self) -> dict[int, int]:
        """The core of each CPU."""
        return {cpu.cpu: cpu.core for cpu in self.cpus}

    @cached_property
    def socket_of(self) -> dict[int, int]:
        """The socket of each CPU."""
        return {cpu.cpu: cpu.socket for cpu in self.cpus}

    def _group_by(self, column: str) -> dict[int, CpuSet]:
        groups: dict[int, CpuSet] = {}
        for cpu in self.cpus:
            groups[getattr(cpu, column)] = groups.get(getattr(cpu, column), 0) | 1 << cpu.cpu
        return dict(sorted(groups.items()))


class DiscoveryError(ValueError):
    """What is known of the hardware makes no machine; the message is kubelet's."""


class DiscoveredCore(msgspec.Struct, frozen=True):
    """One core as cadvisor reports it."""

    threads: tuple[int, ...]
    """CPU numbers."""
    socket: int = 0
    uncore: int | None = None
    """None where unknown: then the socket stands for it."""


class DiscoveredNode(msgspec.Struct, frozen=True):
    """One NUMA node as cadvisor reports it."""

    node: NumaNode
    cores: tuple[DiscoveredCore, ...] = ()


def discover(nodes: Iterable[DiscoveredNode], num_sockets: int = 0) -> Machine:
    """The machine of what cadvisor found (topology.Discover). Raises `DiscoveryError`."""
    found = sorted(nodes, key=lambda found: found.node.node)
    cpus = {cpu.cpu: cpu for node in found for core in node.cores for cpu in _cpus_of_core(node.node.node, core)}
    if not cpus:
        raise DiscoveryError("could not detect number of cpus")
    return Machine(tuple(node.node for node in found), tuple(cpus[number] for number in sorted(cpus)), num_sockets)


def _cpus_of_core(numa: int, core: DiscoveredCore) -> list[Cpu]:
    if not core.threads:
        raise DiscoveryError("no cpus provided")
    if len(set(core.threads)) != len(core.threads):
        raise DiscoveryError("cpus provided are not unique")
    uncore = core.socket if core.uncore is None else core.uncore
    return [Cpu(thread, numa, core.socket, min(core.threads), uncore) for thread in core.threads]
