"""One scheduler process, composed: what is made, in which order it starts, and how it ends."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec
import structlog

from purser.core.placement.warmup import warm_up
from purser.kube.client import Client
from purser.kube.config import ClusterConfig
from purser.kube.errors import ConfigError, KubeError
from purser.kube.events import EventRecorder
from purser.kube.informer import Informer
from purser.kube.leases import LeaseFollower
from purser.kube.objects import Node, Pod
from purser.kube.racing import until
from purser.kube.resources import NAMESPACES, NODES, PODS
from purser.scheduler.arrivals import Arrivals
from purser.scheduler.cache import ClusterCache
from purser.scheduler.certificates_keeper import CertificateKeeper, MemoryStore, SecretStore
from purser.scheduler.extender import KubeExtender
from purser.scheduler.extender_quota import RESOURCE_QUOTAS, ResourceQuota
from purser.scheduler.keys import load_or_create_keys
from purser.scheduler.metrics import SchedulerMetrics
from purser.scheduler.registration import Registration, own_user
from purser.scheduler.server import Backends, ClientAuth, https_app, trust_clients
from purser.scheduler.settings import SchedulerSettings, ServerSettings, ServiceTarget, UrlTarget, WebhookSettings
from purser.scheduler.strays import Strays
from purser.scheduler.topologies import Topologies
from purser.scheduler.validation import Validation
from purser.scheduler.webhook import Mutation
from purser.telemetry import listening, telemetry_app

log = structlog.get_logger("purser.scheduler")

COMPONENT = "purser-scheduler"
RETRY_S = 2.0

T = TypeVar("T")
Spawn = Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]


class Addresses(msgspec.Struct, frozen=True):
    """The ports that a scheduler listens on, for whoever left the choice to the system."""

    https: int
    metrics: int


async def run(
    settings: SchedulerSettings,
    config: ClusterConfig,
    stop: asyncio.Event,
    on_ready: Callable[[Addresses], None] | None = None,
) -> None:
    """Webhook and extender, until ``stop`` is set.

    ``on_ready`` is called once pods can be placed: the cluster is known, the webhook registered. While the API server
    is away it is waited for. Raises `ConfigError`, `SigningKeyError`, and OSError for a port that is taken.
    """
    await until(_serve(settings, config, on_ready or (lambda addresses: None)), stop.wait())


@dataclass(frozen=True)
class _Parts:
    """What a process consists of, made but not started."""

    cache: ClusterCache
    pods: Informer[Pod]
    nodes: Informer[Node]
    quotas: Informer[ResourceQuota]
    extender: KubeExtender
    follower: LeaseFollower | None

    @property
    def may_bind(self) -> bool:
        """Whether this process places pods, or another replica does."""
        return self.follower is None or self.follower.is_held_here


async def _serve(settings: SchedulerSettings, config: ClusterConfig, on_ready: Callable[[Addresses], None]) -> None:
    """Start everything, and stay. What was started last ends first: no request is answered by half a process."""
    host = settings.host_name or socket.gethostname()
    metrics, readiness = SchedulerMetrics(), _Readiness()
    try:
        async with AsyncExitStack() as stack:
            plain = telemetry_app(metrics.registry, readiness.reasons)
            server = settings.server
            metrics_port = await stack.enter_async_context(
                listening(plain, server.metrics_address, server.metrics_port)
            )
            client = await stack.enter_async_context(Client(config, field_manager=COMPONENT))
            events = await stack.enter_async_context(EventRecorder(client, COMPONENT, host))
            spawn = (await stack.enter_async_context(asyncio.TaskGroup())).create_task
            compiled = spawn(asyncio.to_thread(warm_up))
            parts = await _make_parts(settings, client, metrics, events, host)
            stack.push_async_callback(parts.extender.drain)
            await _start_parts(parts, client, spawn)
            parts.extender.refresh()
            keeper = await _start_keeper(settings, client, spawn)
            user = await _scheduler_user(settings.webhook, client)
            mutation = Mutation(settings.scheduler_name, parts.cache.largest_node)
            validation = Validation(settings.scheduler_name, lambda: user)
            await compiled
            backends = Backends(parts.extender, mutation, validation, metrics, readiness.reasons)
            app = https_app(backends, _client_auth(server, keeper))
            port = await stack.enter_async_context(listening(app, server.bind_address, server.port, keeper.context))
            readiness.started(
                parts.extender.not_ready, lambda: [] if keeper.is_valid else ["the certificate has expired"]
            )
            await _register(settings.webhook, client, keeper, port, spawn)
            if settings.webhook:
                await _start_strays(parts, client, events, spawn)
            log.info("The scheduler is ready", port=port, metrics_port=metrics_port)
            on_ready(Addresses(port, metrics_port))
            await asyncio.get_running_loop().create_future()
    except BaseExceptionGroup as group:
        raise _only(group) from None


async def _make_parts(
    settings: SchedulerSettings, client: Client, metrics: SchedulerMetrics, events: EventRecorder, host: str
) -> _Parts:
    keys = await _insist(lambda: load_or_create_keys(client, settings.namespace), "The signing key cannot be read")
    cache = ClusterCache(keys, metrics)
    pods, nodes, quotas = Informer(client, PODS), Informer(client, NODES), Informer(client, RESOURCE_QUOTAS)
    cache.attach(pods, nodes, quotas)
    follower = _follower(settings, client, host)
    may_bind = (lambda: follower.is_held_here) if follower else (lambda: True)
    arrivals = Arrivals(settings.scheduler_name)
    arrivals.attach(pods)
    extender = KubeExtender(
        cache,
        client,
        keys,
        arrivals,
        settings.policy,
        metrics,
        events,
        scheduler_name=settings.scheduler_name,
        may_bind=may_bind,
    )
    if follower:
        follower.add_listener(extender.leadership_changed)
    return _Parts(cache, pods, nodes, quotas, extender, follower)


async def _start_parts(parts: _Parts, client: Client, spawn: Spawn) -> None:
    """Nodes are listed first, so that no pod's grant is found on a card that nobody has heard of."""
    informers: tuple[Informer[Any], ...] = (parts.nodes, parts.pods, parts.quotas)
    for informer in informers:
        spawn(informer.run())
        await informer.synced()
    if parts.follower:
        spawn(parts.follower.run())
        await parts.follower.synced()
    spawn(parts.extender.run())
    spawn(Topologies(client, parts.cache.kubelets).run())


