"""What the CPU manager makes of a machine: how many CPUs stand for a core, a socket, an uncore cache."""

import msgspec

from purser.core.kubelet.machine import Machine
from purser.core.kubelet.state import KubeletNode
from purser.core.kubelet.versions import behaviour


class CpuTopology(msgspec.Struct, frozen=True):
    """A machine and how its sockets and NUMA nodes are counted. The averages are kubelet's: integer divisions, so that
    on machines with unequal sockets or cores they fit none."""

    machine: Machine
    num_sockets: int
    num_numa_nodes: int
    """Those that hold CPUs."""

    @property
    def cpus_per_core(self) -> int:
        """Threads of a core; at least one, on machines without any CPU too."""
        return max(len(self.machine.cpus) // max(len(self.machine.cpus_by_core), 1), 1)

    @property
    def cpus_per_socket(self) -> int:
        """CPUs of a socket."""
        return len(self.machine.cpus) // max(self.num_sockets, 1)

    @property
    def cpus_per_uncore(self) -> int:
        """CPUs of an uncore cache."""
        return len(self.machine.cpus) // max(len(self.machine.cpus_by_uncore), 1)

    @property
    def is_numa_first(self) -> bool:
        """Whether NUMA nodes hold sockets rather than sockets NUMA nodes."""
        return self.num_sockets >= self.num_numa_nodes


def topology_of(node: KubeletNode) -> CpuTopology:
    """How this node's kubelet counts. Before 1.22 every NUMA node is one socket."""
    machine = node.machine
    num_numa_nodes = len(machine.cpus_by_numa)
    sockets = machine.num_sockets or len(machine.cpus_by_socket)
    counts_sockets = behaviour(node.config.parsed_version).packs_by_numa
    return CpuTopology(machine, sockets if counts_sockets else len(machine.numa_nodes), num_numa_nodes)
