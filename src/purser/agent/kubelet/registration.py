"""Keeps the plugins registered with kubelet, one for each resource: serve, register, watch, and start over when
anything is lost.

A plugin always starts over as a whole, with a new socket, server and registration: when kubelet.sock is another file
(kubelet restarted, and 1.20 wiped its folder), when the plugin's socket was removed, or when no ListAndWatch stream has
been open for a while, which kubelet does not repair by itself. It ends when its resource has no devices any more.

Where kubelet looks for plugins itself (`plugin_watcher`), kubelet.sock is of no matter, and kubelet calls.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import grpc
import grpc.aio
import msgspec
import structlog

from purser.agent.host.inotify import FolderWatch
from purser.agent.host.latest import Latest
from purser.agent.inventory.building import KubeletDevice
from purser.agent.kubelet.plugin import ResourcePlugin, serve
from purser.agent.kubelet.plugin_watcher import NotRegisteredError, WatchedPlugin
from purser.agent.kubelet.pod_resources import CHANNEL_OPTIONS
from purser.agent.kubeletapi.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from purser.agent.metrics import AgentMetrics
from purser.agent.settings import AgentSettings
from purser.core.kubelet.devicemanager.registration import API_VERSION
from purser.kube.backoff import Backoff
from purser.kube.failures import ObjectFailures

log = structlog.get_logger("purser.agent")

WITHDRAWAL_PAUSE_S = 0.5
"""Between a resource's last, empty list and the end of its plugin."""

REGISTER_TIMEOUT_S = 15.0
"""kubelets since 1.25 dial the plugin, for up to 10 s, before they answer."""

FAILED = "the agent failed to register with kubelet: see the agent's log"
WAITING_FOR_WATCHER = "waiting for kubelet to find the plugin in kubelet's folder plugins_registry"
ALREADY_CONNECTED = "already connected"
"""In the refusal of a kubelet (since 1.37) that has not seen the end of this socket's former connection. It then never
sees it, so only another socket helps (``connectClient`` of ``pkg/kubelet/cm/devicemanager/plugin/v1beta1``)."""
NO_STREAM = "registered, but kubelet has not opened a ListAndWatch stream"


class FileIdentity(msgspec.Struct, frozen=True):
    """Which file is at a path; inode numbers are reused at once, their birth is not."""

    device: int
    inode: int
    changed_ns: int


class KubeletConnection(msgspec.Struct, frozen=True):
    """How things stand with kubelet, for /readyz and metrics."""

    registered: bool = False
    streams: int = 0
    problem: str = "not registered yet"

    @property
    def ready(self) -> bool:
        """Whether kubelet knows the devices."""
        return self.registered and self.streams > 0


