"""kubelet's PodResources API with one container in it, for plugins that ask kubelet whose call it is.

While kubelet waits for GetPreferredAllocation or Allocate it lists the pod under admission already, without devices;
so does this, until the kit says that the container has them.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from purser.agent.kubeletapi.podresources.v1 import api_pb2, api_pb2_grpc
from purser.lab.conformance.settings import PodName
from purser.lab.kubelet.serving import SocketServer


class PodResourcesServicer(api_pb2_grpc.PodResourcesListerServicer):
    """The three calls, about one container."""

    def __init__(self, socket: Path, pod: PodName) -> None:
        self._socket = socket
        self._pod = pod
        self._server = SocketServer(socket, partial(api_pb2_grpc.add_PodResourcesListerServicer_to_server, self))
        self.resource = ""
        self.held: Sequence[str] = ()
        """The container's devices in kubelet's books."""
        self.known: Sequence[str] = ()
        """Every device that kubelet could hand out."""

    async def start(self) -> None:
        """Serve."""
        await self._server.start()

    async def stop(self) -> None:
        """Leave nothing behind."""
        await self._server.stop()
        self._socket.unlink(missing_ok=True)

    async def List(self, request: api_pb2.ListPodResourcesRequest, context: object) -> api_pb2.ListPodResourcesResponse:
        """All pods."""
        return api_pb2.ListPodResourcesResponse(pod_resources=[self._listed()])

    async def Get(
        self, request: api_pb2.GetPodResourcesRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> api_pb2.GetPodResourcesResponse:
        """One pod."""
        if (request.pod_namespace, request.pod_name) != (self._pod.namespace, self._pod.pod):
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"pod {request.pod_name} in {request.pod_namespace} not found"
            )
        return api_pb2.GetPodResourcesResponse(pod_resources=self._listed())

    async def GetAllocatableResources(
        self, request: api_pb2.AllocatableResourcesRequest, context: object
    ) -> api_pb2.AllocatableResourcesResponse:
        """Every device."""
        return api_pb2.AllocatableResourcesResponse(devices=self._devices(self.known))

    def _listed(self) -> api_pb2.PodResources:
        container = api_pb2.ContainerResources(name=self._pod.container, devices=self._devices(self.held))
        return api_pb2.PodResources(name=self._pod.pod, namespace=self._pod.namespace, containers=[container])

    def _devices(self, ids: Sequence[str]) -> list[api_pb2.ContainerDevices]:
        return [api_pb2.ContainerDevices(resource_name=self.resource, device_ids=ids)] if ids else []
