"""One emulated kubelet: composes device manager, sockets, admission and the Node object."""

import asyncio
from pathlib import Path
from random import Random

import structlog

from purser.kube.client import Client
from purser.kube.clock import Clock, SystemClock
from purser.kube.events import EventRecorder
from purser.kube.informer import Informer
from purser.kube.resources import PODS
from purser.lab.kubelet import checkpoint
from purser.lab.kubelet.admission import Admission
from purser.lab.kubelet.devicemanager import DeviceManager
from purser.lab.kubelet.node import NodeReporter, NodeSettings
from purser.lab.kubelet.plugins import PluginServer
from purser.lab.kubelet.podresources import PodResourcesServer
from purser.lab.kubelet.podworkers import PodWorkers
from purser.lab.kubelet.runtime import Runtime

_log = structlog.get_logger("purser.lab.kubelet")


class Kubelet:
    """One start of kubelet, from process start to its end; a restart is a new object over the same folder.

    ``folder`` is kubelet's root (``/var/lib/kubelet`` on a real node): device-plugins/, pod-resources/ and the
    checkpoint live there, the records of containers in ``folder/pods``. Its path must stay below some 60 characters,
    for sockets' paths are limited to 107.
    """

    def __init__(
        self, settings: NodeSettings, folder: Path, client: Client, *, clock: Clock | None = None, seed: int = 0
    ) -> None:
        clock = clock or SystemClock()
        self.settings = settings
        self.runtime = Runtime(folder / "pods")
        self._client = client
        self._clock = clock
        self._manager = DeviceManager(settings.kubelet.config.parsed_version[:2], Random(seed))
        self._node = NodeReporter(settings, client, self._manager, clock)
        plugin_folder = folder / "device-plugins"
        self._checkpoint_path = plugin_folder / checkpoint.FILE_NAME
        self._plugins = PluginServer(plugin_folder, self._manager, clock, self._devices_changed)
        self._recorder = EventRecorder(client, "kubelet", settings.name)
        self._workers = PodWorkers(settings, client, self._manager, self._plugins, self.runtime, self._recorder, clock)
        self._admission = Admission(self._manager, self._plugins, self._checkpoint_path, self._workers.free_unused)
        self._pod_resources = PodResourcesServer(folder / "pod-resources", self._manager, self._workers.listed)
        self.started = asyncio.Event()
        """Set once the node is registered and its sockets are served."""

    async def run(self) -> None:
        """Be a kubelet until cancelled. Pods stay as they are when it ends."""
        self._checkpoint_path.parent.mkdir(parents=True, exist_ok=True)
        has_checkpoint = self._restore()
        try:
            await self._pod_resources.start()
            await self._plugins.start()
            await self._node.register(reset_extended_resources=not has_checkpoint)
            self.started.set()
            await self._work()
        finally:
            await self._plugins.stop()
            await self._pod_resources.stop()

    async def _work(self) -> None:
        pods = Informer(self._client, PODS.raw(), field_selector=f"spec.nodeName={self.settings.name}")
        pods.add_handler(on_add=self._workers.added, on_update=self._workers.updated, on_delete=self._workers.deleted)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._node.run())
            group.create_task(self._recorder.run())
            group.create_task(self._workers.run(self._admission))
            group.create_task(pods.run())
            await pods.synced()
            self._workers.all_told()

    def _restore(self) -> bool:
        """Take over what the kubelet before wrote down; a corrupt file is logged and left behind, as kubelet does."""
        try:
            text = self._checkpoint_path.read_bytes()
            allocations, registered = checkpoint.decode(text)
        except FileNotFoundError:
            return False
        except checkpoint.CheckpointError as error:
            message = "Continue after failing to read checkpoint file. Device allocation info may NOT be up-to-date"
            _log.error(message, error=str(error))
            return True
        self._manager.restore(allocations, registered, self._clock.monotonic())
        return True

    def _devices_changed(self) -> None:
        self._admission.save()
        self._node.changed()
