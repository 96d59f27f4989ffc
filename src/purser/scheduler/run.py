"""One scheduler process, composed: what is made, in which order it starts, and how it ends."""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import structlog

from purser.connections import Limits
from purser.core.node.writers import node_writers
from purser.core.placement import Evaluator
from purser.core.placement.warmup import warm_up
from purser.core.state import StateReplica
from purser.core.vendors.catalogue import families_of
from purser.kube.client import Client
from purser.kube.config import ClusterConfig
from purser.kube.errors import ConfigError
from purser.kube.events import EventRecorder
from purser.kube.informer import Informer
from purser.kube.leases import LeaseFollower
from purser.kube.objects import Namespace, Node, Pod
from purser.kube.pod_details import CACHED_PODS
from purser.kube.racing import until
from purser.kube.resource_quotas import RESOURCE_QUOTAS, ResourceQuota
from purser.kube.resources import NAMESPACES, NODES
from purser.kube.retrying import retry_until_accepted
from purser.scheduler.binding import DoubleGrants, HamiPods, ServedPods
from purser.scheduler.cache import ClusterCache, Topologies
from purser.scheduler.capacity import CapacityCounter
from purser.scheduler.certificates_keeper import (
    CertificateKeeper,
    CertificateStore,
    FolderStore,
    MemoryStore,
    SecretStore,
)
from purser.scheduler.decision_log import NO_LOG, DecisionLog, LogFiles, WrittenDecisionLog
from purser.scheduler.extender import KubeExtender
from purser.scheduler.hami_amounts import HamiAmounts
from purser.scheduler.held_gpus import HeldGpus
from purser.scheduler.invariants import InvariantWatch
from purser.scheduler.keys import GrantKeys, load_or_create_keys, names_key_of
from purser.scheduler.metrics import SchedulerMetrics
from purser.scheduler.missed_pods import MissedPods
from purser.scheduler.published_ca import PublishedCa
from purser.scheduler.quota_usage import QuotaUsage
from purser.scheduler.read_api import (
    READ_API_LIMITS,
    AccessControl,
    NodePage,
    ObjectPage,
    RolloutPage,
    SharedReads,
    StatePage,
    WhyPage,
    read_api_app,
)
from purser.scheduler.server import ClientAuth, extender_app, trust_clients, webhook_app
from purser.scheduler.settings import (
    READ_API_SERVICE,
    DecisionLogSettings,
    SchedulerSettings,
    ServerSettings,
    UrlTarget,
    WebhookSettings,
)
from purser.scheduler.webhook import (
    DeviceRules,
    Mutation,
    NodeWrites,
    Validation,
    WebhookProbe,
    WebhookRegistration,
    own_user,
)
from purser.telemetry import listening, telemetry_app

log = structlog.get_logger("purser.scheduler")

COMPONENT = "purser-scheduler"

Spawn = Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]


class Addresses(msgspec.Struct, frozen=True):
    """The ports that a scheduler listens on, where the system chose them."""

    webhook: int
    extender: int
    metrics: int
    read_api: int | None = None
    """None: it is not served."""


async def run(
    settings: SchedulerSettings,
    config: ClusterConfig,
    stop: asyncio.Event,
    on_ready: Callable[[Addresses], None] | None = None,
    on_listening: Callable[[Addresses], Awaitable[None]] | None = None,
) -> None:
    """Webhook and extender, until ``stop`` is set.

    ``on_listening`` is called and waited for once the ports are known, for creating webhook configurations that name
    one; ``on_ready`` once pods can be placed: the cluster is known, the webhook configurations have the CA, or are
    known to be missing. Retries until the API server is reachable. Raises `ConfigError`, `SigningKeyError`, and
    OSError for a port that is taken.
    """
    _check(settings.server)
    await until(
        _serve(settings, config, on_listening or _do_nothing, on_ready or (lambda addresses: None)), stop.wait()
    )


async def _do_nothing(_: Addresses) -> None:
    """Webhook configurations are there, as a rule."""


@dataclass(frozen=True)
class _SchedulerParts:
    """What a process consists of, made but not started."""

    cache: ClusterCache
    pods: Informer[Pod]
    nodes: Informer[Node]
    quotas: Informer[ResourceQuota]
    namespaces: Informer[Namespace]
    extender: KubeExtender
    keys: GrantKeys
    follower: LeaseFollower | None
    may_bind: Callable[[], bool]
    """Whether this process places pods, or another replica does."""


