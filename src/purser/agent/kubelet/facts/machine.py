"""CPUs, caches, NUMA nodes and memory from sysfs, counted as cadvisor counts them for kubelet.

Read from ``<root>/devices/system/{node,cpu}``; the root is a parameter because the lab's nodes bring their own tree.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from purser.agent.host.sysfs import SYSFS_ROOT, parse_cpu_list
from purser.core.kubelet.machine import DiscoveredCore, DiscoveredNode, DiscoveryError, Machine, NumaNode, discover

MEMORY = "memory"

_NODE = re.compile(r"node([0-9]+)")
_CPU = re.compile(r"cpu([0-9]+)")
_HUGEPAGES = re.compile(r"hugepages-([0-9]+)kB")
_MEM_TOTAL = re.compile(r"MemTotal:\s*([0-9]+) kB")
_KIB = 1024
_UNITS = ("Ki", "Mi", "Gi", "Ti")
_LEVEL_2 = 2


def read_machine(root: Path = SYSFS_ROOT) -> Machine:
    """The machine. Raises `DiscoveryError` where sysfs makes none, with what was missing."""
    system = root / "devices/system"
    try:
        nodes = [_node(system, path, number) for number, path in _numbered_folders(system / "node", _NODE)]
        return _machine(nodes or _packages_as_nodes(system))
    except OSError as error:
        raise DiscoveryError(f"cannot read {error.filename}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DiscoveryError(f"sysfs under {root} is not text: {error}") from error


def _machine(nodes: list[DiscoveredNode]) -> Machine:
    sockets = {core.socket for node in nodes for core in node.cores}
    return discover(nodes, len(sockets))


def _numbered_folders(folder: Path, pattern: re.Pattern[str]) -> list[tuple[int, Path]]:
    if not folder.is_dir():
        return []
    found = ((pattern.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted((int(match[1]), path) for match, path in found if match)


def _node(system: Path, folder: Path, number: int) -> DiscoveredNode:
    numa = NumaNode(number, _memory(folder), tuple(_numbers(folder / "distance", (folder / "distance").is_file())))
    cpus = _cpu_list(folder / "cpulist")
    return DiscoveredNode(numa, tuple(_cores(system, cpus)))


def _memory(folder: Path) -> dict[str, int]:
    """Bytes by resource; memory is 0 where the node does not say, as on those without any."""
    path = folder / "meminfo"
    found = _MEM_TOTAL.search(_text(path)) if path.is_file() else None
    memory = {MEMORY: int(found[1]) * _KIB if found else 0}
    for size_kib, pages in _numbered_folders(folder / "hugepages", _HUGEPAGES):
        memory[f"hugepages-{_binary_quantity(size_kib)}"] = _number(pages / "nr_hugepages") * size_kib * _KIB
    return memory


def _binary_quantity(kib: int) -> str:
    """A page size as a quantity: 2048 KiB is 2Mi."""
    unit = 0
    while kib % 1024 == 0 and unit + 1 < len(_UNITS):
        kib, unit = kib // 1024, unit + 1
    return f"{kib}{_UNITS[unit]}"


def _cores(system: Path, cpus: Iterable[int]) -> Iterator[DiscoveredCore]:
    """The cores of one NUMA node: CPUs with the same core id in the same package. CPUs that are offline, or do not
    say their core, do not count."""
    threads: dict[tuple[int, int], list[int]] = {}
    for cpu in sorted(cpus):
        folder = system / "cpu" / f"cpu{cpu}"
        if (folder / "topology" / "core_id").is_file() and _is_online(folder):
            key = _number(folder / "topology" / "core_id"), _number(folder / "topology" / "physical_package_id")
            threads.setdefault(key, []).append(cpu)
    for (_, socket), of_core in threads.items():
        yield DiscoveredCore(tuple(of_core), socket, _uncore(system, of_core, len(threads)))


def _is_online(folder: Path) -> bool:
    """CPU 0 often has no such file: it cannot be taken offline."""
    return not (folder / "online").is_file() or _text(folder / "online").strip() != "0"


def _uncore(system: Path, threads: list[int], cores_of_node: int) -> int | None:
    """The last level cache that a core shares with a part of its node; None when it is the whole node's, or unknown."""
    for _, folder in _numbered_folders(system / "cpu" / f"cpu{threads[0]}" / "cache", re.compile(r"index([0-9]+)")):
        sharing = len(_cpu_list(folder / "shared_cpu_list"))
        if _number(folder / "level") > _LEVEL_2 and sharing != cores_of_node * len(threads):
            return _number(folder / "id") if (folder / "id").is_file() else 0
    return None


def _packages_as_nodes(system: Path) -> list[DiscoveredNode]:
    """Where the kernel has no NUMA nodes, every package counts as one, its memory unknown."""
    packages: dict[int, list[int]] = {}
    for cpu, folder in _numbered_folders(system / "cpu", _CPU):
        path = folder / "topology" / "physical_package_id"
        if path.is_file():
            packages.setdefault(_number(path), []).append(cpu)
    return [
        DiscoveredNode(NumaNode(package, {MEMORY: 0}), tuple(_cores(system, cpus)))
        for package, cpus in sorted(packages.items())
    ]


def _cpu_list(path: Path) -> frozenset[int]:
    try:
        return parse_cpu_list(_text(path))
    except ValueError as error:
        raise DiscoveryError(f"{path} is not a CPU list: {error}") from error


def _numbers(path: Path, is_there: bool) -> list[int]:
    try:
        return [int(word) for word in _text(path).split()] if is_there else []
    except ValueError as error:
        raise DiscoveryError(f"{path} does not contain numbers: {error}") from error


def _number(path: Path) -> int:
    found = _numbers(path, is_there=True)
    if len(found) != 1:
        raise DiscoveryError(f"{path} contains {len(found)} numbers instead of one")
    return found[0]


def _text(path: Path) -> str:
    return path.read_text(encoding="ascii")
