"""Takes CPUs back from containers that are gone."""

from collections.abc import Collection, Iterable

from purser.core.kubelet.cpuset import CpuSet
from purser.core.kubelet.state import ContainerKey, CpuState, KubeletNode
from purser.core.kubelet.versions import behaviour


def remove(node: KubeletNode, state: CpuState | None, container: ContainerKey) -> CpuState | None:
    """The state without one container; as it is where that has no CPUs of its own.

    What another container of the pod holds too (an app container has them from an init container) stays with it; up to
    1.23 it went back to the shared pool nevertheless."""
    if state is None or container not in state.exclusive:
        return state
    exclusive = {key: cpus for key, cpus in state.exclusive.items() if key != container}
    released = state.exclusive[container]
    if behaviour(node.config.parsed_version).keeps_cpus_of_siblings:
        released &= ~_held(exclusive[key] for key in exclusive if key[0] == container[0])
    return CpuState(default=state.default | released, reserved=state.reserved, exclusive=exclusive)


def free_all_but(state: CpuState | None, active_uids: Collection[str]) -> CpuState | None:
    """The state without the containers of all pods but these (removeStaleState)."""
    if state is None:
        return None
    exclusive = {key: cpus for key, cpus in state.exclusive.items() if key[0] in active_uids}
    if len(exclusive) == len(state.exclusive):
        return state
    released = _held(cpus for key, cpus in state.exclusive.items() if key not in exclusive)
    return CpuState(default=state.default | released, reserved=state.reserved, exclusive=exclusive)


def _held(cpusets: Iterable[CpuSet]) -> CpuSet:
    held = 0
    for cpus in cpusets:
        held |= cpus
    return held