async def _serve(
    settings: SchedulerSettings,
    config: ClusterConfig,
    on_listening: Callable[[Addresses], Awaitable[None]],
    on_ready: Callable[[Addresses], None],
) -> None:
    """Start everything, and stay. What was started last ends first: no request is answered by half a process."""
    host, server = settings.host_name or socket.gethostname(), settings.server
    metrics, readiness = SchedulerMetrics(), _Readiness()
    try:
        async with AsyncExitStack() as stack:
            metrics_app = telemetry_app(metrics.registry, readiness.reasons)
            metrics_port = await stack.enter_async_context(
                listening(metrics_app, server.metrics_address, server.metrics_port)
            )
            client = await stack.enter_async_context(Client(config, field_manager=COMPONENT))
            events = await stack.enter_async_context(EventRecorder(client, COMPONENT, host))
            spawn = (await stack.enter_async_context(asyncio.TaskGroup())).create_task
            warm_up_task = spawn(asyncio.to_thread(warm_up))
            parts = await _make_parts(settings, client, metrics, events, host)
            stack.push_async_callback(parts.extender.drain)
            await _start_parts(parts, client, spawn)
            spawn(DoubleGrants(client, parts.cache, events, metrics, parts.may_bind).run())
            spawn(HamiAmounts(client, parts.nodes, parts.may_bind, dict(settings.memory_units)).run())
            spawn(HamiPods(client, parts.cache, parts.keys, parts.pods, parts.nodes, events, parts.may_bind).run())
            if served := settings.served_scheduler_names:
                served_pods = ServedPods(
                    client, parts.cache, parts.keys, parts.pods, events, parts.may_bind, served, settings.policy
                )
                spawn(served_pods.run())
            parts.extender.refresh()
            spawn(QuotaUsage(client, parts.cache, parts.pods, parts.quotas, parts.may_bind).run())
            spawn(HeldGpus(client, parts.cache, parts.pods, parts.nodes, parts.may_bind).run())
            capacity = CapacityCounter(parts.cache, parts.extender, metrics.registry)
            spawn(client.failures.keep_going("capacity", capacity.run))
            watch = InvariantWatch(parts.extender, metrics, parts.cache.clock)
            spawn(client.failures.keep_going("invariants", watch.run))
            keeper = await _start_keeper(settings, client, spawn)
            user = await _scheduler_user(settings.webhook, client)
            await warm_up_task
            webhook_port, extender_port = await _start_listening(stack, settings, parts, keeper, user, metrics)
            # Not before it answers: kube-scheduler is told to ask again about the pods that wait, once.
            spawn(parts.extender.run())
            read_api_port = await _serve_read_api(stack, settings, parts, client, keeper, metrics, host, spawn)
            readiness.started(
                parts.cache.not_ready,
                lambda: [] if keeper.is_valid else ["the certificate has expired or is not valid yet"],
            )
            addresses = Addresses(webhook_port, extender_port, metrics_port, read_api_port)
            await on_listening(addresses)
            await _register(settings, client, keeper, metrics, webhook_port, spawn)
            if settings.webhook:
                _start_missed_pods(settings, parts, client, events, spawn)
            log.info("The scheduler is ready", **msgspec.structs.asdict(addresses))
            on_ready(addresses)
            await asyncio.get_running_loop().create_future()
    except BaseExceptionGroup as group:
        raise _single_error(group) from None


async def _make_parts(
    settings: SchedulerSettings, client: Client, metrics: SchedulerMetrics, events: EventRecorder, host: str
) -> _SchedulerParts:
    keys = await retry_until_accepted(
        lambda: load_or_create_keys(client, settings.namespace), "Failed to read the signing key"
    )
    keys.report()
    cache = ClusterCache(
        keys,
        metrics,
        scheduler_name=settings.scheduler_name,
        families=families_of(settings.vendors),
        units_mib=dict(settings.memory_units),
    )
    pods, nodes, quotas = Informer(client, CACHED_PODS), Informer(client, NODES), Informer(client, RESOURCE_QUOTAS)
    namespaces = Informer(client, NAMESPACES)
    cache.attach(pods, nodes, quotas, namespaces)
    follower = _build_follower(settings, client, host)
    may_bind = (lambda: follower.is_held_here) if follower else (lambda: True)
    client.failures.report_to(metrics.registry, events, may_bind)

    def make_log(evaluator: Evaluator) -> DecisionLog:
        return _decision_log(settings.decision_log, host, evaluator, cache, keys, metrics)

    extender = KubeExtender(client, cache, keys, settings.policy, metrics, events, may_bind, make_log)
    extender.attach(pods)
    if follower:
        follower.add_listener(extender.leadership_changed)
    return _SchedulerParts(cache, pods, nodes, quotas, namespaces, extender, keys, follower, may_bind)