def identity_of(path: Path) -> FileIdentity | None:
    """Which file is there; None when there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return FileIdentity(found.st_dev, found.st_ino, found.st_ctime_ns)


_ANY_KUBELET = FileIdentity(0, 0, 0)

MakePlugin = Callable[[str], ResourcePlugin]
"""Of a resource."""


class PluginRegistrations:
    """The standing of all plugins with kubelet, as resources come and go."""

    def __init__(
        self,
        settings: AgentSettings,
        devices: Latest[tuple[KubeletDevice, ...]],
        make_plugin: MakePlugin,
        metrics: AgentMetrics,
        failures: ObjectFailures,
    ) -> None:
        self._settings = settings
        self._devices = devices
        self._failures = failures
        self._make_plugin = make_plugin
        self._metrics = metrics
        self._plugins: dict[str, tuple[PluginRegistration, asyncio.Task[None]]] = {}
        self.connection = Latest(KubeletConnection())
        """How all of them stand: registered where all are, and with a problem where any has one."""

    async def run(self) -> None:
        """Keep a plugin for each resource until cancelled."""
        devices: tuple[KubeletDevice, ...] = ()
        async with asyncio.TaskGroup() as tasks:
            while True:
                devices = await self._devices.wait_for_change(devices)
                wanted = {device.resource for device in devices}
                for resource in sorted(wanted - self._plugins.keys()):
                    plugin = PluginRegistration(
                        self._settings, resource, self._make_plugin, self._metrics, self._combine_connections
                    )
                    running = tasks.create_task(self._failures.keep_going("registration", plugin.run))
                    self._plugins[resource] = plugin, running
                # A node that lists nothing at all says so under the names that it had: it will have devices again.
                for resource in sorted(self._plugins.keys() - wanted) if wanted else ():
                    await self._withdraw(resource)
                self._combine_connections()

    async def _withdraw(self, resource: str) -> None:
        """An empty list is sent to kubelet first: it keeps the devices of a plugin that is gone for minutes."""
        await asyncio.sleep(WITHDRAWAL_PAUSE_S)
        _, task = self._plugins.pop(resource)
        task.cancel()
        await asyncio.wait({task})
        log.info("Withdrew a resource", resource=resource)

    def _combine_connections(self) -> None:
        each = [plugin.connection.value for plugin, _ in self._plugins.values()]
        if not each:
            self.connection.set(KubeletConnection())
            return
        problem = next((one.problem for one in each if one.problem), "")
        streams = sum(one.streams for one in each) if all(one.streams for one in each) else 0
        self.connection.set(KubeletConnection(all(one.registered for one in each), streams, problem))


class PluginRegistration:
    """One plugin's standing with kubelet."""

    def __init__(
        self,
        settings: AgentSettings,
        resource: str,
        make_plugin: MakePlugin,
        metrics: AgentMetrics,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_change`` is called whenever ``connection`` has changed."""
        self._settings = settings
        self._resource = resource
        self._is_watched = settings.is_watched(resource)
        self._socket = settings.plugin_socket(resource)
        self._sockets = 1
        """How many this plugin has tried."""
        self._make_plugin = make_plugin
        self._metrics = metrics
        self._on_change = on_change
        self._backoff = Backoff(settings.retry_initial_s, settings.retry_cap_s)
        self._kubelet: FileIdentity | None = None
        self.connection = Latest(KubeletConnection())

    async def run(self) -> None:
        """Stay registered until cancelled."""
        with FolderWatch(self._socket.parent) as folder:
            while True:
                await self._wait_for_kubelet(folder)
                problem = FAILED
                try:
                    problem = await self._serve_until_lost(folder)
                    log.warning("Restarting the device plugin", reason=problem)
                except (grpc.aio.AioRpcError, NotRegisteredError, OSError) as error:
                    problem = describe(error)
                    log.warning("Cannot register with kubelet", error=problem)
                    if ALREADY_CONNECTED in problem:
                        self._switch_socket()
                finally:
                    self._set(KubeletConnection(problem=problem))
                await self._pause_before_retry(folder)

    async def _serve_until_lost(self, folder: FolderWatch) -> str:
        """Serve and register, and return why that is over."""
        plugin = self._make_plugin(self._resource)
        kubelet = self._kubelet_now()
        watched = WatchedPlugin(self._resource)
        async with serve(plugin, self._socket, watched.add_to if self._is_watched else lambda server: None):
            own = identity_of(self._socket)
            if self._is_watched:
                self._set(KubeletConnection(problem=WAITING_FOR_WATCHER))
                await watched.registered()
            else:
                await self._register(plugin)
            self._count(kubelet)
            self._set(KubeletConnection(registered=True, problem=""))
            log.info("Registered with kubelet", resource=self._resource, socket=str(self._socket))
            async with asyncio.TaskGroup() as tasks:
                lost = [
                    tasks.create_task(self._wait_for_socket_change(folder, kubelet, own)),
                    tasks.create_task(self._stream_lost(plugin)),
                ]
                done, pending = await asyncio.wait(lost, return_when=asyncio.FIRST_COMPLETED)
                for task in pending:
                    task.cancel()
            return next(iter(done)).result()

    def _switch_socket(self) -> None:
        self._sockets += 1
        first = self._settings.plugin_socket(self._resource)
        self._socket = first.with_stem(f"{first.stem}+{self._sockets}")

    def _set(self, connection: KubeletConnection) -> None:
        if self.connection.set(connection):
            self._on_change()

    async def _register(self, plugin: ResourcePlugin) -> None:
        """kubelet may call the plugin back before this returns, so it is being served already."""
        target = f"unix:{self._settings.kubelet_socket}"
        async with grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS) as channel:
            await api_pb2_grpc.RegistrationStub(channel).Register(
                api_pb2.RegisterRequest(
                    version=API_VERSION,
                    endpoint=self._socket.name,
                    resource_name=self._resource,
                    options=plugin.options,
                ),
                timeout=REGISTER_TIMEOUT_S,
            )

    def _count(self, kubelet: FileIdentity | None) -> None:
        self._metrics.registrations.inc()
        if self._kubelet is not None and kubelet != self._kubelet:
            self._metrics.kubelet_restarts.inc()
        self._kubelet = kubelet

    def _kubelet_now(self) -> FileIdentity | None:
        """Which kubelet there is; None: none. One that looks for plugins is whoever does so."""
        if self._is_watched:
            return _ANY_KUBELET if self._socket.parent.is_dir() else None
        return identity_of(self._settings.kubelet_socket)

    async def _wait_for_kubelet(self, folder: FolderWatch) -> None:
        if self._kubelet_now() is not None:
            return
        path = self._socket.parent if self._is_watched else self._settings.kubelet_socket
        log.warning("Waiting for kubelet", path=str(path))
        self._set(KubeletConnection(problem=f"waiting for kubelet: {path} does not exist"))
        while self._kubelet_now() is None:
            await folder.changed()

    async def _wait_for_socket_change(
        self, folder: FolderWatch, kubelet: FileIdentity | None, own: FileIdentity | None
    ) -> str:
        while True:
            now = self._kubelet_now()
            if now is None:
                return "kubelet's plugin folder was removed" if self._is_watched else "kubelet's socket was removed"
            if now != kubelet:
                return "kubelet's socket was replaced: kubelet restarted"
            if identity_of(self._socket) != own:
                return "the plugin's socket was removed"
            await folder.changed()

    async def _stream_lost(self, plugin: ResourcePlugin) -> str:
        """Return when kubelet has had no stream open for `stream_timeout_s`."""
        timeout_s = self._settings.stream_timeout_s
        while True:
            streams = plugin.streams.value
            self._set(KubeletConnection(registered=True, streams=streams, problem="" if streams else NO_STREAM))
            if streams:
                self._backoff.reset()
                await plugin.streams.wait_for_change(streams)
                continue
            try:
                async with asyncio.timeout(timeout_s):
                    await plugin.streams.wait_for_change(0)
            except TimeoutError:
                return f"kubelet had no ListAndWatch stream open for {timeout_s:g} s"

    async def _pause_before_retry(self, folder: FolderWatch) -> None:
        """Pause before the next try; a kubelet that comes back in the meantime ends the pause."""
        kubelet = self._kubelet_now()
        if kubelet != self._kubelet and self._kubelet is not None:
            self._backoff.reset()
        try:
            async with asyncio.timeout(self._backoff.next()):
                while self._kubelet_now() == kubelet:
                    await folder.changed()
        except TimeoutError:
            return


def describe(error: Exception) -> str:
    """A failed call or file operation in one line."""
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error)
