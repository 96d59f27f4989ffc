"""From the twin's values to a report."""

from purser.core.kubelet.cpuset import cpuset_of, format_cpuset
from purser.core.kubelet.machine import Cpu, Machine
from purser.core.kubelet.managers import holders
from purser.core.kubelet.masks import nodes_of
from purser.core.kubelet.report.format import (
    FORMAT,
    CpuGroup,
    CpuReport,
    DeviceGroup,
    Holding,
    KubeletReport,
    MachineReport,
    MemoryNodeReport,
    ResourceReport,
)
from purser.core.kubelet.report.idlists import compact_ids
from purser.core.kubelet.state import (
    ContainerKey,
    CpuState,
    KubeletNode,
    KubeletState,
    MemoryNode,
    MemoryState,
    PluginResource,
)


def report_of(node: KubeletNode, state: KubeletState | None = None) -> KubeletReport:
    """The report of a node; without a state only its configuration."""
    if state is None:
        return KubeletReport(FORMAT, node.config.version, node.config)
    return KubeletReport(
        format=FORMAT,
        version=node.config.version,
        config=node.config,
        machine=_machine_report(node.machine),
        resources={name: _resource_report(resource) for name, resource in sorted(state.devices.resources.items())},
        cpus=_cpu_report(state.cpus) if state.cpus else None,
        memory=_memory_reports(state.memory) if state.memory else None,
        held=tuple(_holding(state, key) for key in sorted(holders(state))),
    )


def _machine_report(machine: Machine) -> MachineReport:
    groups: dict[tuple[int, int, int], list[Cpu]] = {}
    for cpu in machine.cpus:
        groups.setdefault((cpu.numa, cpu.socket, cpu.uncore), []).append(cpu)
    return MachineReport(
        numa_nodes=machine.numa_nodes,
        cpus=tuple(_cpu_group(*where, cpus) for where, cpus in sorted(groups.items())),
        num_sockets=machine.num_sockets,
    )


def _cpu_group(numa: int, socket: int, uncore: int, cpus: list[Cpu]) -> CpuGroup:
    runs: list[tuple[int, int]] = []
    for cpu in cpus:
        if runs and cpu.core == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((cpu.core, 1))
    return CpuGroup(numa, socket, uncore, format_cpuset(cpuset_of(cpu.cpu for cpu in cpus)), tuple(runs))


def _resource_report(resource: PluginResource) -> ResourceReport:
    groups: dict[tuple[tuple[int, ...] | None, bool], list[str]] = {}
    for id_, device in resource.devices.items():
        groups.setdefault((device.numa_nodes, id_ in resource.healthy), []).append(id_)
    return ResourceReport(
        groups=tuple(
            DeviceGroup(numa, healthy, compact_ids(ids))
            for (numa, healthy), ids in sorted(groups.items(), key=lambda group: (group[0][0] or (), str(group[0])))
        ),
        pre_start_required=resource.options.pre_start_required,
        preferred_allocation=resource.options.preferred_allocation,
        unlisted=not resource.is_listed,
    )


def _cpu_report(cpus: CpuState) -> CpuReport:
    return CpuReport(format_cpuset(cpus.default), format_cpuset(cpus.reserved))


def _memory_reports(memory: MemoryState) -> tuple[MemoryNodeReport, ...]:
    return tuple(_memory_report(number, node) for number, node in sorted(memory.nodes.items()))


def _memory_report(number: int, node: MemoryNode) -> MemoryNodeReport:
    tables = {
        name: (table.total, table.system_reserved, table.allocatable, table.reserved, table.free)
        for name, table in node.tables.items()
    }
    return MemoryNodeReport(number, nodes_of(node.group), node.assignments, tables)


def _holding(state: KubeletState, key: ContainerKey) -> Holding:
    devices = {name: compact_ids(of.device_ids) for name, of in state.devices.held.get(key, {}).items()}
    blocks = state.memory.blocks.get(key) if state.memory else None
    return Holding(
        *key,
        devices=devices,
        cpus=format_cpuset(state.cpus.exclusive.get(key, 0)) if state.cpus else "",
        memory=None if blocks is None else tuple((nodes_of(b.nodes), b.resource, b.size) for b in blocks),
    )
