"""A scheduler's deciding half against the lab's API server over HTTP, for the tests beside this file."""

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec

from purser.core.decisions import Reader, Replayer
from purser.core.fleet.consistency import violations
from purser.core.grant.signing import read
from purser.core.model import (
    ContainerGrant,
    ContainerKind,
    Device,
    DeviceShare,
    GpuPolicy,
    Grant,
    GrantState,
    NodeInventory,
    NodePolicy,
)
from purser.core.names import DEFAULT_NAMESPACE, INVENTORY_ANNOTATION
from purser.core.placement import Evaluator, PolicySettings
from purser.core.vendors.family import DeviceFamily
from purser.kube import (
    AlreadyExistsError,
    Client,
    ClusterConfig,
    EventRecorder,
    Informer,
    SystemClock,
    untyped_resource,
)
from purser.kube.login import Source, StoredLogin
from purser.kube.objects import Pod
from purser.kube.pod_details import CACHED_PODS
from purser.kube.resource_quotas import RESOURCE_QUOTAS
from purser.kube.resources import EVENTS, NAMESPACES, NODES, PODS
from purser.lab.apiserver import ApiServer
from purser.scheduler.cache.cache import ClusterCache
from purser.scheduler.decision_log import NO_LOG, DecisionLog, LogFiles, WrittenDecisionLog
from purser.scheduler.extender.extender import KubeExtender
from purser.scheduler.extender_api import ExtenderArgs, ExtenderBindingArgs
from purser.scheduler.keys import GrantKeys, load_or_create_keys
from purser.scheduler.metrics import SchedulerMetrics

PRIORITY_CLASSES = untyped_resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)

BINPACK = PolicySettings(NodePolicy.BINPACK, (GpuPolicy.BINPACK,))


class Clock(SystemClock):
    """The real time plus what a test adds."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


class LogOptions(NamedTuple):
    """Of a replica's decision log."""

    folder: Path
    file_bytes: int
    one_in: int
    names_key: bytes | None


class World:
    """One scheduler replica and the cluster around it."""

    def __init__(
        self,
        api: ApiServer,
        client: Client,
        keys: GrantKeys,
        may_bind: Callable[[], bool],
        policy: PolicySettings = BINPACK,
        families: Sequence[DeviceFamily] = (),
        log: LogOptions | None = None,
    ) -> None:
        self.api, self.client, self.keys = api, client, keys
        self.metrics, self.clock = SchedulerMetrics(), Clock()
        self.events = EventRecorder(client, "purser-scheduler", "here")
        self.cache = ClusterCache(keys, self.metrics, self.clock, families=families)
        self.pods, self.nodes = Informer(client, CACHED_PODS), Informer(client, NODES)
        self.quotas, self.namespaces = Informer(client, RESOURCE_QUOTAS), Informer(client, NAMESPACES)
        self.cache.attach(self.pods, self.nodes, self.quotas, self.namespaces)

        def make_log(evaluator: Evaluator) -> DecisionLog:
            if log is None:
                return NO_LOG
            files = LogFiles(log.folder, "here", 100, self.metrics, self.clock.now)
            told = (log.file_bytes, log.one_in, lambda: log.names_key)
            return WrittenDecisionLog(self.cache, evaluator, files, self.metrics, *told)

        self.extender = KubeExtender(client, self.cache, keys, policy, self.metrics, self.events, may_bind, make_log)

    @property
    def ledger(self):  # type: ignore[no-untyped-def]
        return self.cache.ledger

    async def add_node(self, name: str, cards: int = 1, memory: int = 8000, **facts: Any) -> None:
        devices = tuple(Device(f"{name}-{i}", i, "NVIDIA A100", memory, slots=10) for i in range(cards))
        inventory = msgspec.structs.replace(NodeInventory(name, devices), **facts)
        annotations = {INVENTORY_ANNOTATION: msgspec.json.encode(inventory).decode()}
        await self.client.create(NODES, {"metadata": {"name": name, "annotations": annotations}})
        await eventually(lambda: self.cache.fleet.node(name) is not None)

    async def add_pod(
        self,
        name: str,
        memory: int | None = 1000,
        *,
        priority: int = 0,
        annotations: dict[str, str] | None = None,
        labels: dict[str, str] | None = None,
        spec: dict[str, Any] | None = None,
        wait: bool = True,
        **limits: str,
    ) -> Pod:
        """A pod that asks for one card with so much memory; None: for no card."""
        asked = {} if memory is None else {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory)}
        body = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "annotations": annotations or {},
                "labels": labels or {},
            },
            "spec": {
                "schedulerName": "purser-scheduler",
                "priorityClassName": await self._priority_class(priority),
                "containers": [{"name": "c", "image": "i", "resources": {"limits": {**asked, **limits}}}],
                **(spec or {}),
            },
        }
        pod = await self.client.create(PODS, body)
        if wait:
            await eventually(lambda: self.cache.pod_by_uid(pod.metadata.uid) is not None)
        return pod

    async def _priority_class(self, value: int) -> str:
        name = f"priority-{value}"
        with contextlib.suppress(AlreadyExistsError):
            await self.client.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
        return name

    async def stored(self, pod: Pod) -> Pod:
        return await self.client.get(PODS, pod.metadata.name, "default")

    async def grant_on(self, pod: Pod) -> Grant | None:
        """What the pod's annotations say, in the API server."""
        return read((await self.stored(pod)).metadata.annotations)

    async def bind(self, pod: Pod, node: str) -> str:
        """The error, empty when the pod is bound."""
        meta = pod.metadata
        return (await self.extender.bind(ExtenderBindingArgs(meta.name, meta.namespace, meta.uid, node))).error

    def bind_failures(self) -> set[str]:
        """The reasons of those that were counted."""
        families = self.metrics.registry.collect()
        counted = next(each for each in families if each.name == "purser_scheduler_bind_failures")
        return {each.labels["reason"] for each in counted.samples if each.name.endswith("_total") and each.value}

    async def filter(self, pod: Pod, *nodes: str):  # type: ignore[no-untyped-def]
        return await self.extender.filter(ExtenderArgs(pod, list(nodes)))

    async def event_messages(self) -> list[str]:
        await self.events.drain()
        return [event.message for event in (await self.client.list(EVENTS, "default")).items]

    def memory_used(self, node: str) -> int:
        return sum(usage.memory_mib for usage in self.ledger.usage(node).values())

    def state_of(self, pod: Pod) -> GrantState | None:
        return self.ledger.state(pod.metadata.uid)


