"""The kit's end of a plugin's socket: calls with a deadline, and a ListAndWatch stream that remembers."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from purser.agent.host.sockets import is_listening
from purser.agent.kubeletapi.channels import UNIX_SOCKET_OPTIONS
from purser.agent.kubeletapi.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from purser.lab.conformance.check import CheckFailed, one_line

HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"

SOCKET_POLL_PERIOD_S = 0.01
"""Between two looks at a socket that is to appear."""

_CHANNEL_OPTIONS = (
    *UNIX_SOCKET_OPTIONS,
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
)
"""Without the agent's limit on messages: lists above kubelet's are to be measured, not missed."""


class CallRefused(CheckFailed):
    """The plugin, or what was left of it, answered a call with an error."""

    def __init__(self, method: str, code: str, details: str) -> None:
        super().__init__(f"{method} failed: {code}: {one_line(details)}")
        self.code = code


@dataclass(frozen=True)
class Listed:
    """One device of a list."""

    id: str
    health: str
    numa_nodes: tuple[int, ...]
    has_topology: bool


@dataclass(frozen=True)
class ListedDevices:
    """One message of a ListAndWatch stream."""

    devices: tuple[Listed, ...]
    size_bytes: int

    @property
    def ids(self) -> tuple[str, ...]:
        """In the plugin's order."""
        return tuple(device.id for device in self.devices)

    @property
    def healthy(self) -> tuple[str, ...]:
        """Ids that kubelet may hand out."""
        return tuple(dict.fromkeys(device.id for device in self.devices if device.health == HEALTHY))

    @property
    def unhealthy(self) -> tuple[str, ...]:
        """Ids that it may not."""
        return tuple(device.id for device in self.devices if device.health != HEALTHY)

    def is_equivalent(self, other: "ListedDevices") -> bool:
        """Whether both say the same; kubelet does not care in which order."""
        return Counter(self.devices) == Counter(other.devices)


