"""A kubelet as other exporters report it: NodeResourceTopology objects (topology.node.k8s.io/v1alpha2), in counts.

NFD's topology updater and the resource topology exporter write one per node, its zones being NUMA nodes with amounts of
CPUs, memory and devices. `read` makes of them a `KubeletNode` and a `KubeletState` for the twin. What such an object
lacks is assumed, so that a prediction from it is less certain than one from Purser's own agent:

- Which pod holds which CPU, device or byte: amounts in use have no owner. When a pod ends, its share becomes free with
  the exporter's next update (after up to a minute).
- Cores, sockets and caches: every CPU is a core of its own, every NUMA node a socket. Options such as full-pcpus-only
  and align-by-socket cannot be predicted, nor are policy options named at all.
- A device on several NUMA nodes is counted on each of them, and counts here as several devices. Resources without any
  NUMA node are in no zone, and unhealthy devices in no count.
- The CPU and memory manager's policies: static where an amount of CPUs or memory can be allocated exclusively, because
  kubelet's PodResources API lists them then. Whether memory in use belongs to a group of NUMA nodes: each node is
  assumed to be used alone.
- What plugins prefer, and the version of kubelet, which comes from the Node.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from purser.core.kubelet.config import (
    CpuPolicy,
    KubeletConfig,
    MemoryPolicy,
    TopologyOptions,
    TopologyPolicy,
    TopologyScope,
)
from purser.core.kubelet.cpuset import MAX_CPU, CpuSet, cpuset_of, format_cpuset
from purser.core.kubelet.machine import Cpu, Machine, NumaNode
from purser.core.kubelet.state import (
    CpuState,
    DeviceManagerState,
    KubeletNode,
    KubeletState,
    MemoryNode,
    MemoryState,
    MemoryTable,
    PluginDevice,
    PluginResource,
)
from purser.core.kubernetes.quantities import QuantityLike, quantity_ceil

CPU, MEMORY, HUGEPAGES = "cpu", "memory", "hugepages-"
HOST_LEVEL = frozenset(("ephemeral-storage", "storage"))
"""Of no NUMA node, wherever an exporter puts them."""

ZONE_TYPE = "Node"
MAX_TOPOLOGY_NUMA_NODE = 63
"""kubelet's masks of NUMA nodes have 64 bits."""

MAX_TOPOLOGY_DEVICES = 16384
"""On one node: more is a mistake."""

_ZONE = re.compile(r"node-([0-9]{1,4})")

_DEPRECATED_POLICIES: dict[str, tuple[TopologyPolicy, TopologyScope]] = {
    "None": (TopologyPolicy.NONE, TopologyScope.CONTAINER),
    "BestEffort": (TopologyPolicy.BEST_EFFORT, TopologyScope.CONTAINER),
    "BestEffortContainerLevel": (TopologyPolicy.BEST_EFFORT, TopologyScope.CONTAINER),
    "BestEffortPodLevel": (TopologyPolicy.BEST_EFFORT, TopologyScope.POD),
    "Restricted": (TopologyPolicy.RESTRICTED, TopologyScope.CONTAINER),
    "RestrictedContainerLevel": (TopologyPolicy.RESTRICTED, TopologyScope.CONTAINER),
    "RestrictedPodLevel": (TopologyPolicy.RESTRICTED, TopologyScope.POD),
    "SingleNUMANodeContainerLevel": (TopologyPolicy.SINGLE_NUMA_NODE, TopologyScope.CONTAINER),
    "SingleNUMANodePodLevel": (TopologyPolicy.SINGLE_NUMA_NODE, TopologyScope.POD),
}
"""What ``topologyPolicies`` may say."""


class TopologyError(ValueError):
    """An object that describes no node; the message names the zone or attribute."""


class Attribute(msgspec.Struct, frozen=True, gc=False):
    """A name and a value."""

    name: str = ""
    value: str = ""


class Cost(msgspec.Struct, frozen=True, gc=False):
    """The distance to another zone."""

    name: str = ""
    value: int = 0


class Amount(msgspec.Struct, frozen=True, gc=False):
    """One resource of a zone."""

    name: str = ""
    capacity: QuantityLike = 0
    allocatable: QuantityLike = 0
    """What all pods together may have."""
    available: QuantityLike = 0
    """What no pod has."""


class Zone(msgspec.Struct, frozen=True, gc=False):
    """A part of a node."""

    name: str = ""
    type: str = ""
    costs: tuple[Cost, ...] = ()
    resources: tuple[Amount, ...] = ()