async def _start_keeper(settings: SchedulerSettings, client: Client, spawn: Spawn) -> CertificateKeeper:
    store = SecretStore(client, settings.namespace) if settings.webhook else MemoryStore()
    keeper = CertificateKeeper(store, _server_names(settings.webhook))
    spawn(keeper.run())
    await keeper.served()
    return keeper


async def _register(
    webhook: WebhookSettings | None, client: Client, keeper: CertificateKeeper, port: int, spawn: Spawn
) -> None:
    if webhook is None:
        return
    registration = Registration(client, webhook, _target(webhook, port), lambda: keeper.ca_bundle)
    keeper.on_change(registration.refresh)
    spawn(registration.run())
    await registration.done()


async def _start_strays(parts: _Parts, client: Client, events: EventRecorder, spawn: Spawn) -> None:
    namespaces = Informer(client, NAMESPACES)
    spawn(namespaces.run())
    await namespaces.synced()
    spawn(Strays(client, parts.pods, namespaces, events, lambda: parts.may_bind).run())


async def _scheduler_user(webhook: WebhookSettings | None, client: Client) -> str:
    if webhook is None:
        return ""
    return webhook.scheduler_user or await own_user(client)


def _follower(settings: SchedulerSettings, client: Client, host: str) -> LeaseFollower | None:
    lease = settings.follow_lease
    return LeaseFollower(client, lease.namespace, lease.name, host) if lease else None


def _server_names(webhook: WebhookSettings | None) -> Sequence[str]:
    """Names that the API server may call, and those for kube-scheduler in the same pod."""
    local = ("localhost", "127.0.0.1", "::1")
    if webhook is None:
        return local
    target = webhook.target
    if isinstance(target, UrlTarget):
        return tuple(dict.fromkeys((target.host, *local)))
    service = f"{target.name}.{target.namespace}"
    return (f"{service}.svc", service, f"{service}.svc.cluster.local", *local)


def _target(webhook: WebhookSettings, port: int) -> ServiceTarget | UrlTarget:
    target = webhook.target
    return replace(target, port=port) if isinstance(target, UrlTarget) and target.port == 0 else target


def _client_auth(server: ServerSettings, keeper: CertificateKeeper) -> ClientAuth:
    """Whom to answer. Raises `ConfigError` for a file that cannot be used."""
    try:
        if server.client_ca_file:
            trust_clients(keeper.context, server.client_ca_file)
        token = server.bearer_token_file.read_text().strip() if server.bearer_token_file else ""
    except OSError as error:
        raise ConfigError(f"the file that says whom to answer cannot be read: {error}") from error
    if server.bearer_token_file and not token:
        raise ConfigError(f"{server.bearer_token_file} holds no token: write one line with it")
    return ClientAuth(server.client_ca_file is not None, token)


class _Readiness:
    """Why the process should not be asked yet, as its parts say."""

    def __init__(self) -> None:
        self._checks: tuple[Callable[[], list[str]], ...] = (lambda: ["starting"],)

    def started(self, *checks: Callable[[], list[str]]) -> None:
        """From now on these decide."""
        self._checks = checks

    def reasons(self) -> list[str]:
        """All that is in the way."""
        return [reason for check in self._checks for reason in check()]


async def _insist(attempt: Callable[[], Awaitable[T]], complaint: str) -> T:
    while True:
        try:
            return await attempt()
        except KubeError as error:
            log.warning(complaint, error=str(error), retry_in_s=RETRY_S)
            await asyncio.sleep(RETRY_S)


def _only(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error in a group of one: callers look for its type, not for a task group's wrapping."""
    if len(group.exceptions) > 1:
        return group
    inner = group.exceptions[0]
    return _only(inner) if isinstance(inner, BaseExceptionGroup) else inner
