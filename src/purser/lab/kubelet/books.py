"""The state of one kubelet: the twin's state of its node, and its checkpoint files.

There are two concurrent writers. Plugins change the set of devices (`Books.tell`, `Books.forget_expired`). Allocations
are changed by an admission, or between two of them by the CPU manager's reconcile loop and by requests for pods
(`Books.commit`; `purser.lab.kubelet.podworkers` serialises them). Each change only replaces its half, so that a list of
devices that arrives during an admission is not lost.

The files of CPUs and memory follow every change, the device manager's checkpoint does not: see `Books.checkpoint`.
"""

from collections.abc import Collection

from msgspec.structs import replace

from purser.core.kubelet import devicemanager
from purser.core.kubelet.asks import ResourceManager
from purser.core.kubelet.cpuset import CpuSet
from purser.core.kubelet.masks import Mask
from purser.core.kubelet.state import ContainerKey, DeviceManagerState, KubeletNode, KubeletState
from purser.core.kubelet.versions import Behaviour, behaviour
from purser.lab.kubelet.statefiles import StateFiles


class Books:
    """The books of one kubelet, from its start to its end. Nothing is written before `open` or the first change."""

    def __init__(self, node: KubeletNode, state: KubeletState, files: StateFiles) -> None:
        self.node = node
        self.state = state
        self._files = files
        self._last_admission: dict[ResourceManager, str] = {}
        """Uid of the pod that each manager was asked about last, where the kubelet's version keeps it."""

    def open(self) -> None:
        """Write the files of CPUs and memory, as kubelet does at its start."""
        self._files.save(self.state)

    @property
    def devices(self) -> DeviceManagerState:
        """The device manager's state."""
        return self.state.devices

    @property
    def behaviour(self) -> Behaviour:
        """What is special about the kubelet's version."""
        return behaviour(self.node.config.parsed_version)

    def checkpoint(self) -> None:
        """Write the device manager's file, as kubelet does with each list of a plugin, with the devices of each
        container, and when it forgets a resource: not when devices come free, nor when a plugin goes away."""
        self._files.save_devices(self.devices)

    def tell(self, devices: DeviceManagerState) -> None:
        """Take over what plugins changed: resources, and those that are gone."""
        self._set(replace(self.state, devices=devicemanager.with_plugins_of(self.devices, devices)))

    def commit(self, state: KubeletState) -> None:
        """Take over what an admission changed: everything except plugins' reports."""
        self._set(replace(state, devices=devicemanager.with_plugins_of(state.devices, self.devices)))

    def forget_expired(self, now_s: float) -> devicemanager.Capacity:
        """Forget the resources whose plugin stayed away for too long; what the node has of device resources then."""
        devices, capacity = devicemanager.capacity(self.devices, now_s)
        if devices is not self.devices:
            self.tell(devices)
            self.checkpoint()
            self.checkpoint()
        return capacity

    def asked(self, manager: ResourceManager, uid: str) -> None:
        """A manager was asked about a pod in the course of its admission."""
        if self.behaviour.keeps_last_admission:
            self._last_admission[manager] = uid

    def alive(self, manager: ResourceManager, active: Collection[str]) -> frozenset[str]:
        """The uids of pods that a manager takes nothing from while no pod is being admitted."""
        last = self._last_admission.get(manager)
        return frozenset(active) if last is None else frozenset(active) | {last}

    def cpus_of(self, key: ContainerKey) -> CpuSet:
        """The CPUs that a container may run on: its own, else the shared ones."""
        cpus = self.state.cpus
        return self.node.machine.all_cpus if cpus is None else cpus.exclusive.get(key, cpus.default)

    def memory_nodes_of(self, key: ContainerKey) -> Mask:
        """The NUMA nodes that a container's memory may come from."""
        blocks = self.state.memory.blocks.get(key, ()) if self.state.memory else ()
        nodes = 0
        for block in blocks:
            nodes |= block.nodes
        return nodes or self.node.machine.nodes_mask

    def _set(self, state: KubeletState) -> None:
        self.state = state
        self._files.save(state)
