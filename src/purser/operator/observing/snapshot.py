"""Keeps everything that rounds decide from, and says when some of it changed."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Generic, Never, TypeVar

import structlog

from purser.kube import (
    ApiUnavailableError,
    Client,
    Clock,
    Informer,
    KubeError,
    NotFoundError,
    Raw,
    Resource,
    SystemClock,
    key_of,
)
from purser.operator.model import Budget, NodeView, ObjectKey, PodView, Settled, Snapshot
from purser.operator.names import FIELD_MANAGER, MANAGED_BY_LABEL, OPERAND_LABEL
from purser.operator.observing.expectations import Check, Expectations
from purser.operator.observing.kinds import MONITORS, OWNED, SERVICE_MONITORS, policy_version
from purser.operator.observing.objects import OPERATOR_NODES, OPERATOR_PODS, DisruptionBudget, budgets_resource
from purser.operator.observing.views import budget_view, node_view, pod_view
from purser.operator.observing.workloads import workloads_of
from purser.operator.policy import CLUSTER_POLICIES

log = structlog.get_logger("purser.operator")

LOOK_S = 60.0
"""How often it is looked whether an optional definition is installed."""
LIST_S = 60.0
"""How long it may take to list a resource anew."""
SEEN_S = 5.0
"""How long the effects of writes are waited for: watches are behind by milliseconds where all is well."""

T = TypeVar("T")
V = TypeVar("V")
LookInto = Callable[[Iterable[NodeView]], Collection[str]]
"""Names the nodes whose other pods a round has to know."""


class Observer:
    """Informers on policies, nodes, operands' pods, owned objects and budgets, while `run` runs.

    What is given to `on_change` is called when a round might come to something else than the last one.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        purser_image: str,
        *,
        policies_may_be_unknown: bool = False,
        clock: Clock | None = None,
    ):
        """``policies_may_be_unknown``: a server without the definition of ClusterPolicy has none of them. Only for
        uninstalling: an operator that took a stray 404 for that would remove everything."""
        self.settled: dict[ObjectKey, Settled] = {}
        """What this process applied, and how it came out."""
        self._client = client
        self._namespace = namespace
        self._image = purser_image
        self._on_change: Callable[[], None] = lambda: None
        self._policies_may_be_unknown = policies_may_be_unknown
        self._clock = clock or SystemClock()
        self._expectations = Expectations()
        owned = f"{MANAGED_BY_LABEL}={FIELD_MANAGER}"
        self._policies: Informer[Any] = Informer(client, CLUSTER_POLICIES)
        self._nodes = Informer(client, OPERATOR_NODES)
        self._pods = Informer(client, OPERATOR_PODS, namespace, label_selector=OPERAND_LABEL)
        self._owned: dict[Resource[Raw], Informer[Raw]] = {
            each: Informer(client, each, namespace if each.namespaced else None, label_selector=owned)
            for each in (*OWNED, *MONITORS)
        }
        self._budgets: Informer[DisruptionBudget] | None = None
        self._policy_version = "v1"
        self._served: set[Resource[Raw]] = set(OWNED)
        self._ready = asyncio.Event()
        self._node_views: dict[str, NodeView] = {}
        self._pod_views: dict[str, PodView] = {}
        self._attach()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Have a plain function called with each change; there is one listener."""
        self._on_change = listener

    @property
    def policy_version(self) -> str:
        """Version of the group ``policy`` that the server has: ``v1`` or, before 1.22, ``v1beta1``."""
        return self._policy_version

    @property
    def is_ready(self) -> bool:
        """Everything was listed once."""
        return self._ready.is_set()

    async def ready(self) -> None:
        """Return once everything was listed."""
        await self._ready.wait()

    async def run(self) -> Never:
        """Follow the cluster until cancelled."""
        self._policy_version = await self._find_policy_version()
        self._budgets = Informer(self._client, budgets_resource(self._policy_version))
        optional: list[Informer[Any]] = [self._owned[each] for each in MONITORS]
        certain: list[Informer[Any]] = [self._nodes, self._pods, self._budgets, *(self._owned[each] for each in OWNED)]
        (optional if self._policies_may_be_unknown else certain).append(self._policies)
        async with asyncio.TaskGroup() as group:
            looked = [asyncio.Event() for _ in optional]
            for informer, event in zip(optional, looked, strict=True):
                group.create_task(self._follow_if_served(informer, event))
            for informer in certain:
                group.create_task(informer.run())
            for informer in certain:
                await informer.synced()
            for event in looked:
                await event.wait()
            self._ready.set()
            self._on_change()
            await asyncio.get_running_loop().create_future()
        raise RuntimeError("informers end by cancellation only")

    async def snapshot(self, look_into: LookInto) -> Snapshot:
        """What there is now, with the effects of all writes of this process. Raises `KubeError`."""
        await self._list_anew(await self._expectations.overdue(SEEN_S))
        nodes = tuple(self._node_views[name] for name in sorted(self._node_views))
        return Snapshot(
            now=self._clock.now().timestamp(),
            namespace=self._namespace,
            purser_image=self._image,
            policies=tuple(_sorted(self._policies.store).values()),
            nodes=nodes,
            objects=self._objects(),
            settled=dict(self.settled),
            pods=tuple(_sorted(self._pod_views).values()),
            workloads=await workloads_of(self._client, look_into(nodes), self._namespace),
            budgets=self._budget_views(),
            service_monitors=SERVICE_MONITORS in self._served,
        )

    async def refresh(self) -> None:
        """Have nodes and operands' pods listed anew: another process may have written to them. Raises `KubeError`."""
        await self._list_anew({self._nodes.resource.plural, self._pods.resource.plural})

    # --- what writers tell: see `purser.operator.acting.kube.Notes`

    def applied(self, key: ObjectKey, settled: Settled) -> None:
        """An object was applied and came out so."""
        self.settled[key] = settled

    def expect(self, resource: Resource[Any], key: str, check: Check) -> None:
        """A write will have this effect, and no round begins before it was seen."""
        informer = self._informer(resource)
        if informer is not None:
            self._expectations.expect((resource.plural, key), check, informer.store.get(key))

    # --- how

    def _attach(self) -> None:
        self._watch(self._policies, None)
        self._watch(self._nodes, _Views(self._node_views, node_view))
        self._watch(self._pods, _Views(self._pod_views, pod_view))
        for informer in self._owned.values():
            self._watch(informer, None)

    def _watch(self, informer: Informer[T], views: "_Views[T, Any] | None") -> None:
        plural = informer.resource.plural

        def put(obj: T) -> None:
            if views is None or views.put(obj):
                self._on_change()
            self._expectations.see((plural, key_of(obj)), obj)

        def gone(obj: T) -> None:
            if views is not None:
                views.drop(obj)
            self._on_change()
            self._expectations.see((plural, key_of(obj)), None)

        informer.add_handler(put, lambda _, new: put(new), gone)

    def _informer(self, resource: Resource[Any]) -> Informer[Any] | None:
        """Budgets' is not among them: they are not written."""
        known: list[Informer[Any]] = [self._policies, self._nodes, self._pods]
        known += [self._owned[each] for each in self._owned if each in self._served]
        return next((each for each in known if _place(each.resource) == _place(resource)), None)

    async def _list_anew(self, plurals: Collection[str]) -> None:
        known: list[Informer[Any]] = [self._policies, self._nodes, self._pods, *self._owned.values()]
        try:
            async with asyncio.timeout(LIST_S):
                for informer in known:
                    if informer.resource.plural in plurals:
                        await informer.relist()
        except TimeoutError:
            raise ApiUnavailableError(f"{', '.join(sorted(plurals))} were not listed within {LIST_S:g} s") from None

    async def _find_policy_version(self) -> str:
        while True:
            try:
                return await policy_version(self._client)
            except KubeError as error:
                log.warning("The API server's version cannot be read and is asked again", error=str(error))
                await self._clock.sleep(1.0)

    async def _follow_if_served(self, informer: Informer[Any], looked: asyncio.Event) -> None:
        """Follow what may not be installed, from when it is until it is not."""
        running: asyncio.Task[Never] | None = None
        try:
            while True:
                served = await self._is_served(informer.resource)
                if served and running is None:
                    running = asyncio.create_task(informer.run())
                    await informer.synced()
                elif not served and running is not None:
                    running.cancel()
                    await asyncio.wait({running})
                    running = None
                self._note_served(informer.resource, served)
                looked.set()
                await self._clock.sleep(LOOK_S)
        finally:
            if running is not None:
                running.cancel()
                await asyncio.wait({running})

    async def _is_served(self, resource: Resource[Any]) -> bool:
        try:
            await self._client.list(resource, self._namespace if resource.namespaced else None)
        except NotFoundError:
            return False
        except KubeError as error:
            log.warning("It cannot be told whether a kind is served", resource=resource.plural, error=str(error))
            return resource in self._served
        return True

    def _note_served(self, resource: Resource[Any], served: bool) -> None:
        if served != (resource in self._served):
            self._served ^= {resource}
            self._on_change()

    def _objects(self) -> dict[ObjectKey, Mapping[str, Any]]:
        served = (informer for resource, informer in self._owned.items() if resource in self._served)
        return {ObjectKey.of(obj): obj for informer in served for obj in _sorted(informer.store).values()}

    def _budget_views(self) -> tuple[Budget, ...]:
        store = self._budgets.store if self._budgets is not None else {}
        views = (budget_view(each, self._policy_version) for each in _sorted(store).values())
        return tuple(view for view in views if view is not None)


class _Views(Generic[T, V]):
    """Nouns of the kernel by the objects' keys: made when an object changes, not in each round."""

    def __init__(self, views: dict[str, V], make: Callable[[T], V]):
        self._views = views
        self._make = make

    def put(self, obj: T) -> bool:
        """Whether the kernel can see a difference: kubelet's heartbeats, for one, make none."""
        key, view = key_of(obj), self._make(obj)
        known = self._views.get(key)
        self._views[key] = view
        return view != known

    def drop(self, obj: T) -> None:
        self._views.pop(key_of(obj), None)


def _place(resource: Resource[Any]) -> tuple[str, str]:
    return resource.group, resource.plural


def _sorted(store: Mapping[str, V]) -> dict[str, V]:
    return {key: store[key] for key in sorted(store)}