class _Count(msgspec.Struct, frozen=True, gc=False):
    """An `Amount` in whole numbers that fit into one another."""

    capacity: int
    allocatable: int
    available: int


Counts = Mapping[int, Mapping[str, _Count]]
"""By NUMA node and resource."""


def read(
    kubelet_version: str,
    zones: Iterable[Zone],
    attributes: Iterable[Attribute] = (),
    topology_policies: Iterable[str] = (),
) -> tuple[KubeletNode, KubeletState]:
    """The node described by an object's fields. Raises `TopologyError`."""
    numbered = dict(_numa_zones(zones))
    counts = {number: _counts(zone) for number, zone in sorted(numbered.items())}
    machine = Machine(tuple(_numa_nodes(numbered, counts)), tuple(_cpus(counts)), len(counts))
    cpus, memory = _cpu_state(machine, counts), _memory_state(counts)
    config = _config(kubelet_version, attributes, topology_policies, cpus, memory)
    return KubeletNode(config, machine), KubeletState(_device_state(counts), cpus, memory)


def _numa_zones(zones: Iterable[Zone]) -> Iterator[tuple[int, Zone]]:
    seen: set[int] = set()
    for zone in zones:
        found = _ZONE.fullmatch(zone.name)
        if zone.type != ZONE_TYPE or found is None:
            continue
        number = int(found[1])
        if number > MAX_TOPOLOGY_NUMA_NODE or number in seen:
            beyond = f"is beyond node-{MAX_TOPOLOGY_NUMA_NODE}, the last possible zone"
            raise TopologyError(f"zone {zone.name} {'appears twice' if number in seen else beyond}")
        seen.add(number)
        yield number, zone


def _counts(zone: Zone) -> dict[str, _Count]:
    return {amount.name: _count(zone.name, amount) for amount in zone.resources if amount.name not in HOST_LEVEL}


def _count(zone: str, amount: Amount) -> _Count:
    try:
        capacity, allocatable, available = map(quantity_ceil, (amount.capacity, amount.allocatable, amount.available))
    except ValueError as error:
        raise TopologyError(f"zone {zone}: {amount.name}: {error}") from error
    if min(capacity, allocatable, available) < 0:
        raise TopologyError(f"zone {zone}: {amount.name}: an amount is negative")
    capacity = max(capacity, allocatable)
    return _Count(capacity, allocatable, min(available, allocatable))


def _numa_nodes(zones: Mapping[int, Zone], counts: Counts) -> Iterator[NumaNode]:
    for number, of_zone in counts.items():
        memory = {name: count.capacity for name, count in of_zone.items() if _is_memory(name)}
        yield NumaNode(number, memory, _distances(zones[number]))


def _distances(zone: Zone) -> tuple[int, ...]:
    """To node 0, 1 and so on; empty where any of them is missing, as kubelet would not have them either."""
    costs = {cost.name: cost.value for cost in zone.costs}
    distances = [costs.get(f"node-{number}") for number in range(len(costs))]
    return tuple(distance for distance in distances if distance is not None) if None not in distances else ()


def _cpus(counts: Counts) -> Iterator[Cpu]:
    """Anonymous CPUs, numbered from one NUMA node to the next."""
    first = 0
    for number, of_zone in counts.items():
        last = first + _cpu_count(of_zone).capacity
        if last > MAX_CPU + 1:
            raise TopologyError(
                f"zone node-{number}: the node has {last} CPUs or more, but at most {MAX_CPU + 1} are supported"
            )
        yield from (Cpu(cpu, number, number, cpu, number) for cpu in range(first, last))
        first = last


def _cpu_count(of_zone: Mapping[str, _Count]) -> _Count:
    return of_zone.get(CPU, _Count(0, 0, 0))


def _cpu_state(machine: Machine, counts: Counts) -> CpuState | None:
    """The lowest CPUs of each NUMA node are reserved, the next ones taken."""
    if not any(_cpu_count(of_zone).allocatable for of_zone in counts.values()):
        return None
    reserved = taken = 0
    for number, of_zone in counts.items():
        count = _cpu_count(of_zone)
        cpus = [cpu.cpu for cpu in machine.cpus if cpu.numa == number]
        kept = count.capacity - count.allocatable
        reserved |= cpuset_of(cpus[:kept])
        taken |= cpuset_of(cpus[kept : kept + count.allocatable - count.available])
    return CpuState(default=machine.all_cpus & ~taken, reserved=reserved)


