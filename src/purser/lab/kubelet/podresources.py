"""kubelet's PodResources API: which container holds which devices, CPUs and memory, for clients on the node.

It takes no lock and answers in the midst of an admission: the pod under admission is listed, its containers still
without what they are about to get; pods that wait behind it are not. What a version lists is `versions.Behaviour`'s.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from purser.agent.kubeletapi.podresources.v1 import api_pb2, api_pb2_grpc
from purser.core.kubelet import devicemanager
from purser.core.kubelet.cpuset import CpuSet, cpus_of
from purser.core.kubelet.masks import nodes_of
from purser.core.kubelet.state import ContainerKey, KubeletState, MemoryBlock
from purser.lab.kubelet.books import Books
from purser.lab.kubelet.serving import SOCKET_NAME, SocketServer


@dataclass(frozen=True, slots=True)
class KnownPod:
    """A pod that kubelet knows, with the containers that PodResources lists (apps, and sidecars in newer ones)."""

    uid: str
    namespace: str
    name: str
    containers: tuple[str, ...]
    holds_devices: bool = True
    """False: it is over, and kubelet takes its devices before it lists."""


class PodResourcesServer(api_pb2_grpc.PodResourcesListerServicer):
    """The service on its socket."""

    def __init__(self, folder: Path, books: Books, pods: Callable[[], Iterable[KnownPod]]) -> None:
        self._books = books
        self._pods = pods
        self._server = SocketServer(
            folder / SOCKET_NAME, partial(api_pb2_grpc.add_PodResourcesListerServicer_to_server, self)
        )

    async def start(self) -> None:
        """Serve."""
        await self._server.start()

    async def stop(self) -> None:
        """As when kubelet's process ends."""
        await self._server.stop()

    async def List(
        self, request: api_pb2.ListPodResourcesRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> api_pb2.ListPodResourcesResponse:
        """Every pod that kubelet knows."""
        return api_pb2.ListPodResourcesResponse(pod_resources=[self._pod(pod) for pod in self._pods()])

    async def Get(
        self, request: api_pb2.GetPodResourcesRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> api_pb2.GetPodResourcesResponse:
        """One pod."""
        behaviour = self._books.behaviour
        if behaviour.refuses_pod_resources_get:
            await context.abort(grpc.StatusCode.UNKNOWN, "PodResources API Get method disabled")
        if not behaviour.has_pod_resources_get:
            await _abort_unknown_method(context, "Get")
        for pod in self._pods():
            if (pod.namespace, pod.name) == (request.pod_namespace, request.pod_name):
                return api_pb2.GetPodResourcesResponse(pod_resources=self._pod(pod))
        message = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
        await context.abort(grpc.StatusCode.UNKNOWN, message)
        raise AssertionError("abort raises")

    async def GetAllocatableResources(
        self, request: api_pb2.AllocatableResourcesRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> api_pb2.AllocatableResourcesResponse:
        """What can be given out: every healthy device, and what the static policies manage."""
        behaviour = self._books.behaviour
        if behaviour.refuses_allocatable_resources:
            await context.abort(grpc.StatusCode.UNKNOWN, "Pod Resources API GetAllocatableResources disabled")
        if not behaviour.has_allocatable_resources:
            await _abort_unknown_method(context, "GetAllocatableResources")
        state = self._books.state
        return api_pb2.AllocatableResourcesResponse(
            devices=list(_allocatable_devices(state)),
            cpu_ids=cpus_of(self._books.node.machine.all_cpus & ~state.cpus.reserved) if state.cpus else (),
            memory=list(_allocatable_memory(state)),
        )

    def _pod(self, pod: KnownPod) -> api_pb2.PodResources:
        containers = [self._container((pod.uid, name), pod.holds_devices) for name in pod.containers]
        return api_pb2.PodResources(name=pod.name, namespace=pod.namespace, containers=containers)

    def _container(self, key: ContainerKey, holds_devices: bool) -> api_pb2.ContainerResources:
        state = self._books.state
        blocks = state.memory.blocks.get(key, ()) if state.memory else ()
        return api_pb2.ContainerResources(
            name=key[1],
            devices=list(_devices(state, key)) if holds_devices else (),
            cpu_ids=cpus_of(self._cpus(key)),
            memory=[_memory(block) for block in blocks],
        )

    def _cpus(self, key: ContainerKey) -> CpuSet:
        cpus = self._books.state.cpus
        if cpus is None:
            return 0
        return cpus.exclusive.get(key, 0 if self._books.behaviour.lists_exclusive_cpus_only else cpus.default)


async def _abort_unknown_method(context: grpc.aio.ServicerContext[Any, Any], method: str) -> None:
    """Does not return: `abort` raises."""
    message = f"unknown method {method} for service v1.PodResourcesLister"
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, message)


def _devices(state: KubeletState, key: ContainerKey) -> Iterator[api_pb2.ContainerDevices]:
    for resource, allocation in devicemanager.held_by(state.devices, key).items():
        for node, ids in allocation.devices_per_numa.items():
            yield api_pb2.ContainerDevices(resource_name=resource, device_ids=ids, topology=_topology((node,)))


def _allocatable_devices(state: KubeletState) -> Iterator[api_pb2.ContainerDevices]:
    for resource, devices in devicemanager.allocatable(state.devices).items():
        for device in devices:
            topology = _topology(device.numa_nodes or ())
            yield api_pb2.ContainerDevices(resource_name=resource, device_ids=[device.id], topology=topology)


def _allocatable_memory(state: KubeletState) -> Iterator[api_pb2.ContainerMemory]:
    for number, node in state.memory.nodes.items() if state.memory else ():
        for resource, table in node.tables.items():
            if table.allocatable:
                topology = _topology((number,))
                yield api_pb2.ContainerMemory(memory_type=resource, size=table.allocatable, topology=topology)


def _memory(block: MemoryBlock) -> api_pb2.ContainerMemory:
    return api_pb2.ContainerMemory(
        memory_type=block.resource, size=block.size, topology=_topology(nodes_of(block.nodes))
    )


def _topology(nodes: Iterable[int]) -> api_pb2.TopologyInfo | None:
    found = [api_pb2.NUMANode(ID=node) for node in nodes if node >= 0]
    return api_pb2.TopologyInfo(nodes=found) if found else None
