"""Nodes, devices, pods and a plugin's answers for the tests of the device manager."""

from collections.abc import Callable, Collection, Iterable

from msgspec.structs import replace

from purser.core.kubelet.asks import Allocate, Answer, Ask, FailedAnswer
from purser.core.kubelet.config import KubeletConfig
from purser.core.kubelet.devicemanager import Reusable, allocate, register, update
from purser.core.kubelet.hints import NO_AFFINITY, Hint
from purser.core.kubelet.machine import Machine, NumaNode
from purser.core.kubelet.pod import KubeletContainer, KubeletPod
from purser.core.kubelet.state import DeviceManagerState, KubeletNode, KubeletState, PluginDevice, PluginOptions
from purser.core.pod.manifest import ContainerKind

GPU = "nvidia.com/gpu"
NIC = "vendor.com/nic"
OLD, NEW = "v1.20.2", "v1.36.2"

Plugin = Callable[[Ask], Answer]


def node(version: str = NEW, numa_nodes: int = 2) -> KubeletNode:
    return KubeletNode(KubeletConfig(version=version), Machine(numa_nodes=tuple(map(NumaNode, range(numa_nodes)))))


def gpus(*numa: tuple[int, ...] | int | None, prefix: str = "gpu") -> list[PluginDevice]:
    """One device for each argument, with its NUMA node, nodes, or without topology."""
    return [
        PluginDevice(f"{prefix}{n}", numa_nodes=(nodes,) if isinstance(nodes, int) else nodes)
        for n, nodes in enumerate(numa)
    ]


def having(
    devices: Iterable[PluginDevice],
    resource: str = GPU,
    state: DeviceManagerState | None = None,
    *,
    prefers: bool = False,
) -> DeviceManagerState:
    """A node whose plugin registered and listed these."""
    options = PluginOptions(preferred_allocation=prefers)
    return update(register(state or DeviceManagerState(), resource, options), resource, devices)


def unwell(devices: Iterable[PluginDevice]) -> list[PluginDevice]:
    return [replace(device, healthy=False) for device in devices]


def container(name: str = "c", kind: ContainerKind = ContainerKind.APP, **limits: int) -> KubeletContainer:
    names = {"gpu": GPU, "nic": NIC}
    return KubeletContainer(name, kind, {names[key]: n for key, n in limits.items()})


def pod(*containers: KubeletContainer, uid: str = "uid") -> KubeletPod:
    return KubeletPod(uid, containers)


def obliging(ask: Ask) -> Answer:
    """A plugin that allocates everything and prefers nothing."""
    return b"response" if isinstance(ask, Allocate) else ()


def failing(ask: Ask) -> Answer:
    return FailedAnswer("rpc error: code = Unknown desc = no")


class Given:
    """How an allocation ended, and what it asked on its way."""

    def __init__(
        self,
        state: DeviceManagerState,
        ask: KubeletContainer,
        *,
        on: KubeletNode | None = None,
        uid: str = "uid",
        hint: Hint = NO_AFFINITY,
        reusable: Reusable | None = None,
        active: Collection[str] | None = None,
        is_running: bool = False,
        plugin: Plugin = obliging,
    ) -> None:
        self.asked: list[Ask] = []
        before = KubeletState(devices=state)
        run = allocate(on or node(), before, pod(ask, uid=uid), ask, hint, reusable or {}, active, is_running)
        try:
            question = next(run)
            while True:
                self.asked.append(question)
                question = run.send(plugin(question))
        except StopIteration as end:
            after, self.error, self.reusable = end.value
        self.state: DeviceManagerState = after.devices
        self.key = (uid, ask.name)

    def ids(self, resource: str = GPU) -> set[str]:
        held = self.state.held.get(self.key, {})
        return set(held[resource].device_ids) if resource in held else set()