def _decision_log(
    settings: DecisionLogSettings,
    host: str,
    evaluator: Evaluator,
    cache: ClusterCache,
    keys: GrantKeys,
    metrics: SchedulerMetrics,
) -> DecisionLog:
    if settings.folder is None:
        return NO_LOG

    def names_key() -> bytes | None:
        return names_key_of(keys) if settings.anonymous else None

    files = LogFiles(settings.folder, host, settings.files, metrics, cache.clock.now)
    file_bytes = settings.file_mib << 20
    return WrittenDecisionLog(cache, evaluator, files, metrics, file_bytes, settings.one_in, names_key)


async def _start_parts(parts: _SchedulerParts, client: Client, spawn: Spawn) -> None:
    """Nodes and namespaces are listed first: grants of pods name GPUs of nodes, and pods are read by their namespace as
    they are listed."""
    informers: tuple[Informer[Any], ...] = (parts.nodes, parts.namespaces, parts.pods, parts.quotas)
    for informer in informers:
        spawn(informer.run())
        await informer.synced()
    keep_going = client.failures.keep_going
    spawn(keep_going("grant keys", parts.keys.run))
    if parts.follower:
        spawn(parts.follower.run())
        await parts.follower.synced()
    spawn(keep_going("disruption budgets", lambda: parts.cache.budgets.follow(client)))
    spawn(parts.extender.read_ahead())
    spawn(Topologies(client, parts.cache.kubelets).run())


async def _start_keeper(settings: SchedulerSettings, client: Client, spawn: Spawn) -> CertificateKeeper:
    keeper = CertificateKeeper(_store(settings, client), _server_names(settings))
    spawn(client.failures.keep_going("certificates", keeper.run))
    await keeper.served()
    return keeper


def _store(settings: SchedulerSettings, client: Client) -> CertificateStore:
    if settings.server.certificate_folder is not None:
        return FolderStore(settings.server.certificate_folder)
    has_remote_clients = settings.webhook is not None or settings.server.read_api_port is not None
    return SecretStore(client, settings.namespace) if has_remote_clients else MemoryStore()


async def _start_listening(
    stack: AsyncExitStack,
    settings: SchedulerSettings,
    parts: _SchedulerParts,
    keeper: CertificateKeeper,
    user: str,
    metrics: SchedulerMetrics,
) -> tuple[int, int]:
    """Webhook and extender listen from now on; their ports."""
    server = settings.server
    webhook_tls = _tls(keeper, server.webhook_client_ca_file)
    extender_tls = _tls(keeper, server.extender_client_ca_file)
    mutation, validation = _webhooks(settings, parts.cache, user)
    reviewing = webhook_app(mutation, validation, metrics, _webhook_auth(server))
    placing = extender_app(parts.extender, metrics, ClientAuth(server.extender_client_ca_file is not None))
    return (
        await stack.enter_async_context(
            listening(reviewing, server.webhook_address, server.webhook_port, webhook_tls, Limits())
        ),
        await stack.enter_async_context(
            listening(placing, server.extender_address, server.extender_port, extender_tls, Limits())
        ),
    )


async def _serve_read_api(
    stack: AsyncExitStack,
    settings: SchedulerSettings,
    parts: _SchedulerParts,
    client: Client,
    keeper: CertificateKeeper,
    metrics: SchedulerMetrics,
    host: str,
    spawn: Spawn,
) -> int | None:
    """The read API listens from now on, where it is to be served; its port."""
    server = settings.server
    if server.read_api_port is None:
        return None
    published = PublishedCa(client, settings.namespace, lambda: keeper.ca_bundle)
    keeper.on_change(published.refresh)
    spawn(client.failures.keep_going("published CA", published.run))
    clock, follower = parts.cache.clock, parts.follower

    def replica() -> StateReplica:
        leader = follower.holder_host if follower is not None else ""
        return StateReplica(host, parts.extender.places_pods, leader)

    page = StatePage(parts.cache, parts.extender.pending, replica, clock)
    rollouts = RolloutPage(client, parts.nodes.store.values, clock)
    reads, extender = SharedReads(clock), parts.extender
    objects = ObjectPage(client, parts.cache, reads)
    why = WhyPage(client, parts.cache, extender.pending, extender.searches.search, lambda: extender.places_pods, reads)
    nodes, access = NodePage(parts.cache), AccessControl(client, clock)
    app = read_api_app(access, page, nodes, objects, why, rollouts, metrics)
    return await stack.enter_async_context(
        listening(app, server.read_api_address, server.read_api_port, keeper.new_context(), READ_API_LIMITS)
    )


