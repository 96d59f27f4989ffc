"""Keeps the labels of a node's GPUs where they are to be found."""

import asyncio

import msgspec
import structlog

from purser.agent.features.collecting import collect_facts
from purser.agent.features.outlets import FeatureFile, NodeFeatureObject, NodeLabels, Outlet
from purser.agent.host.hostfiles import on_host
from purser.agent.host.latest import Latest
from purser.agent.host.threads import run_in_thread
from purser.agent.inventory.building import InventoryBasis
from purser.agent.settings import AgentSettings, FeatureOutlet
from purser.core.features import Labels, labels_of, sharing_of
from purser.kube.backoff import Backoff, WritePace
from purser.kube.client import Client
from purser.kube.clock import SystemClock
from purser.kube.errors import KubeError
from purser.kube.informer import Informer
from purser.kube.objects import Node

log = structlog.get_logger("purser.agent")

LABELS_WRITE_PAUSE_S = 0.2
"""After a write: its watch sees the effect meanwhile."""

MAX_LABELS_WRITE_PAUSE_S = 30.0
"""After a write that is undone repeatedly."""

MAX_LABELS_BACKOFF_S = 300.0
"""Between two tries to publish labels: what refuses them, such as a missing permission, seldom goes by itself."""


class FeatureLabels:
    """Publishes labels of the node's GPUs, on change only, and again when others changed them."""

    def __init__(
        self,
        settings: AgentSettings,
        client: Client,
        basis: Latest[InventoryBasis | None],
        nodes: Informer[Node],
    ) -> None:
        self._settings = settings
        self._basis = basis
        self._failures = client.failures
        self._clock = SystemClock()
        self._pace = WritePace(LABELS_WRITE_PAUSE_S, MAX_LABELS_WRITE_PAUSE_S, self._clock)
        self._backoff = Backoff(initial_s=1.0, cap_s=MAX_LABELS_BACKOFF_S)
        self._outlet = _outlet(settings, client, nodes)
        self._put_now = asyncio.Event()
        self._labels: Labels | None = None
        self._troubles: tuple[str, ...] = ()

    async def run(self) -> None:
        """Publish until cancelled; where there is no outlet, nothing."""
        if self._outlet is None:
            return
        outlet = self._outlet
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._failures.keep_going("making labels", self._make_forever))
                tasks.create_task(self._failures.keep_going("publishing labels", lambda: self._put_forever(outlet)))
                tasks.create_task(self._failures.keep_going("watching labels", lambda: outlet.watch(self._put_now.set)))
        finally:
            outlet.leave()

    async def _make_forever(self) -> None:
        """While no driver answers, labels stay as they are: GPUs do not leave with it, as when it is replaced."""
        basis = self._basis.value
        while True:
            if basis is not None and not basis.info.absent:
                await self._make_labels(basis)
            basis = await self._basis.wait_for_change(basis)

    async def _make_labels(self, basis: InventoryBasis) -> None:
        settings = self._settings
        features = settings.features
        machine_file = None if features.machine_file is None else on_host(settings, features.machine_file)
        timestamp = int(self._clock.now().timestamp()) if features.has_timestamp else None
        gpus, info, config = basis.gpus, basis.info, basis.sharing
        found = await run_in_thread(
            lambda: collect_facts(gpus, info, settings.sysfs_root, machine_file, timestamp), "purser-features"
        )
        facts = msgspec.structs.replace(
            found, mig_strategy=config.settings.mig_strategy, sharing=sharing_of(config.file)
        )
        self._labels, troubles = labels_of(facts)
        if troubles and troubles != self._troubles:
            log.warning("Some of the node's labels cannot be determined", why=list(troubles))
        self._troubles = troubles
        self._put_now.set()

    async def _put_forever(self, outlet: Outlet) -> None:
        self._put_now.set()  # after a failure, too: what was to be put is still to be put
        while True:
            await self._put_now.wait()
            self._put_now.clear()
            if self._labels is not None:
                await self._put_labels(outlet, self._labels)

    async def _put_labels(self, outlet: Outlet, labels: Labels) -> None:
        where = self._settings.features.outlet
        try:
            if await outlet.put(labels):
                log.info("Published the node's labels", outlet=where, labels=len(labels))
                await self._clock.sleep(self._pace.after("labels", labels))
            self._backoff.reset()
        except (KubeError, OSError) as error:
            delay = self._backoff.next()
            log.warning("Cannot publish the node's labels", outlet=where, error=str(error), retry_in_s=round(delay, 2))
            await self._clock.sleep(delay)
            self._put_now.set()


def _outlet(settings: AgentSettings, client: Client, nodes: Informer[Node]) -> Outlet | None:
    features = settings.features
    if features.outlet is FeatureOutlet.FILE:
        return FeatureFile(on_host(settings, features.file), is_kept=features.keeps_file)
    if features.outlet is FeatureOutlet.NODE_FEATURE:
        return NodeFeatureObject(client, settings.node_name, settings.namespace, features.pod_name)
    return NodeLabels(client, settings.node_name, nodes) if features.outlet is FeatureOutlet.NODE_LABELS else None
