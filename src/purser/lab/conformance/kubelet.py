"""kubelet's side of registration, made to observe.

Like a kubelet since 1.25 it dials a plugin and asks for its options before it answers Register, and it keeps one
ListAndWatch stream open to every plugin. Unlike one it takes registrations that are wrong, and plugins that serve too
late, as long as it can go on: what is wrong is noted, and everything else can still be checked.
"""

import asyncio
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from purser.agent.kubeletapi.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from purser.lab.conformance.check import CheckFailed
from purser.lab.conformance.wire import PluginConnection, Stream, wait_until_listening
from purser.lab.kubelet.serving import DIAL_TIMEOUT_S, SOCKET_NAME, SocketServer


@dataclass(eq=False)
class PluginEndpoint:
    """A plugin that is connected: its socket, and the stream that kubelet would hold."""

    path: Path
    file: tuple[int, int] | None
    """Which socket it was."""
    connection: PluginConnection
    stream: Stream

    @classmethod
    def open(cls, path: Path, timeout_s: float) -> "PluginEndpoint":
        """Connect."""
        connection = PluginConnection(path, timeout_s)
        return cls(path, _file_identity(path), connection, connection.stream())

    def is_served_at(self, path: Path) -> bool:
        """Whether this is the very plugin that serves there, its stream still open."""
        return self.stream.ended is None and self.path == path and self.file == _file_identity(path)

    async def close(self) -> None:
        """Disconnect."""
        await self.stream.close()
        await self.connection.close()


@dataclass(eq=False)
class RegisterCall:
    """One call of Register, and what was seen while it was pending."""

    request: Any
    at: float = field(default_factory=time.monotonic)
    pending: bool = True
    refused: bool = False
    served_while_pending: bool = False
    options: Any = None
    """The plugin's answer to GetDevicePluginOptions while its own call was pending, if there was one."""
    problem: str = ""
    """Why there was none."""
    connected: asyncio.Event = field(default_factory=asyncio.Event)


class ConformanceKubelet(api_pb2_grpc.RegistrationServicer):
    """The registration socket in a folder, and the plugins that came through it."""

    def __init__(
        self, folder: Path, timeout_s: float, resource: str | None = None, plugin_socket: Path | None = None
    ) -> None:
        self.folder = folder
        self.resource = resource
        """Whose registrations are meant; where none was named, the first plugin's, or that of ``plugin_socket``."""
        self.registrations: list[RegisterCall] = []
        """Every one, of every resource, since the kit began."""
        self.endpoints: dict[str, PluginEndpoint] = {}
        self.refusals = 0
        """How many registrations to come are refused."""
        self.before_start = 0
        """How many registrations there were before its last start."""
        self._plugin_socket = plugin_socket.name if plugin_socket is not None else None
        self._timeout_s = timeout_s
        self._dial_s = min(DIAL_TIMEOUT_S, timeout_s)
        self._news = asyncio.Event()
        self._dials: set[asyncio.Task[None]] = set()
        self._server = SocketServer(self.socket, partial(api_pb2_grpc.add_RegistrationServicer_to_server, self))

    @property
    def socket(self) -> Path:
        """Where plugins register."""
        return self.folder / SOCKET_NAME

    @property
    def endpoint(self) -> PluginEndpoint | None:
        """The plugin that is tested, while it is connected."""
        return self.endpoints.get(self.resource) if self.resource is not None else None

    async def start(self) -> None:
        """Serve, on a socket that is new."""
        self.before_start = len(self.registrations)
        await self._server.start()

    async def stop(self) -> None:
        """End as kubelet's process ends: streams break, the socket goes."""
        for task in self._dials:
            task.cancel()
        await asyncio.gather(*self._dials, return_exceptions=True)
        await asyncio.gather(*(endpoint.close() for endpoint in self.endpoints.values()))
        self.endpoints.clear()
        await self._server.stop()
        self.socket.unlink(missing_ok=True)

    def empty_folder(self) -> None:
        """Remove every socket in the folder, the plugins' own too, as kubelet does when it starts."""
        for path in self.folder.iterdir():
            if path.is_socket():
                path.unlink(missing_ok=True)

    async def registered(self, after: int) -> RegisterCall:
        """The tested plugin's first registration beyond the first ``after`` of all, once it is connected.

        Raises `CheckFailed` when none comes in time, or when the registered socket is not served.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                while (found := self._latest_call(after)) is None:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise CheckFailed(self._missing_registration_text(after)) from None
        try:
            async with asyncio.timeout(self._dial_s + self._timeout_s):
                await found.connected.wait()
        except TimeoutError:
            raise CheckFailed(
                f'the plugin registered the endpoint "{found.request.endpoint}", but no process is listening on it'
            ) from None
        return found

    async def Register(
        self, request: api_pb2.RegisterRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> api_pb2.Empty:
        """One plugin introduces itself."""
        if self.resource is None and self._plugin_socket in (None, request.endpoint):
            self.resource = request.resource_name
        note = RegisterCall(request)
        self.registrations.append(note)
        self._news.set()
        if self.refusals:
            self.refusals -= 1
            note.refused = True
            await context.abort(
                grpc.StatusCode.UNKNOWN, "kubelet is not ready: the test kit refuses this registration on purpose"
            )
        task = asyncio.create_task(self._dial(note), name=f"dial {request.resource_name}")
        self._dials.add(task)
        task.add_done_callback(self._dials.discard)
        try:
            await asyncio.wait({task}, timeout=self._dial_s)
        finally:
            note.pending = False
        return api_pb2.Empty()

    async def _dial(self, note: RegisterCall) -> None:
        path = self.folder / note.request.endpoint
        await wait_until_listening(path)
        note.served_while_pending = note.pending
        former = self.endpoints.get(note.request.resource_name)
        if former is not None and former.is_served_at(path):
            # kubelet would reconnect. This kit does not: a plugin that registers repeatedly fails a check.
            note.connected.set()
            return
        endpoint = PluginEndpoint.open(path, self._timeout_s)
        try:
            options = await endpoint.connection.options()
            note.options = options if note.pending else None
        except CheckFailed as error:
            note.problem = str(error)
        except asyncio.CancelledError:
            await endpoint.close()
            raise
        former = self.endpoints.get(note.request.resource_name)
        self.endpoints[note.request.resource_name] = endpoint
        note.connected.set()
        if former is not None:
            await former.close()

    def _latest_call(self, after: int) -> RegisterCall | None:
        mine = (note for note in self.registrations[after:] if note.request.resource_name == self.resource)
        return next((note for note in reversed([*mine]) if not note.refused), None)

    def _missing_registration_text(self, after: int) -> str:
        calls, limit = self.registrations[after:], f"within {self._timeout_s:g} s"
        if any(note.refused for note in calls):
            return f"the plugin did not register again {limit} after its registration was refused"
        others = {note.request.resource_name for note in calls} - {self.resource}
        wanted = self.resource or f"endpoint {self._plugin_socket}"
        seen = f" for {wanted}, only for {', '.join(sorted(others))}," if others else ""
        return f"no Register call{seen} {limit}"


def _file_identity(path: Path) -> tuple[int, int] | None:
    """Inode numbers are reused at once, the time of a change is not."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns
