"""The device plugins of one node: a connection and a ListAndWatch stream to each, and the calls that they answer.

Reports of plugins go into the `Books`. Plugins are found elsewhere: by Register (`purser.lab.kubelet.registration`) or
by a new socket (`purser.lab.kubelet.pluginwatcher`).

Of two plugins of one resource kubelet calls the one that registered last, and uses the lists of both. It never ends the
older one. When that ends by itself, kubelets before 1.25 ignore it; those up to 1.36 end whichever plugin registered
last (`versions.Behaviour.ends_newest_plugin`), and the node is without until a plugin registers again; newer ones know
plugins by their sockets (`Behaviour.keeps_plugins_by_socket`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import grpc
import structlog

from purser.agent.kubeletapi.channels import UNIX_SOCKET_OPTIONS
from purser.agent.kubeletapi.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from purser.core.kubelet import devicemanager
from purser.core.kubelet.state import PluginDevice, PluginOptions
from purser.kube.clock import Clock
from purser.lab.kubelet.books import Books
from purser.lab.kubelet.serving import DIAL_TIMEOUT_S

_PRE_START_S = 30.0

_EMPTY_ANSWER = "&AllocateResponse{ContainerResponses:[]*ContainerAllocateResponse{},}"
"""As older kubelets print it; newer ones print nothing."""

Answer = TypeVar("Answer")

log = structlog.get_logger("purser.lab.kubelet")


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
    options: PluginOptions = field(default_factory=PluginOptions)
    task: asyncio.Task[None] | None = None
    is_stopped: bool = False


class Endpoints:
    """Every plugin that registered."""

    def __init__(self, books: Books, clock: Clock, on_change: Callable[[], None]) -> None:
        self._books = books
        self._clock = clock
        self._on_change = on_change
        self._open: set[_Endpoint] = set()
        self._clients: dict[str, list[_Endpoint]] = {}
        """By resource: the plugins that registered, dials included, and have not ended. All of them where kubelet keeps
        them by socket, else the newest alone."""
        self._connected: dict[str, dict[Path, _Endpoint]] = {}
        """By resource and socket, where they are kept by socket: those that answered the question for their options."""
        self._endpoints: dict[str, _Endpoint] = {}
        """By resource: who is asked."""

    async def connect(self, resource: str, path: Path, options: api_pb2.DevicePluginOptions | None) -> None:
        """Dial a plugin and follow its devices; ``options`` None: ask for them first. Raises `PluginError`."""
        channel = grpc.aio.insecure_channel(f"unix:{path}", options=UNIX_SOCKET_OPTIONS)
        endpoint = _Endpoint(resource, path, channel, api_pb2_grpc.DevicePluginStub(channel))
        others = self._clients.get(resource, []) if self._by_socket else []
        self._clients[resource] = [*others, endpoint]
        try:
            await _dial(channel)
            found = options or await _options_of(endpoint)
            if self._by_socket and path in self._connected.get(resource, ()):
                raise PluginError(f"device plugin already connected: {path}")
        except BaseException:
            # As kubelet does it: also if it was another one by now, and without a way back to the one before.
            self._forget(resource, path)
            await channel.close()
            raise
        endpoint.options = PluginOptions(found.pre_start_required, found.get_preferred_allocation_available)
        self._connected.setdefault(resource, {})[path] = endpoint
        self._activate(endpoint)
        self._open.add(endpoint)
        endpoint.task = asyncio.create_task(self._watch(endpoint), name=f"list-and-watch {resource}")

    async def disconnect(self, resource: str, path: Path) -> None:
        """The socket of a plugin is gone: kubelets before 1.37 end the one of its resource that they ask, whichever
        that is."""
        if self._by_socket or self._books.behaviour.ends_newest_plugin:
            await self._end(resource, path)
        elif (asked := self._endpoints.get(resource)) is not None:
            asked.is_stopped = True
            await asked.channel.close()

    async def close(self) -> None:
        """As when kubelet's process ends: streams break, plugins get no message."""
        for endpoint in {*self._open, *self._endpoints.values()}:
            if endpoint.task is not None:
                endpoint.task.cancel()
                await asyncio.gather(endpoint.task, return_exceptions=True)
            await endpoint.channel.close()

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
            printed = _EMPTY_ANSWER if self._books.behaviour.prints_empty_answers else ""
            raise EmptyResponse(f"no containers return in allocation response {printed}")
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
            if _is_cancelled():
                raise
            raise RpcFailed("rpc error: code = Canceled desc = grpc: the client connection is closing") from error

    async def _watch(self, endpoint: _Endpoint) -> None:
        try:
            async for message in endpoint.stub.ListAndWatch(api_pb2.Empty()):
                listed = [_device(device) for device in message.devices]
                self._books.tell(devicemanager.update(self._books.devices, endpoint.resource, listed))
                self._books.checkpoint()
                self._on_change()
        except grpc.aio.AioRpcError as error:
            log.info(
                "listAndWatch ended unexpectedly for device plugin", resource=endpoint.resource, error=go_error(error)
            )
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
        except Exception:
            log.exception("Failed to process a device plugin's device list", resource=endpoint.resource)
        self._open.discard(endpoint)
        await self._ended(endpoint)

    async def _ended(self, endpoint: _Endpoint) -> None:
        """The stream of a plugin is over."""
        if not self._by_socket:
            await endpoint.channel.close()
            endpoint.is_stopped = True
        if self._by_socket or self._books.behaviour.ends_newest_plugin:
            await self._end(endpoint.resource, endpoint.path)
        elif self._endpoints.get(endpoint.resource) is endpoint:
            self._stop_resource(endpoint.resource)

    async def _end(self, resource: str, path: Path) -> None:
        """End the plugin of a socket, or the newest one. One that kubelet has forgotten stays where it is for good."""
        client = next((each for each in self._clients.get(resource, ()) if self._is_endpoint_at(each, path)), None)
        if client is None:
            return
        self._forget(resource, path)
        await client.channel.close()
        endpoints = self._connected.get(resource, {})
        ended = endpoints.pop(path, None) if self._by_socket else self._endpoints.get(resource)
        if ended is None:
            return
        ended.is_stopped = True
        if self._by_socket and endpoints:
            self._activate(next(reversed(endpoints.values())))  # kubelet takes any of them
        else:
            self._stop_resource(resource)

    def _forget(self, resource: str, path: Path) -> None:
        """Every client that is meant, be it another connection than the one that failed."""
        clients = self._clients.get(resource, ())
        self._clients[resource] = [each for each in clients if not self._is_endpoint_at(each, path)]

    def _is_endpoint_at(self, client: _Endpoint, path: Path) -> bool:
        return not self._by_socket or client.path == path

    @property
    def _by_socket(self) -> bool:
        return self._books.behaviour.keeps_plugins_by_socket

    def _activate(self, endpoint: _Endpoint) -> None:
        self._endpoints[endpoint.resource] = endpoint
        self._books.tell(devicemanager.register(self._books.devices, endpoint.resource, endpoint.options))

    def _stop_resource(self, resource: str) -> None:
        now = self._clock.monotonic()
        self._books.tell(devicemanager.stop(self._books.devices, resource, now))
        self._on_change()


async def _dial(channel: grpc.aio.Channel) -> None:
    try:
        async with asyncio.timeout(DIAL_TIMEOUT_S):
            await channel.channel_ready()
    except TimeoutError as error:
        raise PluginError("failed to dial device plugin: context deadline exceeded") from error


async def _options_of(endpoint: _Endpoint) -> api_pb2.DevicePluginOptions:
    try:
        return await endpoint.stub.GetDevicePluginOptions(api_pb2.Empty())
    except grpc.aio.AioRpcError as error:
        raise PluginError(f"failed to get device plugin options: {go_error(error)}") from error


def _is_cancelled() -> bool:
    """Whether the task is to end. It is not where grpc cancels the calls of a closed channel, here because kubelet is
    done with the plugin: that is not a cancellation of the caller."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _device(device: api_pb2.Device) -> PluginDevice:
    nodes = tuple(node.ID for node in device.topology.nodes) if device.HasField("topology") else None
    return PluginDevice(device.ID, device.health == "Healthy", nodes)
