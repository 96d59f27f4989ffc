"""Picks single CPUs over many cores: the option distribute-cpus-across-cores (alpha since 1.31).

Whole NUMA nodes and sockets are still taken first (`packed`). What is left comes by CPU number, socket by socket: on
machines that number the first threads of all cores before the second ones, these are threads of different cores.
"""

from collections.abc import Iterable

from purser.core.kubelet.cpumanager.taking import Tally
from purser.core.kubelet.cpuset import CpuSet


def take_from_sockets(tally: Tally, sockets: Iterable[CpuSet]) -> None:
    """Take what is still needed from these sockets, one after the other."""
    for socket in sockets:
        if tally.is_satisfied():
            return
        tally.take_lowest(socket)
