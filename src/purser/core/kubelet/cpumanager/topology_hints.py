"""Topology hints for CPUs: on which NUMA nodes a container or a pod can have its exclusive CPUs."""

from collections.abc import Mapping
from itertools import combinations

from purser.core.kubelet.cpumanager.requests import guaranteed_cpus, pod_guaranteed_cpus
from purser.core.kubelet.cpumanager.topology import CpuTopology, topology_of
from purser.core.kubelet.cpuset import CpuSet
from purser.core.kubelet.hints import Hint, ResourceHints
from purser.core.kubelet.masks import Mask
from purser.core.kubelet.pod import CPU, KubeletContainer, KubeletPod
from purser.core.kubelet.state import CpuState, KubeletNode
from purser.core.kubelet.versions import behaviour

_NO_HINTS: ResourceHints = {CPU: ()}


def hints(
    node: KubeletNode, state: CpuState | None, pod: KubeletPod, container: KubeletContainer, reusable: CpuSet
) -> ResourceHints | None:
    """Hints for one container; None where it asks for no exclusive CPUs. ``reusable``: what init containers of the pod
    leave to it, as `allocate` returned it."""
    requested = guaranteed_cpus(pod, container)
    if state is None or not requested:
        return None
    held = state.exclusive.get((pod.uid, container.name))
    if held is None:
        return {CPU: _generate_hints(node, assignable_cpus(state), reusable, requested)}
    if held.bit_count() != requested:
        return _NO_HINTS
    return {CPU: _generate_hints(node, held, 0, requested)}


def pod_hints(node: KubeletNode, state: CpuState | None, pod: KubeletPod, reusable: CpuSet = 0) -> ResourceHints | None:
    """Hints for a pod as a whole; None where it asks for no exclusive CPUs."""
    requested = pod_guaranteed_cpus(behaviour(node.config.parsed_version), pod)
    if state is None or not requested:
        return None
    all_held: CpuSet = 0
    for container in pod.containers:
        held = state.exclusive.get((pod.uid, container.name))
        if held is not None and held.bit_count() != guaranteed_cpus(pod, container):
            return _NO_HINTS
        all_held |= held or 0
    if all_held.bit_count() == requested:
        return {CPU: _generate_hints(node, all_held, 0, requested)}
    return {CPU: _generate_hints(node, assignable_cpus(state), reusable | all_held, requested)}


def assignable_cpus(state: CpuState) -> CpuSet:
    """CPUs that a container may get for itself."""
    return state.default & ~state.reserved


def _generate_hints(node: KubeletNode, available: CpuSet, reusable: CpuSet, requested: int) -> tuple[Hint, ...]:
    """A hint for each set of NUMA nodes that holds all reusable CPUs and with them enough; preferred are those with as
    few nodes as the request needs on an empty machine, or with align-by-socket as few sockets.

    Only nodes that hold CPUs are combined: others add nothing but hints of the same worth."""
    topology = topology_of(node)
    by_numa = topology.machine.cpus_by_numa
    fewest = _fewest_nodes(by_numa, requested)
    counts = {numa: (cpus & available).bit_count() + (cpus & reusable).bit_count() for numa, cpus in by_numa.items()}
    needed = {numa for numa, cpus in by_numa.items() if cpus & reusable}
    by_socket = node.config.cpu_options.align_by_socket
    return tuple(
        Hint(_mask(nodes), len(nodes) == fewest or (by_socket and _is_socket_aligned(topology, nodes, fewest)))
        for width in range(max(len(needed), 1), len(by_numa) + 1)
        for nodes in combinations(by_numa, width)
        if sum(counts[numa] for numa in nodes) >= requested and needed.issubset(nodes)
    )


def _mask(nodes: tuple[int, ...]) -> Mask:
    return sum(1 << numa for numa in nodes)


def _fewest_nodes(by_numa: Mapping[int, CpuSet], requested: int) -> int:
    """How many NUMA nodes hold the request, taken CPUs and reserved ones included; all when it is too large."""
    total = 0
    for count, size in enumerate(sorted((cpus.bit_count() for cpus in by_numa.values()), reverse=True), 1):
        total += size
        if total >= requested:
            return count
    return len(by_numa)


def _is_socket_aligned(topology: CpuTopology, nodes: tuple[int, ...], fewest: int) -> bool:
    nodes_per_socket = topology.num_numa_nodes // max(topology.num_sockets, 1)
    if not nodes_per_socket:
        return False
    machine = topology.machine
    on_nodes = sum(machine.cpus_by_numa[numa] for numa in nodes)
    sockets = sum(1 for cpus in machine.cpus_by_socket.values() if cpus & on_nodes)
    return sockets == -(-fewest // nodes_per_socket)
