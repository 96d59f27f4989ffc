"""Machines, nodes and pods for the tests of the CPU manager."""

from purser.core.kubelet.config import CpuOptions, CpuPolicy, KubeletConfig
from purser.core.kubelet.machine import DiscoveredCore, DiscoveredNode, Machine, NumaNode, discover
from purser.core.kubelet.pod import KubeletContainer, KubeletPod, QosClass
from purser.core.kubelet.state import KubeletNode
from purser.core.pod.manifest import ContainerKind


def machine(
    sockets: int = 1,
    numa_per_socket: int = 1,
    cores: int = 4,
    threads: int = 2,
    *,
    caches: int = 1,
    without_cpus: int = 0,
) -> Machine:
    """A regular machine that numbers the first threads of all cores before the second ones; ``cores`` per NUMA node in
    ``caches`` uncore caches each; behind them NUMA nodes without CPUs."""
    numas = sockets * numa_per_socket
    found = [
        DiscoveredNode(
            NumaNode(numa),
            tuple(
                DiscoveredCore(
                    tuple(thread * numas * cores + numa * cores + core for thread in range(threads)),
                    socket=numa // numa_per_socket,
                    uncore=numa * caches + core * caches // cores,
                )
                for core in range(cores)
            ),
        )
        for numa in range(numas)
    ]
    empty = [DiscoveredNode(NumaNode(numas + place)) for place in range(without_cpus)]
    return discover([*found, *empty], num_sockets=sockets)


def node(machine: Machine, *, version: str = "v1.36.2", reserved: str = "0", **options: bool) -> KubeletNode:
    """A node with policy static."""
    return KubeletNode(
        KubeletConfig(
            version=version, cpu_policy=CpuPolicy.STATIC, cpu_options=CpuOptions(**options), reserved_cpus=reserved
        ),
        machine,
    )


def container(name: str, cpus: float, kind: ContainerKind = ContainerKind.APP) -> KubeletContainer:
    amounts = {"cpu": round(cpus * 1000), "memory": 1 << 20}
    return KubeletContainer(name, kind, amounts, amounts)


def pod(*containers: KubeletContainer, uid: str = "pod", qos: QosClass = QosClass.GUARANTEED) -> KubeletPod:
    return KubeletPod(uid, containers, qos)
