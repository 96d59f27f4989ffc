"""kubelet's side of the device plugin API: the Registration service, and one stream to every plugin.

What plugins say goes into the `DeviceManager`; what they are asked goes through `PluginServer`. Rules: 1.25 and newer
dial the plugin and ask for its options before they answer Register, older kubelets answer first.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc
import structlog

from purser.agent.kubeletapi.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from purser.kube.clock import Clock
from purser.lab.kubelet.devicemanager import DeviceManager, PluginDevice, PluginOptions, Question

API_VERSION = "v1beta1"
SOCKET_NAME = "kubelet.sock"
_DIAL_S = 10.0
_PRE_START_S = 30.0
CHANNEL_OPTIONS = (
    # Without it a Python client sends the escaped socket path as :authority, which Go servers refuse.
    ("grpc.default_authority", "localhost"),
    # Channels of one process share connections by address: a plugin that comes back would inherit the old one's pause.
    ("grpc.use_local_subchannel_pool", 1),
)

_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")

Answer = TypeVar("Answer")

_log = structlog.get_logger("purser.lab.kubelet")


class PluginError(Exception):
    """A plugin could not be asked or said no; the message is what kubelet would report."""


class RpcFailed(PluginError):
    """The call broke, or the plugin answered with an error."""


def is_extended_resource(name: str) -> bool:
    """Whether kubelet would take this name for a device plugin's resource."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    prefix, _, rest = f"requests.{name}".partition("/")
    is_prefix = len(prefix) <= 253 and _DNS_SUBDOMAIN.fullmatch(prefix) is not None
    return is_prefix and len(rest) <= 63 and _QUALIFIED_NAME.fullmatch(rest) is not None


def go_error(error: grpc.RpcError) -> str:
    """A gRPC error as Go prints it."""
    code = "".join(word.title() for word in error.code().name.split("_"))
    return f"rpc error: code = {code} desc = {error.details()}"


@dataclass(slots=True, eq=False)
class _Endpoint:
    resource: str
    path: Path
    channel: grpc.aio.Channel
    stub: api_pb2_grpc.DevicePluginStub
    task: asyncio.Task[None] | None = None
    is_stopped: bool = False