class PluginConnection:
    """A client of one plugin socket."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        self.path = path
        self.timeout_s = timeout_s
        self._channel = grpc.aio.insecure_channel(f"unix:{path}", options=_CHANNEL_OPTIONS)
        self._stub = api_pb2_grpc.DevicePluginStub(self._channel)

    async def ask(self, method: str, request: Any, timeout_s: float | None = None) -> Any:
        """One call. Raises `CallRefused` for an error, `CheckFailed` when there is no answer in time."""
        limit_s, started = timeout_s or self.timeout_s, time.monotonic()
        try:
            return await self.start(method, request, limit_s)
        except grpc.aio.AioRpcError as error:
            late = time.monotonic() - started >= limit_s
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and late:
                raise CheckFailed(f"{method} did not return within {limit_s:g} s") from error
            raise CallRefused(method, error.code().name, error.details() or "") from error
        except asyncio.CancelledError as error:
            # grpc cancels the calls of a closed channel: that is not a cancellation of the caller.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise CallRefused(method, "CANCELLED", "the connection was closed") from error

    def start(self, method: str, request: Any, timeout_s: float | None = None) -> Any:
        """The call itself, for those who want to break it off."""
        return getattr(self._stub, method)(request, timeout=timeout_s)

    async def options(self) -> Any:
        """GetDevicePluginOptions. Raises `CheckFailed`."""
        return await self.ask("GetDevicePluginOptions", api_pb2.Empty())

    async def prefer(self, available: Iterable[str], size: int, must_include: Iterable[str] = ()) -> tuple[str, ...]:
        """GetPreferredAllocation for one container. Raises `CheckFailed`."""
        request = preferred_request((available, size, must_include))
        answer = await self.ask("GetPreferredAllocation", request)
        if len(answer.container_responses) != 1:
            count = len(answer.container_responses)
            raise CheckFailed(f"GetPreferredAllocation for one container returned {count} responses")
        return tuple(answer.container_responses[0].deviceIDs)

    async def allocate(self, ids: Iterable[str]) -> Any:
        """Allocate for one container. Raises `CheckFailed`."""
        answer = await self.ask("Allocate", allocate_request(ids))
        if len(answer.container_responses) != 1:
            raise CheckFailed(f"Allocate for one container returned {len(answer.container_responses)} responses")
        return answer.container_responses[0]

    def stream(self) -> "Stream":
        """Open a ListAndWatch stream; close it."""
        return Stream(self.start("ListAndWatch", api_pb2.Empty()), self.timeout_s)

    async def listing(self) -> ListedDevices:
        """The list, on a stream of its own. Raises `CheckFailed`."""
        async with self.stream() as stream:
            return await stream.first()

    async def close(self) -> None:
        """Break everything off."""
        await self._channel.close()


class Stream:
    """An open ListAndWatch stream and everything that came over it."""

    def __init__(self, call: Any, timeout_s: float) -> None:
        self._call = call
        self._timeout_s = timeout_s
        self.lists: list[ListedDevices] = []
        self.ended: str | None = None
        """Why it is over, when it is."""
        self._news = asyncio.Event()
        self._reader = asyncio.create_task(self._read(), name="list-and-watch")

    async def __aenter__(self) -> "Stream":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def first(self) -> ListedDevices:
        """The first list. Raises `CheckFailed`."""
        return await self.until(lambda listing: True, "no list arrived")

    async def until(self, matches: Callable[[ListedDevices], bool], failure: str, after: int = 0) -> ListedDevices:
        """The first list after the first ``after`` ones that is such. Raises `CheckFailed`, beginning ``failure``."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            found = next((listing for listing in self.lists[after:] if matches(listing)), None)
            if found is not None:
                return found
            if self.ended is not None:
                raise CheckFailed(f"{failure}: the stream was closed ({self.ended})")
            self._news.clear()
            try:
                async with asyncio.timeout_at(asyncio.get_running_loop().time() + deadline - time.monotonic()):
                    await self._news.wait()
            except TimeoutError:
                raise CheckFailed(f"{failure} within {self._timeout_s:g} s") from None

    async def close(self) -> None:
        """Break it off, as kubelet does when its process ends."""
        self._call.cancel()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def _read(self) -> None:
        try:
            async for message in self._call:
                self.lists.append(_listing(message))
                self._news.set()
            self.ended = "closed by the plugin"
        except grpc.aio.AioRpcError as error:
            self.ended = f"{error.code().name}: {one_line(error.details() or '')}"
        finally:
            self.ended = self.ended or "closed"
            self._news.set()


def preferred_request(*containers: tuple[Iterable[str], int, Iterable[str]]) -> Any:
    """The message for containers given as available ids, size, ids that must be included."""
    return api_pb2.PreferredAllocationRequest(
        container_requests=[
            api_pb2.ContainerPreferredAllocationRequest(
                available_deviceIDs=list(available), must_include_deviceIDs=list(must), allocation_size=size
            )
            for available, size, must in containers
        ]
    )


def allocate_request(*containers: Iterable[str]) -> Any:
    """The message for containers given as ids."""
    return api_pb2.AllocateRequest(
        container_requests=[api_pb2.ContainerAllocateRequest(devices_ids=list(ids)) for ids in containers]
    )


async def wait_until_listening(path: Path) -> None:
    """Wait, without a limit, until a process accepts connections at a unix socket."""
    while not is_listening(path):  # noqa: ASYNC110 - there is no notification of a served socket
        await asyncio.sleep(SOCKET_POLL_PERIOD_S)


def _listing(message: Any) -> ListedDevices:
    devices = tuple(
        Listed(
            device.ID,
            device.health,
            tuple(node.ID for node in device.topology.nodes),
            device.HasField("topology"),
        )
        for device in message.devices
    )
    return ListedDevices(devices, message.ByteSize())