def _webhooks(settings: SchedulerSettings, cache: ClusterCache, user: str) -> tuple[Mutation, Validation]:
    webhook = settings.webhook or WebhookSettings()
    trusted = (settings.namespace, *webhook.device_namespaces)
    devices = DeviceRules(
        trusted, cache.enforcements, cache.enforcement_of_namespace, settings.vendors, settings.memory_units
    )
    adopted, served = settings.adopted_scheduler_names, settings.served_scheduler_names
    writers = node_writers(
        agents_taint=webhook.agents_taint, agents_cordon=webhook.agents_cordon, agents_label=webhook.agents_label
    )
    node_writes = NodeWrites(settings.namespace, cache.node_of_pod, writers)
    return (
        Mutation(settings.scheduler_name, cache, devices, adopted, served, settings.managed_resources),
        Validation(
            settings.scheduler_name, lambda: user, node_writes, devices, adopted, settings.vendor_accounts, served
        ),
    )


async def _register(
    settings: SchedulerSettings,
    client: Client,
    keeper: CertificateKeeper,
    metrics: SchedulerMetrics,
    port: int,
    spawn: Spawn,
) -> None:
    webhook = settings.webhook
    if webhook is None:
        return
    registration = WebhookRegistration(
        client,
        webhook,
        webhook.target_at(port),
        lambda: keeper.ca_bundle,
        metrics,
        own_namespace=settings.namespace,
    )
    keeper.on_change(registration.refresh)
    spawn(registration.run())
    await registration.done()


def _start_missed_pods(
    settings: SchedulerSettings, parts: _SchedulerParts, client: Client, events: EventRecorder, spawn: Spawn
) -> None:
    adopted, served = settings.adopted_scheduler_names, settings.served_scheduler_names
    missed = MissedPods(
        client,
        parts.cache,
        parts.pods,
        parts.namespaces,
        events,
        parts.may_bind,
        WebhookProbe(client, parts.cache.clock).is_called,
        adopted,
        served,
        settings.managed_resources,
    )
    spawn(missed.run())


async def _scheduler_user(webhook: WebhookSettings | None, client: Client) -> str:
    if webhook is None:
        return ""
    return webhook.scheduler_user or await own_user(client)


def _build_follower(settings: SchedulerSettings, client: Client, host: str) -> LeaseFollower | None:
    lease = settings.follow_lease
    return LeaseFollower(client, lease.namespace, lease.name, host) if lease else None


def _server_names(settings: SchedulerSettings) -> Sequence[str]:
    """Names that the API server may call, those that readers may, and those for kube-scheduler in the same pod."""
    names: list[str] = []
    target = settings.webhook.target if settings.webhook is not None else None
    if isinstance(target, UrlTarget):
        names.append(target.host)
    elif target is not None:
        names += _service_names(target.name, target.namespace)
    if settings.server.read_api_port is not None:
        names += _service_names(READ_API_SERVICE, settings.namespace)
    return tuple(dict.fromkeys((*names, "localhost", "127.0.0.1", "::1")))


def _service_names(name: str, namespace: str) -> tuple[str, ...]:
    service = f"{name}.{namespace}"
    return (f"{service}.svc", service, f"{service}.svc.cluster.local")


def _check(server: ServerSettings) -> None:
    """Raises `ConfigError` where unauthorised clients would be served."""
    if server.extender_client_ca_file is None and not _is_loopback(server.extender_address):
        raise ConfigError(
            f"any client that reaches {server.extender_address} could bind pods through the extender: set "
            "--extender-client-ca-file to the CA of the extender's clients, or use address 127.0.0.1"
        )
    if server.webhook_client_names and server.webhook_client_ca_file is None:
        raise ConfigError("--webhook-client-name requires --webhook-client-ca-file: set both")


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _tls(keeper: CertificateKeeper, client_ca_file: Path | None) -> ssl.SSLContext:
    """What a server speaks TLS with. Raises `ConfigError` for a file that cannot be used."""
    context = keeper.new_context()
    if client_ca_file is not None:
        try:
            trust_clients(context, client_ca_file)
        except OSError as error:
            raise ConfigError(f"cannot load the client CA file {client_ca_file}: {error}") from error
    return context


def _webhook_auth(server: ServerSettings) -> ClientAuth:
    return ClientAuth(server.webhook_client_ca_file is not None, frozenset(server.webhook_client_names))


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


def _single_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error in a group of one: callers look for its type, not for a task group's wrapping."""
    if len(group.exceptions) > 1:
        return group
    inner = group.exceptions[0]
    return _single_error(inner) if isinstance(inner, BaseExceptionGroup) else inner
