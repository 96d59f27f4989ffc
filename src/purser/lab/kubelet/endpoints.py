"""The device plugins of one node: a connection and a ListAndWatch stream to each, and the calls that they answer.

What plugins tell goes into the `Books`. How they are found is none of this module's business: by Register
(`purser.lab.kubelet.registration`) or by a socket that appears (`purser.lab.kubelet.pluginwatcher`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import grpc
import structlog

from purser.agent.kubeletapi.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from purser.core.kubelet import devicemanager
from purser.core.kubelet.state import PluginDevice, PluginOptions
from purser.kube.clock import Clock
from purser.lab.kubelet.books import Books

DIAL_S = 10.0
_PRE_START_S = 30.0
CHANNEL_OPTIONS = (
    # Without it a Python client sends the escaped socket path as :authority, which Go servers refuse.
    ("grpc.default_authority", "localhost"),
    # Channels of one process share connections by address: a plugin that comes back would inherit the old one's pause.
    ("grpc.use_local_subchannel_pool", 1),
)

_NO_CONTAINERS = "&AllocateResponse{ContainerResponses:[]*ContainerAllocateResponse{},}"
"""The empty answer as kubelet prints it."""

Answer = TypeVar("Answer")

_log = structlog.get_logger("purser.lab.kubelet")


class PluginError(Exception):
    """A plugin could not be asked or said no; the message is what kubelet would report."""


class RpcFailed(PluginError):
    """The plugin is gone, the call broke, or it was answered with an error."""


class EmptyResponse(PluginError):
    """The plugin answered an Allocate with no container in it."""


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


class Endpoints:
    """Every plugin that registered, by resource: the newest registration of one replaces the one before."""

    def __init__(self, books: Books, clock: Clock, on_change: Callable[[], None]) -> None:
        self._books = books
        self._clock = clock
        self._on_change = on_change
        self._endpoints: dict[str, _Endpoint] = {}

    async def connect(self, resource: str, path: Path, options: api_pb2.DevicePluginOptions | None) -> None:
        """Dial a plugin and follow its devices; ``options`` None: ask for them first. Raises `PluginError`."""
        channel = grpc.aio.insecure_channel(f"unix:{path}", options=CHANNEL_OPTIONS)
        endpoint = _Endpoint(resource, path, channel, api_pb2_grpc.DevicePluginStub(channel))
        try:
            async with asyncio.timeout(DIAL_S):
                await channel.channel_ready()
            options = options or await endpoint.stub.GetDevicePluginOptions(api_pb2.Empty())
        except (TimeoutError, grpc.aio.AioRpcError) as error:
            await channel.close()
            detail = "context deadline exceeded" if isinstance(error, TimeoutError) else go_error(error)
            raise PluginError(f"failed to dial device plugin: {detail}") from error
        except BaseException:
            await channel.close()
            raise
        await self._adopt(endpoint, options)

    async def disconnect(self, resource: str, path: Path) -> None:
        """A plugin's socket is gone: its devices are unhealthy, unless another one took over the resource."""
        endpoint = self._endpoints.get(resource)
        if endpoint is not None and endpoint.path == path and not endpoint.is_stopped:
            await self._close(endpoint)
            self._stopped(endpoint)

    async def close(self) -> None:
        """As when kubelet's process ends: streams break, nothing is told to the plugins."""
        for endpoint in self._endpoints.values():
            await self._close(endpoint)

    async def preferred(
        self, resource: str, available: Collection[str], must_include: Collection[str], size: int
    ) -> tuple[str, ...]:
        """GetPreferredAllocation. Raises `PluginError`."""
        request = api_pb2.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must_include, allocation_size=size
        )
        message = api_pb2.PreferredAllocationRequest(container_requests=[request])
        answer = await self._ask(resource, lambda stub: stub.GetPreferredAllocation(message))
        return tuple(answer.container_responses[0].deviceIDs) if answer.container_responses else ()

    async def allocate(self, resource: str, ids: Collection[str]) -> api_pb2.ContainerAllocateResponse:
        """Allocate for one container. Raises `PluginError`."""
        request = api_pb2.ContainerAllocateRequest(devices_ids=ids)
        message = api_pb2.AllocateRequest(container_requests=[request])
        answer = await self._ask(resource, lambda stub: stub.Allocate(message))
        if not answer.container_responses:
            raise EmptyResponse(f"no containers return in allocation response {_NO_CONTAINERS}")
        return answer.container_responses[0]

    async def pre_start(self, resource: str, ids: Collection[str]) -> None:
        """PreStartContainer. Raises `PluginError`."""
        message = api_pb2.PreStartContainerRequest(devices_ids=ids)
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
            raise RpcFailed(f"endpoint {endpoint.path} has been stopped")
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

    async def _adopt(self, endpoint: _Endpoint, options: api_pb2.DevicePluginOptions) -> None:
        before = self._endpoints.get(endpoint.resource)
        self._endpoints[endpoint.resource] = endpoint
        wanted = PluginOptions(options.pre_start_required, options.get_preferred_allocation_available)
        self._books.tell(devicemanager.register(self._books.devices, endpoint.resource, wanted))
        endpoint.task = asyncio.create_task(self._watch(endpoint), name=f"list-and-watch {endpoint.resource}")
        if before is not None:
            await self._close(before)

    async def _watch(self, endpoint: _Endpoint) -> None:
        try:
            async for message in endpoint.stub.ListAndWatch(api_pb2.Empty()):
                if self._endpoints.get(endpoint.resource) is endpoint:
                    listed = [_device(device) for device in message.devices]
                    self._books.tell(devicemanager.update(self._books.devices, endpoint.resource, listed))
                    self._books.checkpoint()
                    self._on_change()
        except grpc.aio.AioRpcError as error:
            _log.info("the device plugin's stream ended", resource=endpoint.resource, error=go_error(error))
        except Exception:
            _log.exception("what a device plugin tells cannot be taken in", resource=endpoint.resource)
        endpoint.is_stopped = True
        self._stopped(endpoint)
        await endpoint.channel.close()

    def _stopped(self, endpoint: _Endpoint) -> None:
        """An endpoint that ends after it was replaced changes nothing."""
        if self._endpoints.get(endpoint.resource) is endpoint:
            now = self._clock.monotonic()
            self._books.tell(devicemanager.stop(self._books.devices, endpoint.resource, now))
            self._on_change()

    async def _close(self, endpoint: _Endpoint) -> None:
        endpoint.is_stopped = True
        if endpoint.task is not None:
            endpoint.task.cancel()
            await asyncio.gather(endpoint.task, return_exceptions=True)
        await endpoint.channel.close()


def _device(device: api_pb2.Device) -> PluginDevice:
    nodes = tuple(node.ID for node in device.topology.nodes) if device.HasField("topology") else None
    return PluginDevice(device.ID, device.health == "Healthy", nodes)
