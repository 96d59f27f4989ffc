"""Picks CPUs as kubelet did up to 1.21 (takeByTopology): whole sockets, then whole cores, then single CPUs.

That kubelet takes every NUMA node for a socket when it counts the CPUs of one, and knows no NUMA nodes otherwise. It
sorts by comparisons that contradict one another (PR 102014 put them in order), and starts from the random order of a Go
map: on machines with several sockets the result is one of several. Here it is always the same one of them.
"""

from operator import lt

from purser.core.kubelet.cpumanager.gosort import go_sorted
from purser.core.kubelet.cpumanager.taking import NotTakenError, Tally, shortage_error
from purser.core.kubelet.cpumanager.topology import CpuTopology
from purser.core.kubelet.cpuset import CpuSet, cpus_of
from purser.core.kubelet.machine import Machine


def take_by_socket(topology: CpuTopology, available: CpuSet, count: int) -> CpuSet:
    """``count`` of the available CPUs. Raises `NotTakenError`."""
    tally = Tally(topology, available, count)
    if tally.is_satisfied():
        return 0
    if tally.is_failed():
        raise shortage_error(count, available, counted=False)
    sockets, cores = topology.machine.cpus_by_socket, topology.machine.cpus_by_core
    for socket in free_sockets(tally):
        if tally.needed >= topology.cpus_per_socket:
            tally.take(sockets[socket])
    for core in free_cores(tally):
        if tally.needed >= topology.cpus_per_core:
            tally.take(cores[core])
    for cpu in free_cpus(tally):
        if not tally.is_satisfied():
            tally.take(1 << cpu)
    if not tally.is_satisfied():
        raise NotTakenError("failed to allocate cpus")
    return tally.taken


def free_sockets(tally: Tally) -> list[int]:
    """Sockets that are wholly free, by id."""
    whole = tally.topology.cpus_per_socket
    sockets = tally.topology.machine.cpus_by_socket
    return [id_ for id_, cpus in sockets.items() if (cpus & tally.free).bit_count() == whole]


def free_cores(tally: Tally) -> list[int]:
    """Cores that are wholly free: meant are those of the socket with the fewest of them first, then by id."""
    machine, whole = tally.topology.machine, tally.topology.cpus_per_core
    free = [id_ for id_, cpus in machine.cpus_by_core.items() if (cpus & tally.free).bit_count() == whole]
    cores = {id_: [core for core in free if _socket(machine, core) == id_] for id_ in _open_sockets(tally)}
    order = go_sorted(cores, lambda one, other: len(cores[one]) < len(cores[other]) or one < other)
    return [core for socket in order for core in cores[socket]]


def _socket(machine: Machine, core: int) -> int:
    cpus = machine.cpus_by_core[core]
    return machine.socket_of[cpus.bit_length() - 1]


def _open_sockets(tally: Tally) -> list[int]:
    return [id_ for id_, cpus in tally.topology.machine.cpus_by_socket.items() if cpus & tally.free]


def free_cpus(tally: Tally) -> list[int]:
    """Free CPUs core by core: meant are cores of sockets that more was taken of first, then of sockets and cores with
    fewer free CPUs, then by id."""
    machine = tally.topology.machine

    def columns(core: int) -> tuple[int, int, int, int, int]:
        socket = _socket(machine, core)
        siblings = machine.cpus_by_socket[socket]
        taken, free = (siblings & tally.taken).bit_count(), (siblings & tally.free).bit_count()
        return -taken, free, (machine.cpus_by_core[core] & tally.free).bit_count(), socket, core

    columns_of = {core: columns(core) for core, cpus in machine.cpus_by_core.items() if cpus & tally.free}
    order = go_sorted(columns_of, lambda one, other: any(map(lt, columns_of[one], columns_of[other])))
    return [cpu for core in order for cpu in cpus_of(machine.cpus_by_core[core] & tally.free)]
