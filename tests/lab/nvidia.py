"""NVIDIA's device plugin as a kubelet meets it: whole GPUs by their UUIDs, and the ids that kubelet chose are what a
container gets."""

import asyncio
from pathlib import Path
from typing import Any

import grpc

from purser.agent.kubeletapi.channels import UNIX_SOCKET_OPTIONS
from purser.agent.kubeletapi.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from purser.lab.nodes import EmulatedNode


class NvidiaPlugin(api_pb2_grpc.DevicePluginServicer):
    """The device plugin of one node."""

    def __init__(self, node: EmulatedNode, kubelet: Path) -> None:
        """``kubelet``: the node's folder of kubelet."""
        self._node = node
        self._folder = kubelet / "device-plugins"
        self._server: grpc.aio.Server | None = None

    @property
    def ids(self) -> list[str]:
        """What kubelet may choose of."""
        return list(self._node.driver.uuids)

    async def start(self) -> None:
        socket = self._folder / "nvidia-gpu.sock"
        socket.unlink(missing_ok=True)
        self._server = grpc.aio.server()
        api_pb2_grpc.add_DevicePluginServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{socket}")
        await self._server.start()
        kubelet = f"unix:{self._folder / 'kubelet.sock'}"
        async with grpc.aio.insecure_channel(kubelet, options=UNIX_SOCKET_OPTIONS) as channel:
            request = api_pb2.RegisterRequest(version="v1beta1", endpoint=socket.name, resource_name="nvidia.com/gpu")
            await api_pb2_grpc.RegistrationStub(channel).Register(request)

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:
        return api_pb2.DevicePluginOptions()

    async def ListAndWatch(self, request: Any, context: Any) -> Any:
        yield api_pb2.ListAndWatchResponse(devices=[api_pb2.Device(ID=each, health="Healthy") for each in self.ids])
        await asyncio.get_running_loop().create_future()

    async def Allocate(self, request: Any, context: Any) -> Any:
        answers = [
            api_pb2.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": ",".join(asked.devices_ids)})
            for asked in request.container_requests
        ]
        return api_pb2.AllocateResponse(container_responses=answers)
