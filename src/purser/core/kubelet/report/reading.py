"""From a report back to the twin's values. Whatever a report says, the effort stays bounded."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from msgspec.structs import replace

from purser.core.decoding import brief
from purser.core.kubelet.cpuset import MAX_CPU, cpus_of, parse_cpuset
from purser.core.kubelet.devicemanager.holdings import per_numa
from purser.core.kubelet.machine import Cpu, Machine
from purser.core.kubelet.masks import MAX_NUMA_NODE, Mask, mask_of
from purser.core.kubelet.report.format import (
    MAX_REPORTED_DEVICES,
    CpuGroup,
    KubeletReport,
    MachineReport,
    ReportError,
    ResourceReport,
    aligns,
)
from purser.core.kubelet.report.idlists import IdList, expand_ids
from purser.core.kubelet.state import (
    Allocation,
    ContainerKey,
    CpuState,
    DeviceManagerState,
    KubeletNode,
    KubeletState,
    MemoryBlock,
    MemoryNode,
    MemoryState,
    MemoryTable,
    PluginDevice,
    PluginOptions,
    PluginResource,
)
from purser.core.kubelet.versions import behaviour

MAX_NODES_OF_DEVICE = 16

T = TypeVar("T")


def node_of(report: KubeletReport) -> KubeletNode:
    """The node of a report. Raises `ReportError`, also for a kubelet that aligns and whose hardware is not in the
    report: whatever was predicted without it would be wrong."""
    if report.machine is None and aligns(report.config):
        raise ReportError(
            "kubelet aligns resources, but its report contains only its configuration, so its "
            "admission cannot be predicted"
        )
    return KubeletNode(
        replace(report.config, version=report.version), _raise_as_report_error(lambda: _machine(report.machine))
    )


def state_of(report: KubeletReport) -> KubeletState:
    """What the node's kubelet knows and has given away. Raises `ReportError`."""
    return _raise_as_report_error(lambda: _state(report))


def _machine(report: MachineReport | None) -> Machine:
    if report is None:
        return Machine()
    if sum(parse_cpuset(group.cpus).bit_count() for group in report.cpus) > MAX_CPU + 1:
        raise ReportError(f"more than {MAX_CPU + 1} CPUs in a kubelet report")
    cpus = sorted((cpu for group in report.cpus for cpu in _cpus(group)), key=lambda cpu: cpu.cpu)
    for numa in report.numa_nodes:
        _node_number(numa.node)
    return Machine(report.numa_nodes, tuple(cpus), report.num_sockets)


def _cpus(group: CpuGroup) -> Iterable[Cpu]:
    numbers = cpus_of(parse_cpuset(group.cpus))
    if sum(length for _, length in group.cores) != len(numbers):
        raise ReportError(f"CPUs {group.cpus} do not have one core each")
    cores = (core for first, length in group.cores for core in range(first, first + length))
    _node_number(group.numa)
    return [Cpu(cpu, group.numa, group.socket, core, group.uncore) for cpu, core in zip(numbers, cores, strict=True)]


def _resource(report: ResourceReport, budget: "_Budget") -> PluginResource:
    for group in report.groups:
        _mask(group.numa_nodes or ())
        if len(group.numa_nodes or ()) > MAX_NODES_OF_DEVICE:
            raise ReportError(
                f"devices on {len(group.numa_nodes or ())} NUMA nodes: the maximum is {MAX_NODES_OF_DEVICE}"
            )
    devices = {
        id_: PluginDevice(id_, group.healthy, group.numa_nodes)
        for group in report.groups
        for id_ in budget.expand_ids(group.ids)
    }
    healthy = frozenset(id_ for id_, device in devices.items() if device.healthy)
    return PluginResource(
        devices,
        healthy,
        frozenset(devices) - healthy,
        is_listed=not report.unlisted,
        options=PluginOptions(report.pre_start_required, report.preferred_allocation),
    )


def _state(report: KubeletReport) -> KubeletState:
    budget = _Budget()
    resources = {name: _resource(of, budget) for name, of in report.resources.items()}
    return KubeletState(_devices(report, resources, _Budget()), _cpu_state(report), _memory_state(report))


def _devices(report: KubeletReport, resources: Mapping[str, PluginResource], budget: "_Budget") -> DeviceManagerState:
    rules = behaviour(replace(report.config, version=report.version).parsed_version)
    held: dict[ContainerKey, dict[str, Allocation]] = {}
    allocated: dict[str, frozenset[str]] = {}
    for holding in report.held:
        for name, ids in holding.devices.items():
            taken = budget.expand_ids(ids)
            allocation = Allocation(per_numa(rules, resources.get(name, PluginResource()), taken))
            held.setdefault((holding.uid, holding.container), {})[name] = allocation
            allocated[name] = allocated.get(name, frozenset()) | frozenset(taken)
    return DeviceManagerState(resources, held, allocated)


def _cpu_state(report: KubeletReport) -> CpuState | None:
    if report.cpus is None:
        return None
    exclusive = {(of.uid, of.container): parse_cpuset(of.cpus) for of in report.held if of.cpus}
    return CpuState(parse_cpuset(report.cpus.default), parse_cpuset(report.cpus.reserved), exclusive)


def _memory_state(report: KubeletReport) -> MemoryState | None:
    if report.memory is None:
        return None
    nodes = {
        _node_number(of.node): MemoryNode(
            {name: MemoryTable(*table) for name, table in of.tables.items()}, _mask(of.group), of.assignments
        )
        for of in report.memory
    }
    blocks = {
        (of.uid, of.container): tuple(MemoryBlock(_mask(numbers), name, size) for numbers, name, size in of.memory)
        for of in report.held
        if of.memory is not None
    }
    return MemoryState(nodes, blocks)


class _Budget:
    """How many ids may still be expanded."""

    def __init__(self) -> None:
        self._left = MAX_REPORTED_DEVICES

    def expand_ids(self, ids: IdList) -> tuple[str, ...]:
        """The ids of a list. Raises ValueError when there are too many."""
        found = expand_ids(ids, self._left)
        self._left -= len(found)
        return found


def _mask(numbers: Iterable[int]) -> Mask:
    return mask_of(_node_number(number) for number in numbers)


def _node_number(number: int) -> int:
    if not 0 <= number <= MAX_NUMA_NODE:
        raise ReportError(f"NUMA node {number} in a kubelet report: must be from 0 to {MAX_NUMA_NODE}")
    return number


def _raise_as_report_error(make: Callable[[], T]) -> T:
    try:
        return make()
    except ReportError:
        raise
    except (ValueError, OverflowError) as error:
        raise ReportError(f"invalid kubelet report: {brief(error)}") from error
