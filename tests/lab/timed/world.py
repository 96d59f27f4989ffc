"""Purser's scheduler and the lab's kube-scheduler around the lab's API server, as `purser.lab.cluster` has them.

kube-scheduler's clock is the test's: a pod in back-off stays there until the test moves time on. So the test can let
both schedulers hear of every pod that ended before anybody is tried again, which is the one thing that a simulator
leaves out: the milliseconds in which one of them knows and the other does not.
"""

import asyncio
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import aiohttp

from purser.core.names import DEFAULT_NAMESPACE, SCHEDULER_NAME
from purser.core.policy.settings import Authority, PolicySettings
from purser.kube.client import Client
from purser.kube.config import ClusterConfig
from purser.kube.informer import Informer
from purser.kube.objects import Pod
from purser.kube.resources import MUTATING_WEBHOOKS, NAMESPACES, NODES, PODS, VALIDATING_WEBHOOKS
from purser.lab import profile
from purser.lab.controllers.scheduling.claims import CLAIMS
from purser.lab.controllers.scheduling.extender import HttpExtender
from purser.lab.controllers.scheduling.queue import MAX_BACKOFF_S
from purser.lab.controllers.scheduling.scheduler import Scheduler
from purser.lab.controlplane.plane import ADMIN, EmbeddedControlPlane
from purser.scheduler import run as purser_scheduler
from purser.scheduler.cache.cache import ClusterCache
from purser.scheduler.run import Addresses
from purser.scheduler.settings import SchedulerSettings, ServerSettings, UrlTarget, WebhookSettings
from purser.scheduler.webhook.configurations import mutating_configuration, validating_configuration
from tests.unit.kube.servers import ManualClock

_LOCALHOST = "127.0.0.1"
_SCHEDULER_USER = f"system:serviceaccount:{DEFAULT_NAMESPACE}:purser-scheduler"
_DEADLINE_S = 30.0
"""For questions as well: no pod is tried twice between two events, so one that timed out would count as refused."""


class World:
    """One cluster whose pods the test creates and ends."""

    def __init__(self, client: Client, kube_scheduler: Scheduler, its_pods: Informer[Any], clock: ManualClock) -> None:
        self.client = client
        self.bound: list[Pod] = []
        """In the order in which they were bound."""
        self._kube_scheduler = kube_scheduler
        self._its_pods = its_pods
        self._clock = clock
        self.cache: ClusterCache
        """What Purser knows."""

    def pod_changed(self, old: Pod, new: Pod) -> None:
        """What the test's own watch tells."""
        if new.spec.node_name and not old.spec.node_name:
            self.bound.append(new)

    async def tried(self, pending: Callable[[], int]) -> None:
        """Wait until everybody who is pending was tried and found no place."""
        await _eventually(lambda: self._kube_scheduler.resting() == pending())

    async def heard_of_the_end(self, uids: list[str]) -> None:
        """Wait until both schedulers know that these pods have ended; nobody is tried again meanwhile."""
        await _eventually(lambda: all(self._both_know(uid) for uid in uids))

    def pass_time(self) -> None:
        """So much that nobody's back-off lasts longer."""
        self._clock.advance(MAX_BACKOFF_S)

    def _both_know(self, uid: str) -> bool:
        pod = self._its_pods.store.by_uid(uid)
        return pod is not None and pod["status"].get("phase") == "Succeeded" and self.cache.ledger.grant(uid) is None


@asynccontextmanager
async def cluster(
    node: str, gpu: tuple[Any, ...], prepare: Callable[[Client], Awaitable[None]]
) -> AsyncIterator[World]:
    """A cluster with these policies for nodes and GPUs, and with the nodes that ``prepare`` makes."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="purser-timed-")))
        plane = await stack.enter_async_context(EmbeddedControlPlane(folder, 0))
        admin = await stack.enter_async_context(Client(ClusterConfig.load(plane.kubeconfig(ADMIN))))
        config = ClusterConfig.load(plane.kubeconfig(_SCHEDULER_USER))
        await admin.create(NAMESPACES, {"metadata": {"name": DEFAULT_NAMESPACE}})
        await prepare(admin)
        client = await stack.enter_async_context(Client(config))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        caches, port = _listen_in(stack), asyncio.get_running_loop().create_future()
        spawn = (await stack.enter_async_context(_tasks())).create_task
        settings = _settings(PolicySettings(node, gpu, Authority.EXCLUSIVE))
        spawn(
            purser_scheduler.run(
                settings,
                config,
                asyncio.Event(),
                lambda at: port.set_result(at.extender),
                lambda at: _install_webhooks(admin, settings.webhook, at),
            )
        )
        pods, nodes, claims = (Informer(client, resource) for resource in (PODS.raw(), NODES.raw(), CLAIMS))
        patient = replace(profile.extender(await port), timeout_s=_DEADLINE_S)
        extender = HttpExtender(patient, session, _trusting())
        clock = ManualClock()
        scheduler = Scheduler(SCHEDULER_NAME, client, pods, nodes, claims, [extender], clock)
        world = World(admin, scheduler, pods, clock)
        world.cache = caches[0]
        seen = Informer(admin, PODS)
        seen.add_handler(on_update=world.pod_changed)
        for part in (pods, nodes, claims, seen):
            spawn(part.run())
            await part.synced()
        spawn(world._kube_scheduler.run())
        yield world


async def _install_webhooks(client: Client, webhook: WebhookSettings, addresses: Addresses) -> None:
    """In place of the Helm chart."""
    target = webhook.target_at(addresses.webhook)
    await client.apply(MUTATING_WEBHOOKS, mutating_configuration(webhook, target), force=True)
    await client.apply(VALIDATING_WEBHOOKS, validating_configuration(webhook, target), force=True)


def _settings(policy: PolicySettings) -> SchedulerSettings:
    server = ServerSettings(_LOCALHOST, 0, extender_port=0, metrics_address=_LOCALHOST, metrics_port=0)
    webhook = WebhookSettings(target=UrlTarget(_LOCALHOST), scheduler_user=_SCHEDULER_USER)
    return SchedulerSettings(policy=policy, server=server, webhook=webhook)


def _listen_in(stack: AsyncExitStack) -> list[ClusterCache]:
    """The caches of the schedulers that start from now on: nobody else tells at once what a scheduler knows."""
    made: list[ClusterCache] = []

    class Told(ClusterCache):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            made.append(self)

    stack.enter_context(mock.patch.object(purser_scheduler, "ClusterCache", Told))
    return made


def _trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@asynccontextmanager
async def _tasks() -> AsyncIterator[asyncio.TaskGroup]:
    async with asyncio.TaskGroup() as group:
        try:
            yield group
        finally:
            for task in list(group._tasks):
                task.cancel()


async def _eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(_DEADLINE_S):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
