"""The managers that give containers something, in the order in which kubelet asks them: devices, CPUs, memory.

Each is a package of its own over its own part of the state; here they are one. A manager whose policy is none, or that
the kubelet's version does not have, is left out.
"""

from collections.abc import Collection, Generator, Sequence

import msgspec
from msgspec.structs import replace

from purser.core.kubelet import cpumanager, devicemanager, memorymanager
from purser.core.kubelet.asks import Answer, Ask, Rejection, ResourceManager
from purser.core.kubelet.cpuset import CpuSet
from purser.core.kubelet.errors import UNEXPECTED_ADMISSION_ERROR
from purser.core.kubelet.hints import Hint, ProviderHints
from purser.core.kubelet.pod import KubeletContainer, KubeletPod
from purser.core.kubelet.state import ContainerKey, KubeletNode, KubeletState, MemoryState
from purser.core.kubelet.versions import behaviour


class Reusable(msgspec.Struct, frozen=True):
    """What a pod's init containers leave to the containers after them."""

    devices: devicemanager.Reusable = {}
    cpus: CpuSet = 0
    memory: memorymanager.Reusable = {}


class Turn(msgspec.Struct, frozen=True):
    """One container whose turn it is to be given what it asks for."""

    pod: KubeletPod
    container: KubeletContainer
    hint: Hint
    """The merged one."""
    active: frozenset[str] | None
    """The pods whose holdings are not freed; None: nothing is."""
    is_running: bool = False
    """It runs already, and kubelet does not know all pods yet."""


AllocationResult = tuple[KubeletState, Rejection | None, Reusable]
"""The state after an allocation, why it failed, and what the next container may use again."""


def free_all_but(state: KubeletState, active_uids: Collection[str]) -> KubeletState:
    """The state without what pods hold that are no longer active: each manager does it before it gives hints."""
    return KubeletState(
        devices=devicemanager.free_all_but(state.devices, active_uids),
        cpus=cpumanager.free_all_but(state.cpus, active_uids),
        memory=None if state.memory is None else memorymanager.free_all_but(state.memory, active_uids),
        hints={key: hint for key, hint in state.hints.items() if key[0] in active_uids},
    )


def holders(state: KubeletState) -> frozenset[ContainerKey]:
    """Every container that any manager gave something."""
    return frozenset(
        (
            *(key for key, held in state.devices.held.items() if held),
            *(state.cpus.exclusive if state.cpus else ()),
            *(state.memory.blocks if state.memory else ()),
        )
    )


def hints(
    node: KubeletNode, state: KubeletState, pod: KubeletPod, container: KubeletContainer, reusable: Reusable
) -> Sequence[ProviderHints]:
    """What the managers hint at for one container (GetTopologyHints)."""
    memory = _memory(node, state)
    return [
        devicemanager.hints(node, state.devices, pod, container, reusable.devices),
        cpumanager.hints(node, state.cpus, pod, container, reusable.cpus),
        None if memory is None else memorymanager.hints(node, memory, pod, container, reusable.memory),
    ]


def pod_hints(node: KubeletNode, state: KubeletState, pod: KubeletPod) -> Sequence[ProviderHints]:
    """What the managers hint at for a pod as a whole (GetPodTopologyHints)."""
    memory = _memory(node, state)
    return [
        devicemanager.pod_hints(node, state.devices, pod),
        cpumanager.pod_hints(node, state.cpus, pod),
        None if memory is None else memorymanager.pod_hints(node, memory, pod),
    ]


def allocate(
    node: KubeletNode, state: KubeletState, turn: Turn, reusable: Reusable
) -> Generator[Ask, Answer, AllocationResult]:
    """Give one container what it asks for. The first manager that cannot ends it; what others gave before stays.

    Each manager frees what inactive pods hold when its turn comes: one that is not reached does not.
    """
    state, refusal, reusable = yield from _allocate_devices(node, state, turn, reusable)
    for allocate_more in (_allocate_cpus, _allocate_memory):
        if refusal is None:
            state, refusal, reusable = allocate_more(node, state, turn, reusable)
    return state, refusal, reusable


def _allocate_devices(
    node: KubeletNode, state: KubeletState, turn: Turn, reusable: Reusable
) -> Generator[Ask, Answer, AllocationResult]:
    state, error, left = yield from devicemanager.allocate(
        node, state, turn.pod, turn.container, turn.hint, reusable.devices, turn.active, turn.is_running
    )
    return state, _unexpected_error(ResourceManager.DEVICE, turn, error), replace(reusable, devices=left)


def _allocate_cpus(node: KubeletNode, state: KubeletState, turn: Turn, reusable: Reusable) -> AllocationResult:
    before = state.cpus if turn.active is None else cpumanager.free_all_but(state.cpus, turn.active)
    cpus, refused, left = cpumanager.allocate(node, before, turn.pod, turn.container, turn.hint.mask, reusable.cpus)
    refusal = (
        None
        if refused is None
        else Rejection(ResourceManager.CPU, turn.container.name, refused.reason, refused.message)
    )
    return replace(state, cpus=cpus), refusal, replace(reusable, cpus=left)


def _allocate_memory(node: KubeletNode, state: KubeletState, turn: Turn, reusable: Reusable) -> AllocationResult:
    before = _memory(node, state)
    if before is None:
        return state, None, reusable
    if turn.active is not None:
        before = memorymanager.free_all_but(before, turn.active)
    memory, error, left = memorymanager.allocate(node, before, turn.pod, turn.container, turn.hint, reusable.memory)
    return (
        replace(state, memory=memory),
        _unexpected_error(ResourceManager.MEMORY, turn, error),
        replace(reusable, memory=left),
    )


def _unexpected_error(manager: ResourceManager, turn: Turn, error: str | None) -> Rejection | None:
    if error is None:
        return None
    message = f"Allocate failed due to {error}, which is unexpected"
    return Rejection(manager, turn.container.name, UNEXPECTED_ADMISSION_ERROR, message)


def _memory(node: KubeletNode, state: KubeletState) -> MemoryState | None:
    return state.memory if behaviour(node.config.parsed_version).has_memory_manager else None
