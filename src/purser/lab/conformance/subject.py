"""The plugin under test with everything around it: kubelet's folder, the emulated kubelet, the plugin's process."""

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from purser.agent.host.sockets import is_listening
from purser.agent.kubeletapi.deviceplugin.v1beta1 import api_pb2
from purser.core.wording import counted
from purser.lab.conformance.check import CannotRun, CheckFailed, CheckSkipped
from purser.lab.conformance.kubelet import ConformanceKubelet, PluginEndpoint, RegisterCall
from purser.lab.conformance.podresources import PodResourcesServicer
from purser.lab.conformance.process import PluginProcess
from purser.lab.conformance.settings import Settings
from purser.lab.conformance.wire import SOCKET_POLL_PERIOD_S, CallRefused, ListedDevices, PluginConnection
from purser.lab.conformance.workplace import Workplace

DEFAULT_SIZE = 2
"""Devices of one container: with two, what belongs together shows."""

PLUGIN_EXIT_TIMEOUT_S = 2.0
"""How long the plugin may take to end once nothing is checked any more."""

_EXIT_GRACE_S = 0.1
_PING_S = 1.0

_NO_PROCESS = "no process is listening on {}: start the plugin first, or specify the command that starts it"

T = TypeVar("T")


class Subject:
    """What checks work with. Use as an async context manager. Raises `CannotRun` where it cannot begin."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.endings: list[str] = []
        """How the plugin ended by itself, whenever it did."""
        self.is_over = False
        """Whether the kit has ended the plugin, so that nothing can be asked any more."""
        self.process: PluginProcess | None = None
        self._place: Workplace | None = None
        self._kubelet: ConformanceKubelet | None = None
        self._books: PodResourcesServicer | None = None
        self._direct: PluginEndpoint | None = None
        self._lost: str | None = None
        self._absent: CheckFailed | None = None

    async def __aenter__(self) -> "Subject":
        try:
            await self._begin()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    @property
    def folder(self) -> Path | None:
        """kubelet's plugin folder, where the plugin can register."""
        return self._place.folder if self._place is not None else None

    @property
    def kubelet(self) -> ConformanceKubelet:
        """The emulated kubelet. Raises `CheckSkipped` where there is none."""
        if self._kubelet is None:
            raise CheckSkipped(
                "the plugin is already running and has no folder to register in: set --folder to test registration"
            )
        return self._kubelet

    @property
    def books(self) -> PodResourcesServicer | None:
        """kubelet's PodResources API, where the plugin needs one."""
        return self._books

    @property
    def endpoint(self) -> PluginEndpoint:
        """Where the plugin serves. Raises `CheckFailed`."""
        found = self._connected()
        if found is None:
            raise CheckFailed("the plugin is not registered")
        return found

    @property
    def plugin(self) -> PluginConnection:
        """The connection that kubelet would have. Raises `CheckFailed`."""
        return self.endpoint.connection

    @property
    def resource(self) -> str | None:
        """The tested resource, known only from a registration."""
        return self._kubelet.resource if self._kubelet else None

    @property
    def others(self) -> tuple[str, ...]:
        """Resources that registered too."""
        notes = self._kubelet.registrations if self._kubelet else []
        return tuple(sorted({note.request.resource_name for note in notes} - {self.resource}))

    def started(self) -> PluginProcess:
        """The plugin's process. Raises `CheckSkipped` where it is not the kit's."""
        if self.process is None:
            raise CheckSkipped(
                "the test kit did not start the plugin: specify the plugin's command instead of its socket"
            )
        return self.process

    async def registered(self, after: int) -> RegisterCall:
        """Wait for the next registration, or for the end of the process. Raises `CheckFailed`."""
        kubelet = self.kubelet
        try:
            return await self._wait_while_running(kubelet.registered(after))
        except CheckFailed as error:
            self._absent = error
            raise

    async def ensure_registered(self) -> None:
        """Have a plugin that is connected. Raises `CheckFailed`."""
        if self._kubelet is None or self._connected() is not None:
            return
        try:
            if self._absent is not None:
                raise self._absent  # it was waited for, in vain
            await self.registered(self._kubelet.before_start)
        except CheckFailed:
            if self.settings.socket is None:
                raise
            # It serves, though kubelet does not know of it: everything else can still be checked.
            self._direct = self._open(self.settings.socket)

    async def ensure_ready(self) -> str | None:
        """Have a living plugin before a check; why there is none, and never will be, else."""
        if self._lost is None and not self.is_over:
            try:
                await self._restart_plugin()
                await self.ensure_registered()
            except (CheckFailed, CannotRun) as error:
                self._lost = f"the plugin can no longer be reached: {error}"
        return self._lost

    async def record_ending(self, check: str) -> str | None:
        """Whether the plugin has ended by itself during a check, and how. Waits until that is certain."""
        if self.is_over or self._lost is not None:
            return None
        how = await self._exit_message()
        if how is not None:
            self.endings.append(f"{check} ({how})")
        return how

    async def terminate(self) -> float:
        """Ask the plugin to end; how long it took. Raises `CheckFailed` when it goes on, `CheckSkipped`."""
        process, started = self.started(), time.monotonic()
        if process.ended is not None:
            raise CheckSkipped(f"the plugin had already exited: {process.ended}")
        self.is_over = True
        process.terminate()
        try:
            async with asyncio.timeout(self.settings.timeout_s):
                await process.wait()
        except TimeoutError:
            await process.kill()
            raise CheckFailed(f"the plugin was still running {self.settings.timeout_s:g} s after SIGTERM") from None
        return time.monotonic() - started

    async def devices(self) -> ListedDevices:
        """The plugin's list now. Raises `CheckFailed`."""
        return await self.plugin.listing()

    async def healthy(self, at_least: int = 1) -> tuple[str, ...]:
        """Ids that kubelet may hand out. Raises `CheckSkipped` where they are too few."""
        listing = await self.devices()
        if self._books is not None:
            self._books.resource, self._books.known = self.resource or "", listing.ids
        if len(listing.healthy) < at_least:
            raise CheckSkipped(
                f"needs {counted(at_least, 'healthy device')}, but the plugin lists {len(listing.healthy)}"
            )
        return listing.healthy

    def size(self, available: tuple[str, ...]) -> int:
        """How many devices a container asks for."""
        return min(self.settings.size or DEFAULT_SIZE, len(available))

    async def pick(self) -> tuple[str, ...]:
        """Ids for a container, chosen as kubelet does: by the plugin's preference where it offers one."""
        available = await self.healthy()
        size = self.size(available)
        if (await self.plugin.options()).get_preferred_allocation_available:
            with contextlib.suppress(CheckFailed):
                preferred = await self.plugin.prefer(available, size)
                if len(preferred) == size and set(preferred) <= set(available):
                    return preferred
        return available[:size]

    async def _begin(self) -> None:
        place = self._place = Workplace.find(self.settings)
        if place is None:
            self._direct = self._open(self.settings.socket)
            return
        kubelet = ConformanceKubelet(
            place.folder, self.settings.timeout_s, self.settings.resource, self.settings.socket
        )
        _check_socket_unused(kubelet.socket)
        self._kubelet = kubelet
        await _serving(kubelet.start(), kubelet.socket)
        if self.settings.pod is not None:
            _check_socket_unused(place.pod_resources)
            self._books = PodResourcesServicer(place.pod_resources, self.settings.pod)
            await _serving(self._books.start(), place.pod_resources)
        if self.settings.command:
            self.process = await self._start(place)
        elif self.settings.socket is None or not is_listening(self.settings.socket):
            raise CannotRun(_NO_PROCESS.format(self.settings.socket))

    async def _end(self) -> None:
        if self.process is not None:
            await self.process.end(PLUGIN_EXIT_TIMEOUT_S)
        if self._direct is not None:
            await self._direct.close()
        if self._kubelet is not None:
            await self._kubelet.stop()
        if self._books is not None:
            await self._books.stop()
        if self._place is not None:
            self._place.remove()

    async def _start(self, place: Workplace) -> PluginProcess:
        words = [place.fill_in(word) for word in self.settings.command]
        return await PluginProcess.start(words, place.environment, place.log)

    def _open(self, socket: Path | None) -> PluginEndpoint:
        if socket is None or not is_listening(socket):
            raise CannotRun(_NO_PROCESS.format(socket))
        return PluginEndpoint.open(socket.absolute(), self.settings.timeout_s)

    async def _restart_plugin(self) -> None:
        """Start the plugin again where it has ended."""
        if self.process is not None and self._place is not None and self.process.ended is not None:
            after = len(self.kubelet.registrations)
            if not after:
                raise CheckFailed(f"the plugin exited before it registered: {self.process.ended}")
            await self.process.kill()
            self.process = await self._start(self._place)
            await self.registered(after)
        elif self.process is None and (path := self._path()) is not None and not is_listening(path):
            raise CheckFailed(f"no process is listening on {path}")

    async def _exit_message(self) -> str | None:
        """How the plugin ended. None once it is seen alive, or was not yet there to be."""
        if not await self._is_unreachable():
            return None
        # A process that dies closes one socket after the other: what still listens now may be about to go.
        await asyncio.sleep(_EXIT_GRACE_S)
        path = self._path()
        deadline = time.monotonic() + self.settings.timeout_s
        while self.process is None or self.process.ended is None:
            if path is None or is_listening(path):
                return None
            if time.monotonic() >= deadline:
                return f"no process is listening on {path} any longer" if self.process is None else None
            await asyncio.sleep(SOCKET_POLL_PERIOD_S)
            path = self._path()
        return self.process.ended

    async def _is_unreachable(self) -> bool:
        """Whether the plugin cannot be reached; one that is only slow can."""
        found = self._connected()
        if found is None or (self.process is not None and self.process.ended is not None):
            return True
        try:
            await found.connection.ask("GetDevicePluginOptions", api_pb2.Empty(), min(_PING_S, self.settings.timeout_s))
        except CallRefused as error:
            return error.code in ("UNAVAILABLE", "CANCELLED")
        except CheckFailed:
            return False
        return False

    def _connected(self) -> PluginEndpoint | None:
        return (self._kubelet.endpoint if self._kubelet else None) or self._direct

    def _path(self) -> Path | None:
        found = self._connected()
        return found.path if found else None

    async def _wait_while_running(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of ``work``; `CheckFailed` as soon as the process has ended."""
        waiting = asyncio.ensure_future(work)
        ending = asyncio.ensure_future(self.process.wait() if self.process else asyncio.Event().wait())
        try:
            await asyncio.wait({waiting, ending}, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                return waiting.result()
            raise CheckFailed(f"the plugin's process exited: {self.process.ended if self.process else ''}")
        finally:
            waiting.cancel()
            ending.cancel()
            await asyncio.gather(waiting, ending, return_exceptions=True)


def _check_socket_unused(socket: Path) -> None:
    if is_listening(socket):
        raise CannotRun(
            f"another process, probably a kubelet, already serves {socket}: stop that process, or use another folder"
        )


async def _serving(start: Coroutine[Any, Any, None], socket: Path) -> None:
    try:
        await start
    except (OSError, RuntimeError) as error:
        raise CannotRun(f"cannot listen on {socket}: {error}") from error
