"""The part of sysfs on CPUs and NUMA nodes: ``devices/system/cpu`` and ``devices/system/node``.

Only what cadvisor (for kubelet) and the agent read: which CPUs make a core, a socket and a last level cache, and each
NUMA node's CPUs, memory, hugepages and distances. Hundreds of files: only nodes have it, a simulated driver alone does
not need it.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

from purser.core.kubelet.cpuset import CpuSet, format_cpuset
from purser.core.kubelet.machine import Machine, NumaNode
from purser.core.kubernetes.quantities import quantity_ceil
from purser.lab.driver.machine import HUGEPAGES, MEMORY

_KIB = 1024


def write_machine(root: Path, machine: Machine) -> None:
    """Write the tree of a whole node below its /sys; one that is there is replaced."""
    system = root / "devices/system"
    shutil.rmtree(system, ignore_errors=True)
    nodes = format_cpuset(machine.nodes_mask)
    _write(system / "cpu", dict.fromkeys(("online", "possible", "present"), format_cpuset(machine.all_cpus)))
    _write(system / "node", dict.fromkeys(("online", "possible"), nodes))
    _write_cpus(system / "cpu", machine)
    for numa_node in machine.numa_nodes:
        _write_node(system / "node" / f"node{numa_node.node}", numa_node, machine)


def _write_cpus(folder: Path, machine: Machine) -> None:
    """What is the same for the CPUs of a core is written once and linked, as is the cache that cores share: a node has
    hundreds of CPUs."""
    # Core ids of real kernels repeat from socket to socket; so do these.
    cores = {core: place for place, core in enumerate(machine.cpus_by_core)}
    per_socket = max(1, len(cores) // max(1, len(machine.cpus_by_socket)))
    written: dict[tuple[int, int, int], int] = {}
    caches: dict[int, int] = {}
    for cpu in machine.cpus:
        own = folder / f"cpu{cpu.cpu}"
        first = written.setdefault((cpu.socket, cpu.uncore, cpu.core), cpu.cpu)
        if first != cpu.cpu:
            own.symlink_to(f"cpu{first}")
            continue
        topology = {
            "core_id": cores[cpu.core] % per_socket,
            "physical_package_id": cpu.socket,
            "thread_siblings_list": format_cpuset(machine.cpus_by_core[cpu.core]),
        }
        _write(own / "topology", topology)
        first = caches.setdefault(cpu.uncore, cpu.cpu)
        if first != cpu.cpu:
            (own / "cache").symlink_to(f"../cpu{first}/cache")
            continue
        shared = format_cpuset(machine.cpus_by_uncore[cpu.uncore])
        _write(own / "cache/index3", {"level": 3, "type": "Unified", "id": cpu.uncore, "shared_cpu_list": shared})


def _write_node(folder: Path, node: NumaNode, machine: Machine) -> None:
    cpus: CpuSet = machine.cpus_by_numa.get(node.node, 0)
    total = node.memory.get(MEMORY, 0) // _KIB
    _write(
        folder,
        {
            "cpulist": format_cpuset(cpus),
            "distance": " ".join(map(str, node.distances)),
            "meminfo": f"Node {node.node} MemTotal:       {total} kB\nNode {node.node} MemFree:        {total} kB",
        },
    )
    for name, amount in node.memory.items():
        if name.startswith(HUGEPAGES):
            size = quantity_ceil(name.removeprefix(HUGEPAGES))
            _write(folder / f"hugepages/hugepages-{size // _KIB}kB", {"nr_hugepages": amount // size})


def _write(folder: Path, files: Mapping[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name).write_text(f"{value}\n", encoding="ascii")
