"""One emulated kubelet: composes the twin's books, sockets, admission and the Node object."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from prometheus_client import CollectorRegistry

from purser.core.kubelet.devicemanager import checkpoint
from purser.kube.client import Client
from purser.kube.clock import Clock, SystemClock
from purser.kube.events import EventRecorder
from purser.kube.informer import Informer
from purser.kube.resources import PODS
from purser.lab.components import Component
from purser.lab.kubelet import configuration, pluginwatcher
from purser.lab.kubelet.books import Books
from purser.lab.kubelet.endpoints import Endpoints
from purser.lab.kubelet.node import NodeReporter, NodeSettings
from purser.lab.kubelet.pluginwatcher import PluginWatcher
from purser.lab.kubelet.podresources import PodResourcesServer
from purser.lab.kubelet.pods import Raw
from purser.lab.kubelet.podworkers import PodWorkers
from purser.lab.kubelet.registration import RegistrationServer
from purser.lab.kubelet.runtime import Runtime
from purser.lab.kubelet.statefiles import DEVICE_PLUGIN_FOLDER, StateFiles


class Kubelet:
    """One start of kubelet, from process start to its end; a restart is a new object over the same folder.

    ``folder`` is kubelet's root (``/var/lib/kubelet`` on a real node): config.yaml, device-plugins/, plugins_registry/,
    pod-resources/ and the managers' state files live there, the records of containers in ``folder/pods``. Its path must
    stay below about 60 characters, because sockets' paths are limited to 107. ``on_rejection`` is called with the
    reason of each rejected pod. ``process_of`` returns the process that really runs in a pod, if any: it is started
    with the pod's containers, and the pod is gone once it has ended. ``on_end`` is called with the uid of a pod whose
    containers have ended, finally or for a restart; more than once for some.

    The constructor reads the previous kubelet's files; nothing is written before `run`. Raises
    `purser.core.kubelet.errors.KubeletStartError` where the real one would not start.
    """

    def __init__(
        self,
        settings: NodeSettings,
        folder: Path,
        client: Client,
        *,
        clock: Clock | None = None,
        on_rejection: Callable[[str], None] = lambda _reason: None,
        process_of: Callable[[Raw], Component | None] = lambda _pod: None,
        on_end: Callable[[str], None] = lambda _uid: None,
    ) -> None:
        clock = clock or SystemClock()
        self.settings = settings
        self._folder = folder
        self.runtime = Runtime(folder / "pods")
        self._client = client
        files = StateFiles(folder, settings.node)
        self._has_run_before = files.has_previous_kubelet()
        self.books = Books(settings.node, files.load(clock.monotonic()), files)
        self._node = NodeReporter(settings, client, self.books, clock)
        self._endpoints = Endpoints(self.books, clock, self._node.changed)
        kept = frozenset({checkpoint.FILE_NAME})
        self._plugins = RegistrationServer(folder / DEVICE_PLUGIN_FOLDER, kept, self.books.behaviour, self._endpoints)
        self._watcher = PluginWatcher(folder / pluginwatcher.FOLDER_NAME, self._endpoints)
        self._recorder = EventRecorder(client, "kubelet", settings.name)
        client.failures.report_to(CollectorRegistry(), self._recorder)
        self._workers = PodWorkers(
            settings,
            client,
            self.books,
            self._endpoints,
            self.runtime,
            self._recorder,
            clock,
            on_rejection,
            process_of,
            on_end,
        )
        self._pod_resources = PodResourcesServer(folder / "pod-resources", self.books, self._workers.listed)
        self.started = asyncio.Event()
        """Set once the node is registered and its sockets are served."""

    async def run(self) -> None:
        """Be a kubelet until cancelled. Pods stay as they are when it ends.

        A failure outside of its loops, such as a folder of sockets that cannot be listed, ends it: the caller starts
        the next one, as systemd does.
        """
        self._write_files()
        try:
            await self._pod_resources.start()
            await self._plugins.start()
            await self._node.register(reset_extended_resources=not self._has_run_before)
            self.started.set()
            await self._work()
        finally:
            await self._plugins.stop()
            await self._endpoints.close()
            await self._pod_resources.stop()

    def _write_files(self) -> None:
        self.books.open()
        (self._folder / configuration.FILE_NAME).write_text(configuration.render(self.settings.kubelet))

    async def _work(self) -> None:
        pods = Informer(self._client, PODS.raw(), field_selector=f"spec.nodeName={self.settings.name}")
        pods.add_handler(on_add=self._workers.added, on_update=self._workers.updated, on_delete=self._workers.deleted)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._node.run())
            group.create_task(self._watcher.run())
            group.create_task(self._recorder.run())
            group.create_task(self._workers.run())
            group.create_task(self._workers.keep_freeing_cpus())
            group.create_task(pods.run())
            await pods.synced()
            self._workers.all_reported()
