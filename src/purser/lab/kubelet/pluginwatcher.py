"""kubelet's plugin watcher: the way to register without kubelet.sock.

A plugin serves pluginregistration's Registration on a socket below plugins_registry/. kubelet finds the socket, asks
who it is, connects to its device plugin service, and says how that came out; a socket that goes away ends the plugin,
or the one of its resource that registered since. A registration that failed is tried again, after longer and longer
pauses.

The real one looks once a second what came and went (``loopSleepDuration`` of its plugin manager), so that a plugin that
comes back as its socket goes may be ended up to a second later. Here that is noticed at once.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import grpc
import structlog

from purser.agent.host.inotify import FolderWatch
from purser.agent.kubeletapi.channels import UNIX_SOCKET_OPTIONS
from purser.agent.kubeletapi.pluginregistration.v1 import api_pb2, api_pb2_grpc
from purser.core.kubelet.devicemanager.registration import watcher_refusal
from purser.kube.backoff import exponential_delay
from purser.lab.kubelet.endpoints import Endpoints, PluginError, go_error
from purser.lab.kubelet.serving import DIAL_TIMEOUT_S

FOLDER_NAME = "plugins_registry"
DEVICE_PLUGIN = "DevicePlugin"

_GET_INFO_S = 1.0
_NOTIFY_S = 5.0
_INITIAL_BACKOFF_S, _MAX_BACKOFF_S = 0.5, 120.0
"""kubelet's backoff between attempts to register a plugin."""

log = structlog.get_logger("purser.lab.kubelet")

Identity = tuple[int, int, int]


class _RegistrationRefused(Exception):
    """kubelet rejects the plugin; the message is sent to it."""


@dataclass(slots=True)
class _Socket:
    """One socket in the folder, and who is behind it once that is known."""

    path: Path
    identity: Identity
    task: asyncio.Task[None] | None = None
    resource: str = ""


class PluginWatcher:
    """Registers every plugin whose socket is in the folder."""

    def __init__(self, folder: Path, endpoints: Endpoints) -> None:
        self._folder = folder
        self._endpoints = endpoints
        self._sockets: dict[Path, _Socket] = {}

    async def run(self) -> None:
        """Follow the folder until cancelled."""
        try:
            with FolderWatch(self._folder) as watch:
                while True:
                    await self._look()
                    await watch.changed()
        finally:
            tasks = [socket.task for socket in self._sockets.values() if socket.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        there = _sockets_in(self._folder)
        for path, socket in list(self._sockets.items()):
            if there.get(path) != socket.identity:
                await self._forget(socket)
        for path, identity in there.items():
            if path not in self._sockets:
                socket = self._sockets[path] = _Socket(path, identity)
                socket.task = asyncio.create_task(self._register(socket), name=f"plugin watcher {path.name}")

    async def _forget(self, socket: _Socket) -> None:
        del self._sockets[socket.path]
        if socket.task is not None:
            socket.task.cancel()
            await asyncio.gather(socket.task, return_exceptions=True)
        if socket.resource:
            await self._endpoints.disconnect(socket.resource, socket.path)

    async def _register(self, socket: _Socket) -> None:
        failures = 0
        while not await self._try_to_register(socket):
            await asyncio.sleep(exponential_delay(_INITIAL_BACKOFF_S, _MAX_BACKOFF_S, failures))
            failures += 1

    async def _try_to_register(self, socket: _Socket) -> bool:
        async with grpc.aio.insecure_channel(f"unix:{socket.path}", options=UNIX_SOCKET_OPTIONS) as channel:
            stub = api_pb2_grpc.RegistrationStub(channel)
            try:
                async with asyncio.timeout(DIAL_TIMEOUT_S):
                    await channel.channel_ready()
                info = await stub.GetInfo(api_pb2.InfoRequest(), timeout=_GET_INFO_S)
                refusal = await self._connect(socket, info)
                status = api_pb2.RegistrationStatus(plugin_registered=not refusal, error=refusal)
                await stub.NotifyRegistrationStatus(status, timeout=_NOTIFY_S)
            except TimeoutError:
                refusal = "dial failed: context deadline exceeded"
            except grpc.aio.AioRpcError as error:
                refusal = go_error(error)
        if refusal:
            log.error("Failed to register a plugin", socket=str(socket.path), error=refusal)
        return not refusal

    async def _connect(self, socket: _Socket, info: api_pb2.PluginInfo) -> str:
        """Connect to the plugin's own service; why not, or nothing."""
        try:
            _check(info, socket.path)
            service = Path(info.endpoint) if info.endpoint else socket.path
            await self._endpoints.connect(info.name, service, None)
        except _RegistrationRefused as error:
            return f"RegisterPlugin error -- {error}"
        except PluginError as error:
            return f"RegisterPlugin error -- plugin registration failed with err: {error}"
        socket.resource = info.name
        return ""


def _check(info: api_pb2.PluginInfo, path: Path) -> None:
    if info.type != DEVICE_PLUGIN:
        raise _RegistrationRefused(f"no handler registered for plugin type: {info.type} at socket {path}")
    refusal = watcher_refusal(list(info.supported_versions), info.name)
    if refusal is not None:
        raise _RegistrationRefused(f"plugin validation failed with err: {refusal}")


def _sockets_in(folder: Path) -> dict[Path, Identity]:
    """The sockets in and below a folder; one that was recreated under its old name is another one."""
    found = {}
    for path in folder.rglob("*"):
        try:
            if path.is_socket() and not path.name.startswith("."):
                status = path.stat()
                found[path] = (status.st_dev, status.st_ino, status.st_ctime_ns)
        except FileNotFoundError:
            continue
    return found
