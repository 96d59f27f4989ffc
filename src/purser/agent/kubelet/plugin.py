"""The device plugin that kubelet calls, over gRPC on a unix socket: only translation and bookkeeping of calls.

What the answers are is the `arbiter`'s; when and how often to register is `registration`'s.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import grpc
import grpc.aio
import structlog

from purser.agent.host.latest import Latest
from purser.agent.inventory.building import KubeletDevice
from purser.agent.kubelet.calls import AllocateCall, ContainerAllocation, PreferredAllocationCall
from purser.agent.kubelet.pod_resources import CHANNEL_OPTIONS, MAX_GRPC_MESSAGE_BYTES, KubeletError
from purser.agent.kubelet.refusals import AllocationRefused, RefusalReason
from purser.agent.kubeletapi.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from purser.agent.metrics import AgentMetrics
from purser.kube.racing import raise_if_cancelled, until

log = structlog.get_logger("purser.agent")

HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"

SELF_CHECK_TIMEOUT_S = 5.0
"""How long the plugin's own server may take to answer its first call."""

STOP_GRACE_S = 1.0
"""How long calls in progress may finish when the server stops; kubelet takes a broken call as a refusal."""

_SERVER_OPTIONS = (("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", MAX_GRPC_MESSAGE_BYTES))


class CallHandler(Protocol):
    """Who decides what kubelet is answered. All raise `AllocationRefused` and `KubeletError`."""

    async def prefer(self, call: PreferredAllocationCall) -> Sequence[str]:
        """Ids that kubelet had better choose."""
        ...

    async def allocate(self, call: AllocateCall) -> ContainerAllocation:
        """What the container gets."""
        ...

    async def check_start(self, ids: tuple[str, ...]) -> None:
        """Return if the container that holds these ids may start."""
        ...


RELEASE_PAUSE_S = 1.0
"""From the first pod whose devices kubelet has let go of to the list that is sent for them: pods end in numbers."""


class ResourcePlugin(api_pb2_grpc.DevicePluginServicer):
    """The five calls, of one resource."""

    def __init__(
        self,
        resource: str,
        devices: Latest[tuple[KubeletDevice, ...]],
        arbiter: CallHandler,
        metrics: AgentMetrics,
        on_refused: Callable[[AllocationRefused], None],
        *,
        checks_starts: bool = True,
        freed: Latest[int] | None = None,
    ) -> None:
        """``checks_starts``: whether kubelet asks before each start of a container, too.

        ``freed``: another number whenever kubelet has let go of devices of pods that ended. The list is sent again
        then, because kubelet (1.20 to 1.37) writes its checkpoint with each list and each Allocate, and not when pods
        end: after a restart, what its checkpoint has is taken until kubelet has admitted all pods that were bound by
        then, and these fail.
        """
        self.options = api_pb2.DevicePluginOptions(
            pre_start_required=checks_starts, get_preferred_allocation_available=True
        )
        """What the plugin wants to be asked."""
        self._resource = resource
        self._devices = devices
        self._arbiter = arbiter
        self._metrics = metrics
        self._on_refused = on_refused
        self._freed = Latest(0) if freed is None else freed
        self._stopping = asyncio.Event()
        self.streams = Latest(0)
        """How many ListAndWatch streams are open."""

    def stop(self) -> None:
        """End the streams."""
        self._stopping.set()

    async def GetDevicePluginOptions(self, request: api_pb2.Empty, context: object) -> api_pb2.DevicePluginOptions:
        """Asked by newer kubelets before they answer Register."""
        return self.options

    async def ListAndWatch(
        self, request: api_pb2.Empty, context: object
    ) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
        """The complete list, again after every change, and after kubelet has let go of devices."""
        self.streams.set(self.streams.value + 1)
        log.info("Kubelet opened a ListAndWatch stream", resource=self._resource, streams=self.streams.value)
        try:
            devices, freed = self._devices.value, self._freed.value
            sent = self._own_devices(devices)
            yield device_list(sent)
            while True:
                changed = await until(self._devices.wait_for_change(devices), self._stop_or_release(freed))
                if self._stopping.is_set():
                    return
                if changed is None:
                    freed = self._freed.value
                    yield device_list(sent)
                    continue
                devices = changed
                if (own := self._own_devices(devices)) != sent:
                    sent = own
                    yield device_list(sent)
        finally:
            self.streams.set(self.streams.value - 1)
            log.info("A ListAndWatch stream to kubelet closed", resource=self._resource, streams=self.streams.value)

    async def _stop_or_release(self, freed: int) -> None:
        async def wait_for_release() -> None:
            await self._freed.wait_for_change(freed)
            await asyncio.sleep(RELEASE_PAUSE_S)

        await until(wait_for_release(), self._stopping.wait())

    def _own_devices(self, devices: tuple[KubeletDevice, ...]) -> tuple[KubeletDevice, ...]:
        return tuple(device for device in devices if device.resource == self._resource)

    async def GetPreferredAllocation(
        self, request: api_pb2.PreferredAllocationRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> api_pb2.PreferredAllocationResponse:
        """Ids on the devices of the pod under admission."""
        async with self._call("GetPreferredAllocation", context):
            asks = [
                PreferredAllocationCall(
                    ask.allocation_size, tuple(ask.available_deviceIDs), tuple(ask.must_include_deviceIDs)
                )
                for ask in request.container_requests
            ]
            answers = [await self._arbiter.prefer(ask) for ask in asks]
        return api_pb2.PreferredAllocationResponse(
            container_responses=[api_pb2.ContainerPreferredAllocationResponse(deviceIDs=ids) for ids in answers]
        )

    async def Allocate(
        self, request: api_pb2.AllocateRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> api_pb2.AllocateResponse:
        """What the container under admission gets."""
        async with self._call("Allocate", context):
            if len(request.container_requests) != 1:
                count = len(request.container_requests)
                raise AllocationRefused(
                    RefusalReason.MALFORMED,
                    f"one Allocate request has {count} containers, but kubelet sends one container per request",
                )
            ids = tuple(request.container_requests[0].devices_ids)
            answer = await self._arbiter.allocate(AllocateCall(ids, self._resource))
        return api_pb2.AllocateResponse(container_responses=[container_response(answer)])

    async def PreStartContainer(
        self, request: api_pb2.PreStartContainerRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> api_pb2.PreStartContainerResponse:
        """A last comparison of kubelet's books with the grant."""
        async with self._call("PreStartContainer", context):
            await self._arbiter.check_start(tuple(request.devices_ids))
        return api_pb2.PreStartContainerResponse()

    @contextlib.asynccontextmanager
    async def _call(self, method: str, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[None]:
        """Time the call, and turn a refusal into a gRPC error, a metric and an event."""
        with self._timed(method):
            try:
                yield
            except AllocationRefused as refusal:
                self._metrics.refusals.labels(method, refusal.reason.value).inc()
                others = {"in_the_way": refusal.in_the_way} if refusal.in_the_way else {}
                log.warning(
                    "Refused kubelet's call",
                    method=method,
                    reason=refusal.reason.value,
                    message=refusal.message,
                    **others,
                )
                self._on_refused(refusal)
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, refusal.message)
            except KubeletError as error:
                self._metrics.refusals.labels(method, RefusalReason.KUBELET.value).inc()
                log.error("No answer from kubelet", method=method, error=str(error))
                await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))

    @contextlib.contextmanager
    def _timed(self, method: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._metrics.calls.labels(method).observe(time.perf_counter() - started)


def device_list(devices: tuple[KubeletDevice, ...]) -> api_pb2.ListAndWatchResponse:
    """kubelet's complete list.

    Without any topology where the NUMA node is unknown: kubelet 1.20 takes an empty one for a device that fits nowhere.
    """
    return api_pb2.ListAndWatchResponse(devices=[_device(device) for device in devices])


def _device(device: KubeletDevice) -> api_pb2.Device:
    message = api_pb2.Device(ID=device.id, health=HEALTHY if device.healthy else UNHEALTHY)
    if device.numa_nodes:
        message.topology.nodes.extend(api_pb2.NUMANode(ID=node) for node in device.numa_nodes)
    return message


def container_response(answer: ContainerAllocation) -> api_pb2.ContainerAllocateResponse:
    """An answer in kubelet's words."""
    return api_pb2.ContainerAllocateResponse(
        envs=dict(answer.environment),
        mounts=[
            api_pb2.Mount(container_path=mount.container_path, host_path=mount.host_path, read_only=mount.read_only)
            for mount in answer.mounts
        ],
        devices=[
            api_pb2.DeviceSpec(container_path=node.container_path, host_path=node.host_path, permissions="rw")
            for node in answer.device_nodes
        ],
        annotations=dict(answer.annotations),
        cdi_devices=[api_pb2.CDIDevice(name=name) for name in answer.cdi_devices],
    )


@contextlib.asynccontextmanager
async def serve(
    plugin: ResourcePlugin, socket: Path, add_service: Callable[[grpc.aio.Server], None] = lambda server: None
) -> AsyncIterator[None]:
    """Serve the plugin on its socket, checked by a call of its own, until left. Raises `grpc.RpcError`, OSError.

    ``add_service`` adds another service to the server.
    """
    socket.unlink(missing_ok=True)  # of an agent before this one; gRPC would refuse the address
    server = grpc.aio.server(options=_SERVER_OPTIONS)
    api_pb2_grpc.add_DevicePluginServicer_to_server(plugin, server)
    add_service(server)
    try:
        server.add_insecure_port(f"unix:{socket}")
    except RuntimeError as error:
        raise OSError(f"cannot listen on {socket}: {error}") from error
    await server.start()
    try:
        await _self_check(socket)
        yield
    finally:
        plugin.stop()
        await server.stop(STOP_GRACE_S)
        socket.unlink(missing_ok=True)
        raise_if_cancelled()


async def _self_check(socket: Path) -> None:
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=CHANNEL_OPTIONS) as channel:
        stub = api_pb2_grpc.DevicePluginStub(channel)
        await stub.GetDevicePluginOptions(api_pb2.Empty(), timeout=SELF_CHECK_TIMEOUT_S, wait_for_ready=True)
