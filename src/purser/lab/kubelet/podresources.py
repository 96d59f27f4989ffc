"""kubelet's PodResources API: who holds which device, asked by anybody on the node.

It takes no lock and answers in the midst of an admission: the pod under admission is listed, its containers still
without what they are about to get; pods that wait behind it are not.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from purser.agent.kubeletapi.podresources.v1 import api_pb2, api_pb2_grpc
from purser.lab.kubelet.devicemanager import Allocation, DeviceManager

SOCKET_NAME = "kubelet.sock"


@dataclass(frozen=True, slots=True)
class ListedPod:
    """A pod that kubelet knows, with the containers that PodResources lists (apps, and sidecars from 1.29 on)."""

    uid: str
    namespace: str
    name: str
    containers: tuple[str, ...]


class PodResourcesServer(api_pb2_grpc.PodResourcesListerServicer):
    """The service on its socket."""

    def __init__(self, folder: Path, manager: DeviceManager, pods: Callable[[], Iterable[ListedPod]]) -> None:
        self._folder = folder
        self._manager = manager
        self._pods = pods
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Serve; a socket left over by the kubelet before is removed."""
        self._folder.mkdir(parents=True, exist_ok=True)
        socket = self._folder / SOCKET_NAME
        socket.unlink(missing_ok=True)
        self._server = grpc.aio.server()
        api_pb2_grpc.add_PodResourcesListerServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{socket}")
        await self._server.start()

    async def stop(self) -> None:
        """As when kubelet's process ends."""
        if self._server is not None:
            await self._server.stop(None)

    async def List(
        self, request: api_pb2.ListPodResourcesRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> api_pb2.ListPodResourcesResponse:
        """Every pod that kubelet knows."""
        return api_pb2.ListPodResourcesResponse(pod_resources=[self._pod(pod) for pod in self._pods()])

    async def Get(
        self, request: api_pb2.GetPodResourcesRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> api_pb2.GetPodResourcesResponse:
        """One pod; from 1.27 on."""
        if self._manager.version < (1, 27):
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method Get for service v1.PodResourcesLister")
        for pod in self._pods():
            if (pod.namespace, pod.name) == (request.pod_namespace, request.pod_name):
                return api_pb2.GetPodResourcesResponse(pod_resources=self._pod(pod))
        message = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
        await context.abort(grpc.StatusCode.UNKNOWN, message)
        raise AssertionError("abort raises")

    async def GetAllocatableResources(
        self, request: api_pb2.AllocatableResourcesRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> api_pb2.AllocatableResourcesResponse:
        """Every registered device, healthy or not; from 1.21 on."""
        if self._manager.version < (1, 21):
            message = "unknown method GetAllocatableResources for service v1.PodResourcesLister"
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, message)
        devices = [
            api_pb2.ContainerDevices(
                resource_name=resource, device_ids=[device.id], topology=_topology(device.numa_nodes)
            )
            for resource, of_resource in self._manager.devices().items()
            for device in of_resource
        ]
        return api_pb2.AllocatableResourcesResponse(devices=devices)

    def _pod(self, pod: ListedPod) -> api_pb2.PodResources:
        containers = [
            api_pb2.ContainerResources(name=name, devices=_devices(self._manager.held(pod.uid, name)))
            for name in pod.containers
        ]
        return api_pb2.PodResources(name=pod.name, namespace=pod.namespace, containers=containers)


def _devices(held: Mapping[str, Allocation]) -> list[api_pb2.ContainerDevices]:
    return [
        api_pb2.ContainerDevices(resource_name=resource, device_ids=ids, topology=_topology((node,)))
        for resource, allocation in held.items()
        for node, ids in allocation.devices_per_numa.items()
    ]


def _topology(nodes: tuple[int, ...]) -> api_pb2.TopologyInfo | None:
    found = [api_pb2.NUMANode(ID=node) for node in nodes if node >= 0]
    return api_pb2.TopologyInfo(nodes=found) if found else None
