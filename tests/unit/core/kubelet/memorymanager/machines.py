"""Nodes and pods for the memory manager's tests."""

from collections.abc import Mapping

from purser.core.kubelet.config import KubeletConfig, MemoryPolicy
from purser.core.kubelet.machine import Machine, NumaNode
from purser.core.kubelet.pod import KubeletContainer, KubeletPod, QosClass
from purser.core.kubelet.state import KubeletNode
from purser.core.pod.manifest import ContainerKind

GIB = 1 << 30
HUGE = "hugepages-1Gi"


def node_of(
    *memory: Mapping[str, int], reserved: Mapping[int, Mapping[str, int]] | None = None, version: str = "v1.36.2"
) -> KubeletNode:
    """A node with these kinds of memory on NUMA nodes 0, 1 and so on; one byte of the first is the system's."""
    return KubeletNode(
        KubeletConfig(
            version=version,
            memory_policy=MemoryPolicy.STATIC,
            reserved_memory={0: {"memory": 1}}
            if reserved is None
            else {number: dict(amounts) for number, amounts in reserved.items()},
        ),
        Machine(numa_nodes=tuple(NumaNode(number, dict(amounts)) for number, amounts in enumerate(memory))),
    )


def container(name: str, memory: int, huge: int | None = None, kind: ContainerKind = ContainerKind.APP):
    amounts = {"cpu": 1000, "memory": memory} | ({} if huge is None else {HUGE: huge})
    return KubeletContainer(name, kind, limits=amounts, requests=amounts)


def pod(uid: str, *containers: KubeletContainer, qos: QosClass = QosClass.GUARANTEED) -> KubeletPod:
    return KubeletPod(uid, containers, qos)


def sidecar(name: str, memory: int) -> KubeletContainer:
    return container(name, memory, kind=ContainerKind.SIDECAR)


def init(name: str, memory: int) -> KubeletContainer:
    return container(name, memory, kind=ContainerKind.INIT)