@contextlib.asynccontextmanager
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer(tls=False) as api:
        async with _client(api) as client:
            await client.create(NAMESPACES, {"metadata": {"name": DEFAULT_NAMESPACE}})
        yield api


@contextlib.asynccontextmanager
async def replica(
    api: ApiServer,
    client_class: type[Client] = Client,
    may_bind: Callable[[], bool] = lambda: True,
    policy: PolicySettings = BINPACK,
    families: Sequence[DeviceFamily] = (),
    *,
    has_log: bool = True,
    log_folder: Path | None = None,
    log_bytes: int = 1 << 20,
    one_in: int = 1,
    names_key: bytes | None = None,
) -> AsyncIterator[World]:
    """A scheduler process, from start to its sudden end. Whatever it decided is decided again, of its log alone."""
    with TemporaryDirectory() as temporary:
        folder = log_folder or Path(temporary)
        log = LogOptions(folder, log_bytes, one_in, names_key) if has_log else None
        async with _replica(api, client_class, may_bind, policy, families, log) as world:
            yield world
        assert replayed(folder) == []


def replayed(folder: Path) -> list[object]:
    """What comes out differently, of the decisions in a folder of logs."""
    replayer, found = Replayer(), []
    for path in sorted(folder.glob("*.log")):
        reader = Reader(io.BytesIO(path.read_bytes()).read)
        found += [replayer.take(reader, record) for record in reader]
    return [each for each in found if each is not None]


@contextlib.asynccontextmanager
async def _replica(
    api: ApiServer,
    client_class: type[Client],
    may_bind: Callable[[], bool],
    policy: PolicySettings,
    families: Sequence[DeviceFamily],
    log: LogOptions | None,
) -> AsyncIterator[World]:
    async with _client(api, client_class) as client:
        keys = await load_or_create_keys(client, DEFAULT_NAMESPACE)
        world = World(api, client, keys, may_bind, policy, families, log)
        informers = (world.pods, world.nodes, world.quotas, world.namespaces)
        running = [*informers, world.events]
        tasks = [asyncio.create_task(part.run()) for part in running]
        tasks.append(asyncio.create_task(world.cache.budgets.follow(client)))
        await asyncio.gather(*(informer.synced() for informer in informers))
        try:
            yield world
            assert violations(world.cache.fleet, world.extender._evaluator._live) == ()
        finally:
            await world.extender.drain()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _client(api: ApiServer, client_class: type[Client] = Client) -> Client:
    login = StoredLogin(Source("test", api.admin_token.encode()))
    return client_class(ClusterConfig(api.url, login, api.ca.encode()), timeout=5.0)


async def eventually(holds: Callable[[], bool], within_s: float = 60.0) -> None:
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def a_grant(uid: str, node: str, device: str, memory: int = 1000, name: str = "p") -> Grant:
    share = DeviceShare(device, memory, 0)
    return Grant(uid, "default", name, node, (ContainerGrant("c", ContainerKind.APP, (share,)),))
