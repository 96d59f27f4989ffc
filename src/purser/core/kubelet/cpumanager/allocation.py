"""Gives a container its exclusive CPUs, or says why not."""

import msgspec

from purser.core.kubelet.cpumanager.picking import take_cpus
from purser.core.kubelet.cpumanager.requests import guaranteed_cpus
from purser.core.kubelet.cpumanager.taking import NotTakenError
from purser.core.kubelet.cpumanager.topology import CpuTopology, topology_of
from purser.core.kubelet.cpumanager.topology_hints import assignable_cpus
from purser.core.kubelet.cpuset import CpuSet
from purser.core.kubelet.errors import UNEXPECTED_ADMISSION_ERROR
from purser.core.kubelet.masks import Mask, nodes_of
from purser.core.kubelet.pod import KubeletContainer, KubeletPod, releases_resources
from purser.core.kubelet.state import CpuState, KubeletNode
from purser.core.kubelet.versions import behaviour

SMT_ALIGNMENT_ERROR = "SMTAlignmentError"


class CpuRefusal(msgspec.Struct, frozen=True):
    """Why a container got no CPUs."""

    reason: str
    """The pod's status.reason."""
    error: str
    """The error of the CPU manager."""

    @property
    def message(self) -> str:
        """The pod's status.message, without the prefix that kubelet's version puts before it."""
        if self.reason == UNEXPECTED_ADMISSION_ERROR:
            return f"Allocate failed due to {self.error}, which is unexpected"
        return self.error


CpuAllocation = tuple[CpuState | None, CpuRefusal | None, CpuSet]
"""The state after it, why nothing was given, and what later containers of the pod may take over."""


def allocate(
    node: KubeletNode,
    state: CpuState | None,
    pod: KubeletPod,
    container: KubeletContainer,
    mask: Mask | None,
    reusable: CpuSet,
) -> CpuAllocation:
    """Give one container its exclusive CPUs: those on the NUMA nodes of the merged hint first, then any.

    A container that asks for none stays in the shared pool; one that has some keeps them. ``mask``: None for no
    preference. ``reusable``: what earlier containers of the pod left, 0 for its first.
    """
    requested = guaranteed_cpus(pod, container)
    if state is None or not requested:
        return state, None, reusable
    held = state.exclusive.get((pod.uid, container.name))
    if held is None or not behaviour(node.config.parsed_version).keeps_parts_of_cores:
        refused = _check_whole_cores(node, state, requested)
        if refused is not None:
            return state, refused, reusable
    if held is None:
        try:
            held = take_aligned(node, assignable_cpus(state) | reusable, mask, requested)
        except NotTakenError as error:
            return state, CpuRefusal(UNEXPECTED_ADMISSION_ERROR, str(error)), reusable
        state = _assign_cpus(state, pod, container, held)
    is_reusable = releases_resources(behaviour(node.config.parsed_version), container)
    return state, None, reusable | held if is_reusable else reusable & ~held


def _assign_cpus(state: CpuState, pod: KubeletPod, container: KubeletContainer, cpus: CpuSet) -> CpuState:
    exclusive = {**state.exclusive, (pod.uid, container.name): cpus}
    return CpuState(default=state.default & ~cpus, reserved=state.reserved, exclusive=exclusive)


def _check_whole_cores(node: KubeletNode, state: CpuState, requested: int) -> CpuRefusal | None:
    """The option full-pcpus-only."""
    if not node.config.cpu_options.full_pcpus_only:
        return None
    switches, per_core = behaviour(node.config.parsed_version), topology_of(node).cpus_per_core
    message = f"SMT Alignment Error: requested {requested} cpus not multiple cpus per core = {per_core}"
    if requested % per_core:
        return CpuRefusal(SMT_ALIGNMENT_ERROR, message)
    free = (state.default & ~_reserved_cores(node, state)).bit_count()
    if not switches.checks_free_physical_cpus or requested <= free:
        return None
    if not free and not switches.names_exhausted_physical_cpus:
        return CpuRefusal(SMT_ALIGNMENT_ERROR, message)
    return CpuRefusal(
        SMT_ALIGNMENT_ERROR,
        f"SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {free}, "
        f"requested CPUs = {requested}, CPUs per core = {per_core}",
    )


def _reserved_cores(node: KubeletNode, state: CpuState) -> CpuSet:
    """Every thread of the cores that have a reserved one."""
    return sum(core for core in node.machine.cpus_by_core.values() if core & state.reserved)


def take_aligned(node: KubeletNode, available: CpuSet, mask: Mask | None, count: int) -> CpuSet:
    """``count`` of the available CPUs, those that are aligned with the mask first. Raises `NotTakenError`."""
    config, topology = node.config, topology_of(node)
    switches = behaviour(config.parsed_version)
    chosen: CpuSet = 0
    if mask is not None:
        aligned = available & _aligned(topology, mask, by_socket=config.cpu_options.align_by_socket)
        some = min(count, aligned.bit_count())
        chosen = take_cpus(switches, config.cpu_options, topology, aligned, some)
    rest = count - chosen.bit_count()
    return chosen | take_cpus(switches, config.cpu_options, topology, available & ~chosen, rest)


def _aligned(topology: CpuTopology, mask: Mask, *, by_socket: bool) -> CpuSet:
    """The CPUs of the mask's NUMA nodes, or of all sockets that they belong to."""
    machine = topology.machine
    on_nodes = sum(machine.cpus_by_numa.get(numa, 0) for numa in nodes_of(mask))
    if not by_socket:
        return on_nodes
    return sum(cpus for cpus in machine.cpus_by_socket.values() if cpus & on_nodes)