def _memory_state(counts: Counts) -> MemoryState | None:
    tables = {number: _tables(of_zone) for number, of_zone in counts.items()}
    if not any(table.allocatable for of_node in tables.values() for table in of_node.values()):
        return None
    return MemoryState({number: _memory_node(number, of_node) for number, of_node in tables.items()})


def _tables(of_zone: Mapping[str, _Count]) -> dict[str, MemoryTable]:
    return {
        name: MemoryTable(
            total=count.capacity,
            system_reserved=count.capacity - count.allocatable,
            allocatable=count.allocatable,
            reserved=count.allocatable - count.available,
            free=count.available,
        )
        for name, count in of_zone.items()
        if _is_memory(name)
    }


def _memory_node(number: int, tables: dict[str, MemoryTable]) -> MemoryNode:
    in_use = sum(1 for table in tables.values() if table.reserved)
    return MemoryNode(tables, group=1 << number, assignments=in_use)


def _device_state(counts: Counts) -> DeviceManagerState:
    """Held devices are in the list and not healthy: they count for a hint's preference, and are unavailable."""
    names = {name for of_zone in counts.values() for name in of_zone if "/" in name}
    total = sum(count.capacity for of_zone in counts.values() for name, count in of_zone.items() if name in names)
    if total > MAX_TOPOLOGY_DEVICES:
        raise TopologyError(f"the node has {total} devices, more than the maximum of {MAX_TOPOLOGY_DEVICES}")
    return DeviceManagerState({name: _resource(name, counts) for name in sorted(names)})


def _resource(name: str, counts: Counts) -> PluginResource:
    devices = {
        device.id: device
        for number, of_zone in counts.items()
        if name in of_zone
        for device in _zone_devices(number, of_zone[name])
    }
    healthy = frozenset(id_ for id_, device in devices.items() if device.healthy)
    return PluginResource(devices, healthy, frozenset(devices) - healthy, is_listed=True)


def _zone_devices(number: int, count: _Count) -> Iterator[PluginDevice]:
    for place in range(count.capacity):
        yield PluginDevice(f"node-{number}/{place}", place < count.available, (number,))


def _is_memory(name: str) -> bool:
    return name == MEMORY or name.startswith(HUGEPAGES)


def _config(
    version: str,
    attributes: Iterable[Attribute],
    topology_policies: Iterable[str],
    cpus: CpuState | None,
    memory: MemoryState | None,
) -> KubeletConfig:
    policy, scope, options = _alignment(attributes, topology_policies)
    reserved: CpuSet = cpus.reserved if cpus else 0
    return KubeletConfig(
        version=version,
        topology_policy=policy,
        topology_scope=scope,
        topology_options=options,
        cpu_policy=CpuPolicy.STATIC if cpus else CpuPolicy.NONE,
        reserved_cpus=format_cpuset(reserved),
        memory_policy=MemoryPolicy.STATIC if memory else MemoryPolicy.NONE,
        reserved_memory=_reserved_memory(memory) if memory else {},
    )


def _reserved_memory(memory: MemoryState) -> dict[int, dict[str, int]]:
    return {
        number: {name: table.system_reserved for name, table in node.tables.items()}
        for number, node in memory.nodes.items()
    }


def _alignment(
    attributes: Iterable[Attribute], topology_policies: Iterable[str]
) -> tuple[TopologyPolicy, TopologyScope, TopologyOptions]:
    """Attributes count before the deprecated field; without either nothing is aligned."""
    values = {attribute.name: attribute.value for attribute in attributes}
    policy, scope = _parse_deprecated(topology_policies)
    most = TopologyOptions().max_allowable_numa_nodes
    try:
        return (
            TopologyPolicy(values.get("topologyManagerPolicy", policy)),
            TopologyScope(values.get("topologyManagerScope", scope)),
            TopologyOptions(max_allowable_numa_nodes=int(values.get("topologyManagerMaxNUMANodes", most))),
        )
    except ValueError as error:
        raise TopologyError(f"attributes: {error}") from error


def _parse_deprecated(topology_policies: Iterable[str]) -> tuple[TopologyPolicy, TopologyScope]:
    first = next(iter(topology_policies), "None")
    if first not in _DEPRECATED_POLICIES:
        raise TopologyError(f"topologyPolicies: unknown policy {first!r}")
    return _DEPRECATED_POLICIES[first]
