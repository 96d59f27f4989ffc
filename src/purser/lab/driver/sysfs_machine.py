"""The part of sysfs that tells of CPUs and NUMA nodes: ``devices/system/cpu`` and ``devices/system/node``.

Only what cadvisor, kubelet's eyes, and the agent read: which CPUs make a core, a socket and a last level cache, and
each NUMA node's CPUs, memory, hugepages and distances. Hundreds of files: a driver does without, only nodes have it.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from purser.core.kubelet.cpuset import CpuSet, cpus_of, format_cpuset
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
    """What is the same for the CPUs of a core or of a cache is written once and linked: a node has hundreds of CPUs."""
    # Core ids of real kernels repeat from socket to socket; so do these.
    cores = {core: place for place, core in enumerate(machine.cpus_by_core)}
    per_socket = max(1, len(cores) // max(1, len(machine.cpus_by_socket)))
    for cpu in machine.cpus:
        own = folder / f"cpu{cpu.cpu}"
        siblings, sharing = machine.cpus_by_core[cpu.core], machine.cpus_by_uncore[cpu.uncore]
        topology = {
            "core_id": cores[cpu.core] % per_socket,
            "physical_package_id": cpu.socket,
            "thread_siblings_list": format_cpuset(siblings),
        }
        _write_once(own / "topology", topology, folder / f"cpu{_first(siblings)}/topology")
        cache = {"level": 3, "type": "Unified", "id": cpu.uncore, "shared_cpu_list": format_cpuset(sharing)}
        _write_once(own / "cache/index3", cache, folder / f"cpu{_first(sharing)}/cache/index3")


def _first(cpus: CpuSet) -> int:
    return cpus_of(cpus)[0]


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


def _write_once(folder: Path, files: Mapping[str, object], first: Path) -> None:
    if folder == first:
        _write(folder, files)
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.symlink_to(os.path.relpath(first, folder.parent))


def _write(folder: Path, files: Mapping[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name).write_text(f"{value}\n", encoding="ascii")