class PluginServer(api_pb2_grpc.RegistrationServicer):
    """The registration socket and all plugins that came through it."""

    def __init__(self, folder: Path, manager: DeviceManager, clock: Clock, on_change: Callable[[], None]) -> None:
        self._folder = folder
        self._manager = manager
        self._clock = clock
        self._on_change = on_change
        self._endpoints: dict[str, _Endpoint] = {}
        self._dials: set[asyncio.Task[None]] = set()
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Empty the folder of sockets, as kubelet does at every start, and serve."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in self._folder.iterdir():
            if path.is_socket():
                path.unlink()
        self._server = grpc.aio.server()
        api_pb2_grpc.add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self._folder / SOCKET_NAME}")
        await self._server.start()

    async def stop(self) -> None:
        """As when kubelet's process ends: streams break, nothing is told to the plugins."""
        for task in self._dials:
            task.cancel()
        for endpoint in self._endpoints.values():
            await self._close(endpoint)
        if self._server is not None:
            await self._server.stop(None)

    async def Register(
        self, request: api_pb2.RegisterRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> api_pb2.Empty:
        """One plugin introduces itself."""
        if request.version != API_VERSION:
            await context.abort(
                grpc.StatusCode.UNKNOWN,
                f'requested API version "{request.version}" is not supported by kubelet. '
                f'Supported version is ["{API_VERSION}"]',
            )
        if not is_extended_resource(request.resource_name):
            await context.abort(grpc.StatusCode.UNKNOWN, f'the ResourceName "{request.resource_name}" is invalid')
        if self._manager.version >= (1, 25):
            try:
                await self._connect(request, ask_options=True)
            except PluginError as error:
                await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        else:
            task = asyncio.create_task(self._connect_later(request))
            self._dials.add(task)
            task.add_done_callback(self._dials.discard)
        return api_pb2.Empty()

    async def preferred(self, resource: str, question: Question) -> tuple[str, ...]:
        """GetPreferredAllocation. Raises `PluginError`."""
        request = api_pb2.ContainerPreferredAllocationRequest(
            available_deviceIDs=question.available,
            must_include_deviceIDs=question.must_include,
            allocation_size=question.size,
        )
        message = api_pb2.PreferredAllocationRequest(container_requests=[request])
        try:
            answer = await self._ask(resource, lambda stub: stub.GetPreferredAllocation(message))
        except RpcFailed as error:
            raise PluginError(f"device plugin GetPreferredAllocation rpc failed with err: {error}") from error
        return tuple(answer.container_responses[0].deviceIDs) if answer.container_responses else ()

    async def allocate(self, resource: str, ids: Collection[str]) -> api_pb2.ContainerAllocateResponse:
        """Allocate for one container. Raises `PluginError`."""
        request = api_pb2.ContainerAllocateRequest(devices_ids=list(ids))
        message = api_pb2.AllocateRequest(container_requests=[request])
        answer = await self._ask(resource, lambda stub: stub.Allocate(message))
        if not answer.container_responses:
            raise PluginError(f"no containers return in allocation response {answer}")
        return answer.container_responses[0]

    async def pre_start(self, resource: str, ids: Collection[str]) -> None:
        """PreStartContainer. Raises `PluginError`."""
        message = api_pb2.PreStartContainerRequest(devices_ids=list(ids))
        try:
            await self._ask(resource, lambda stub: stub.PreStartContainer(message, timeout=_PRE_START_S))
        except RpcFailed as error:
            raise PluginError(f"device plugin PreStartContainer rpc failed with err: {error}") from error

    async def _ask(self, resource: str, call: Callable[[api_pb2_grpc.DevicePluginStub], Awaitable[Answer]]) -> Answer:
        """One call of the plugin of a resource. Raises `PluginError`, `RpcFailed` when the call itself failed."""
        endpoint = self._endpoints.get(resource)
        if endpoint is None:
            raise PluginError(f"unknown Device Plugin {resource}")
        if endpoint.is_stopped:
            raise PluginError(f"endpoint {endpoint.path} has been stopped")
        try:
            return await call(endpoint.stub)
        except grpc.aio.AioRpcError as error:
            raise RpcFailed(go_error(error)) from error
        except asyncio.CancelledError as error:
            # grpc cancels the calls of a channel that is closed, here because the plugin registered anew: that must
            # not be taken for the end of whoever asked.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise RpcFailed("rpc error: code = Canceled desc = grpc: the client connection is closing") from error

    async def _connect_later(self, request: api_pb2.RegisterRequest) -> None:
        try:
            await self._connect(request, ask_options=False)
        except PluginError as error:
            _log.error("dialling the device plugin failed", resource=request.resource_name, error=str(error))

    async def _connect(self, request: api_pb2.RegisterRequest, *, ask_options: bool) -> None:
        path = self._folder / request.endpoint
        channel = grpc.aio.insecure_channel(f"unix:{path}", options=CHANNEL_OPTIONS)
        endpoint = _Endpoint(request.resource_name, path, channel, api_pb2_grpc.DevicePluginStub(channel))
        try:
            async with asyncio.timeout(_DIAL_S):
                await channel.channel_ready()
            options = request.options
            if ask_options:
                options = await endpoint.stub.GetDevicePluginOptions(api_pb2.Empty())
        except (TimeoutError, grpc.aio.AioRpcError) as error:
            await channel.close()
            detail = "context deadline exceeded" if isinstance(error, TimeoutError) else go_error(error)
            raise PluginError(f"failed to dial device plugin: {detail}") from error
        await self._adopt(endpoint, options)

    async def _adopt(self, endpoint: _Endpoint, options: api_pb2.DevicePluginOptions) -> None:
        before = self._endpoints.get(endpoint.resource)
        self._endpoints[endpoint.resource] = endpoint
        self._manager.register(
            endpoint.resource, PluginOptions(options.pre_start_required, options.get_preferred_allocation_available)
        )
        endpoint.task = asyncio.create_task(self._watch(endpoint), name=f"list-and-watch {endpoint.resource}")
        if before is not None:
            await self._close(before)

    async def _watch(self, endpoint: _Endpoint) -> None:
        try:
            async for message in endpoint.stub.ListAndWatch(api_pb2.Empty()):
                if self._endpoints.get(endpoint.resource) is endpoint:
                    self._manager.update(endpoint.resource, [_device(device) for device in message.devices])
                    self._on_change()
        except grpc.aio.AioRpcError as error:
            _log.info("the device plugin's stream ended", resource=endpoint.resource, error=go_error(error))
        endpoint.is_stopped = True
        if self._endpoints.get(endpoint.resource) is endpoint:
            self._manager.stop(endpoint.resource, self._clock.monotonic())
            self._on_change()
        await endpoint.channel.close()

    async def _close(self, endpoint: _Endpoint) -> None:
        endpoint.is_stopped = True
        if endpoint.task is not None:
            endpoint.task.cancel()
            await asyncio.gather(endpoint.task, return_exceptions=True)
        await endpoint.channel.close()


def _device(device: api_pb2.Device) -> PluginDevice:
    nodes = tuple(node.ID for node in device.topology.nodes)
    return PluginDevice(device.ID, device.health == "Healthy", nodes)
