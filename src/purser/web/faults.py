"""Faults that a state document tells of a node, shown on its GPUs: whoever looks for what is broken looks there."""

from collections.abc import Iterator

import msgspec

from purser.core.model import DeviceMode
from purser.core.names import NO_MIG_DEVICES, UNSERVED_REASONS
from purser.core.state import ClusterState, StateCutGpu, StateGpu, StateGpuHealth, StateNode

_NOT_READY = {
    "NotReady": "the node is not ready: its kubelet reports a problem",
    "Unknown": "the node is not ready: its kubelet does not respond",
}


def with_faults(state: ClusterState) -> ClusterState:
    """The document, in which GPUs of nodes that are not ready are unhealthy, and so are GPUs in MIG mode that have no
    MIG device. The same object where there are none."""
    nodes = tuple(_node(each) for each in state.nodes)
    is_same = all(new is old for new, old in zip(nodes, state.nodes, strict=True))
    return state if is_same else msgspec.structs.replace(state, nodes=nodes)


def is_not_ready(node: StateNode) -> bool:
    """Whether kubelet is not; False where the document does not say."""
    return node.ready in _NOT_READY


def _node(node: StateNode) -> StateNode:
    gpus = (*node.gpus, *_empty_gpus(node)) if node.cut_gpus else node.gpus
    if is_not_ready(node):
        gpus = tuple(_on_lost_node(gpu, _NOT_READY[node.ready]) for gpu in gpus)
    return node if gpus is node.gpus or gpus == node.gpus else msgspec.structs.replace(node, gpus=gpus)


def _on_lost_node(gpu: StateGpu, reason: str) -> StateGpu:
    """What else keeps pods from it stays, but for what follows from the node's own state."""
    if gpu.health is not StateGpuHealth.HEALTHY and gpu.reason not in UNSERVED_REASONS:
        return gpu
    return msgspec.structs.replace(gpu, health=StateGpuHealth.UNHEALTHY, reason=reason)


def _empty_gpus(node: StateNode) -> Iterator[StateGpu]:
    parents = {gpu.parent for gpu in node.gpus}
    return (_empty(each) for each in node.cut_gpus if each.uuid not in parents)


def _empty(gpu: StateCutGpu) -> StateGpu:
    return StateGpu(
        uuid=gpu.uuid,
        index=gpu.index,
        model=gpu.model,
        mode=str(DeviceMode.MIG),
        resource="",
        parent="",
        health=StateGpuHealth.UNHEALTHY,
        reason=NO_MIG_DEVICES,
        cordoned=False,
        enforcement="",
        slots=0,
        slots_held=0,
        memory_mib=gpu.memory_mib,
        memory_held_mib=0,
        cores_percent=100,
        cores_held_percent=0,
        pods=0,
    )
