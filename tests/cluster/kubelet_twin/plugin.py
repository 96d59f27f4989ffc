"""The device plugin that both kubelets are given: it does what its script says, and remembers what it was asked."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from purser.agent.kubeletapi.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from purser.agent.kubeletapi.pluginregistration.v1 import api_pb2 as registration_pb2
from purser.agent.kubeletapi.pluginregistration.v1 import api_pb2_grpc as registration_grpc

# A Go server refuses the authority that grpcio makes of a unix socket's path.
CHANNEL_OPTIONS = (("grpc.default_authority", "localhost"),)

Context = grpc.aio.ServicerContext[Any, Any]
Call = tuple[Any, ...]
"""Name of the call, then what it named: device ids as frozensets."""


@dataclass
class Script:
    """What a plugin has and does; changed while it runs."""

    healthy: tuple[str, ...] = ()
    unhealthy: tuple[str, ...] = ()
    numa: tuple[int, ...] | None = (0,)
    """NUMA nodes of every device; None: devices without topology."""
    preferred: bool = True
    """Whether it has GetPreferredAllocation: what must be included, and then the smallest ids."""
    pre_start: bool = False
    prefers: tuple[str, ...] | None = None
    """What it prefers whatever is available."""
    preferred_error: str = ""
    allocate_error: str = ""
    pre_start_error: str = ""
    answers_nothing: bool = False
    """Allocate is answered without any container."""
    during_allocate: Callable[[], Awaitable[None]] | None = field(default=None, compare=False)


class Plugin(api_pb2_grpc.DevicePluginServicer, registration_grpc.RegistrationServicer):
    """One resource's plugin for one kubelet."""

    def __init__(self, resource: str, script: Script, by_watcher: bool = False, socket: str = "") -> None:
        self.resource = resource
        self._addition = socket
        self.by_watcher = by_watcher
        """Whether kubelet finds it by its socket."""
        self.script = script
        self.calls: list[Call] = []
        self._streams: list[asyncio.Queue[list[api_pb2.Device]]] = []
        self._server: grpc.aio.Server | None = None
        self._socket: Path | None = None

    @property
    def endpoint(self) -> str:
        """File name of its socket."""
        return f"{self.resource.replace('/', '-')}{self._addition}.sock"

    async def serve(self, folder: Path) -> None:
        """Serve in a folder; who registers it is another matter."""
        self._socket = folder / self.endpoint
        self._socket.unlink(missing_ok=True)
        self._server = grpc.aio.server()
        api_pb2_grpc.add_DevicePluginServicer_to_server(self, self._server)
        registration_grpc.add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self._socket}")
        await self._server.start()

    def withdraw(self) -> None:
        """Remove its socket, and go on with who is connected."""
        if self._socket is not None:
            self._socket.unlink(missing_ok=True)

    async def stop(self) -> None:
        """Go away, as a process that ends; its socket goes with it."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None
        self.withdraw()

    async def register(self, folder: Path, version: str = "v1beta1") -> None:
        """Introduce itself to the kubelet whose socket is in a folder. Raises grpc.aio.AioRpcError."""
        request = api_pb2.RegisterRequest(
            version=version, endpoint=self.endpoint, resource_name=self.resource, options=self._options()
        )
        async with grpc.aio.insecure_channel(f"unix:{folder / 'kubelet.sock'}", options=CHANNEL_OPTIONS) as channel:
            await api_pb2_grpc.RegistrationStub(channel).Register(request, wait_for_ready=True, timeout=30)

    def tell(self) -> None:
        """Send the devices of the script to kubelet."""
        for queue in self._streams:
            queue.put_nowait(self._devices())

    # --- what kubelet calls

    async def GetDevicePluginOptions(self, request: api_pb2.Empty, context: Context) -> api_pb2.DevicePluginOptions:
        return self._options()

    async def ListAndWatch(self, request: api_pb2.Empty, context: Context) -> AsyncIterator[Any]:
        queue: asyncio.Queue[list[api_pb2.Device]] = asyncio.Queue()
        queue.put_nowait(self._devices())
        self._streams.append(queue)
        try:
            while True:
                yield api_pb2.ListAndWatchResponse(devices=await queue.get())
        finally:
            self._streams.remove(queue)

    async def GetPreferredAllocation(
        self, request: api_pb2.PreferredAllocationRequest, context: Context
    ) -> api_pb2.PreferredAllocationResponse:
        [asked] = request.container_requests
        available, must = frozenset(asked.available_deviceIDs), frozenset(asked.must_include_deviceIDs)
        self.calls.append(("GetPreferredAllocation", available, must, asked.allocation_size))
        if self.script.preferred_error:
            await context.abort(grpc.StatusCode.UNKNOWN, self.script.preferred_error)
        ids = self.script.prefers
        if ids is None:
            ids = tuple(sorted(must) + sorted(available - must))[: asked.allocation_size]
        answer = api_pb2.ContainerPreferredAllocationResponse(deviceIDs=ids)
        return api_pb2.PreferredAllocationResponse(container_responses=[answer])

    async def Allocate(self, request: api_pb2.AllocateRequest, context: Context) -> api_pb2.AllocateResponse:
        [asked] = request.container_requests
        self.calls.append(("Allocate", frozenset(asked.devices_ids)))
        if self.script.allocate_error:
            await context.abort(grpc.StatusCode.UNKNOWN, self.script.allocate_error)
        if self.script.during_allocate is not None:
            await self.script.during_allocate()
        if self.script.answers_nothing:
            return api_pb2.AllocateResponse()
        answer = api_pb2.ContainerAllocateResponse(envs={self._variable: ",".join(sorted(asked.devices_ids))})
        return api_pb2.AllocateResponse(container_responses=[answer])

    async def PreStartContainer(
        self, request: api_pb2.PreStartContainerRequest, context: Context
    ) -> api_pb2.PreStartContainerResponse:
        self.calls.append(("PreStartContainer", frozenset(request.devices_ids)))
        if self.script.pre_start_error:
            await context.abort(grpc.StatusCode.UNKNOWN, self.script.pre_start_error)
        return api_pb2.PreStartContainerResponse()

    async def GetInfo(self, request: registration_pb2.InfoRequest, context: Context) -> registration_pb2.PluginInfo:
        """Of the other way to register: kubelet finds the socket."""
        return registration_pb2.PluginInfo(type="DevicePlugin", name=self.resource, supported_versions=["v1beta1"])

    async def NotifyRegistrationStatus(
        self, request: registration_pb2.RegistrationStatus, context: Context
    ) -> registration_pb2.RegistrationStatusResponse:
        self.calls.append(("NotifyRegistrationStatus", request.plugin_registered, request.error))
        return registration_pb2.RegistrationStatusResponse()

    # ---

    @property
    def _variable(self) -> str:
        return f"TEST_{self.resource.partition('/')[2].upper()}"

    def _options(self) -> api_pb2.DevicePluginOptions:
        return api_pb2.DevicePluginOptions(
            pre_start_required=self.script.pre_start, get_preferred_allocation_available=self.script.preferred
        )

    def _devices(self) -> list[api_pb2.Device]:
        topology = None
        if self.script.numa is not None:
            topology = api_pb2.TopologyInfo(nodes=[api_pb2.NUMANode(ID=node) for node in self.script.numa])
        states = ((self.script.healthy, "Healthy"), (self.script.unhealthy, "Unhealthy"))
        return [api_pb2.Device(ID=id_, health=health, topology=topology) for ids, health in states for id_ in ids]
