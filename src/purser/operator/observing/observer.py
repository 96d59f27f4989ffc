"""Keeps everything that rounds decide from, and says when some of it changed."""

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Never, TypeVar

import msgspec
import structlog

from purser.core.names import NODE_FACTS_ANNOTATION
from purser.core.node.facts import decode_facts
from purser.kube import (
    ApiUnavailableError,
    Client,
    Clock,
    ForbiddenError,
    Informer,
    KubeError,
    NotFoundError,
    Raw,
    Resource,
    SystemClock,
    UnauthorizedError,
    key_of,
    meta_of,
)
from purser.kube.objects import Node
from purser.kube.pod_details import DETAILED_PODS
from purser.kube.policy_group import DisruptionBudget, budgets_resource, policy_version
from purser.kube.resources import NODES
from purser.operator.manifests import CONFIG_MAPS, MONITORS, OWNED_KINDS, RUNTIME_CLASSES, SERVICE_MONITORS
from purser.operator.model import AppliedObject, NodeView, ObjectKey, OperandPod, Snapshot
from purser.operator.names import FIELD_MANAGER, MANAGED_BY_LABEL, OPERAND_LABEL
from purser.operator.observing.expectations import Check, Expectations
from purser.operator.observing.kinds import (
    RIVALS,
    follow_if_served,
    is_namespace,
    is_node_feature_api_used,
    poll_forever,
)
from purser.operator.observing.views import ObservedState, ViewCache, config_view, node_view, pod_view, snapshot_of
from purser.operator.observing.workloads import Workloads
from purser.operator.policy import CLUSTER_POLICIES
from purser.operator.policy.decoding import MISSING_DEFINITION_MESSAGE, namespace_of_operator

log = structlog.get_logger("purser.operator")

KIND_LIST_TIMEOUT_S = 60.0
"""How long it may take to list a resource again."""
WRITE_EFFECT_TIMEOUT_S = 5.0
"""How long the effects of writes are waited for: watches are behind by milliseconds where all is well."""
OBSERVER_POLL_PERIOD_S = 0.1
VERSION = "the server's version"
NODE_FEATURES = "whether NodeFeature objects are served"

T = TypeVar("T")
_FOREIGN_KINDS = (RUNTIME_CLASSES, CONFIG_MAPS)
"""Kinds of which those of others are followed, too: what is there under a wanted name; what the policy names."""
NodesToInspect = Callable[[Snapshot], Collection[str]]
"""Names the nodes whose other pods a round has to know, by a snapshot without any."""


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
        uninstalling: an operator that took one wrong 404 for that would remove everything."""
        self.settled: dict[ObjectKey, AppliedObject] = {}
        """What this process applied, and how it came out."""
        self._client = client
        self._keep_going = client.failures.keep_going
        self._namespace = namespace
        self._image = purser_image
        self._on_change: Callable[[], None] = lambda: None
        self._policies_may_be_unknown = policies_may_be_unknown
        self._clock = clock or SystemClock()
        self._expectations = Expectations()
        owned = f"{MANAGED_BY_LABEL}={FIELD_MANAGER}"
        self._policies: Informer[Any] = Informer(client, CLUSTER_POLICIES)
        self._nodes = Informer(client, NODES)
        self._pods = Informer(client, DETAILED_PODS, namespace, label_selector=OPERAND_LABEL)
        self._owned: dict[Resource[Raw], Informer[Raw]] = {
            each: Informer(
                client,
                each,
                namespace if each.namespaced else None,
                label_selector=None if each in _FOREIGN_KINDS else owned,
            )
            for each in (*OWNED_KINDS, *MONITORS)
        }
        self._rivals = Informer(client, RIVALS)
        self._workloads = Workloads(client, namespace, self._notify)
        self._budgets: Informer[DisruptionBudget] | None = None
        self._policy_version = "v1"
        written: list[Informer[Any]] = [self._policies, self._nodes, self._pods, *self._owned.values()]
        self._informers = {_resource_name(each.resource): each for each in written}
        self._served: set[Resource[Any]] = {CLUSTER_POLICIES, NODES, DETAILED_PODS, *OWNED_KINDS}
        self._ready = asyncio.Event()
        self._awaited: dict[str, Callable[[], bool]] = {VERSION: self._ready.is_set}
        self._troubles: dict[str, Callable[[], KubeError | None]] = {VERSION: lambda: self._no_version}
        """Why what is awaited was not listed yet."""
        self._no_version: KubeError | None = None
        self._node_views: dict[str, NodeView] = {}
        self._operand_pods: dict[str, OperandPod] = {}
        self._config_maps: dict[str, object] = {}
        self._node_features = False
        self._attach()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Have a plain function called with each change; there is one listener."""
        self._on_change = listener

    @property
    def policy_version(self) -> str:
        """Version of the group ``policy`` that the server has: ``v1`` or, before 1.22, ``v1beta1``."""
        return self._policy_version

    @property
    def missing(self) -> list[str]:
        """What was not listed yet, with the reason where one is known; nothing once it is ready."""
        return [self._missing_words(what) for what, is_there in self._awaited.items() if not is_there()]

    async def ready(self) -> None:
        """Return once everything was listed."""
        await self._ready.wait()

    async def ready_or_refused(self) -> None:
        """Return once everything was listed: for commands, which do not wait for a server that cannot be reached, or
        that does not let them list something. Raises `KubeError`, which names the server."""
        while not self._ready.is_set():
            troubles = [(what, self._troubles[what]()) for what, is_there in self._awaited.items() if not is_there()]
            for what, error in troubles:
                if error is not None and (what == VERSION or isinstance(error, UnauthorizedError | ForbiddenError)):
                    server, message = self._client.config.server, str(error)
                    raise KubeError(message if server in message else f"{server}: {message}") from error
            await self._clock.sleep(OBSERVER_POLL_PERIOD_S)

    async def run(self) -> Never:
        """Follow the cluster until cancelled."""
        self._policy_version = await self._find_policy_version()
        self._budgets = Informer(self._client, budgets_resource(self._policy_version))
        optional: list[Informer[Any]] = [*(self._owned[each] for each in MONITORS), self._rivals]
        required: list[Informer[Any]] = [
            self._nodes,
            self._pods,
            self._budgets,
            *(self._owned[each] for each in OWNED_KINDS),
        ]
        (optional if self._policies_may_be_unknown else required).append(self._policies)
        async with asyncio.TaskGroup() as group:
            known = {
                _resource_name(informer.resource): self._follow_if_served(group, informer) for informer in optional
            }
            known |= {_resource_name(informer.resource): self._follow(group, informer) for informer in required}
            known[NODE_FEATURES] = looked = asyncio.Event()
            look = partial(poll_forever, self._takes_node_features, self._clock, looked)
            group.create_task(self._keep_going(NODE_FEATURES, look))
            self._awaited = {what: event.is_set for what, event in known.items()}
            self._troubles = {
                _resource_name(each.resource): partial(_informer_error, each) for each in (*optional, *required)
            }
            self._troubles[NODE_FEATURES] = lambda: None
            for event in known.values():
                await event.wait()
            self._ready.set()
            self._notify()
            await self._keep_going("pods on inspected nodes", self._workloads.run)
        raise RuntimeError("informers stop only when they are cancelled")

    async def snapshot(self, nodes_to_inspect: NodesToInspect) -> Snapshot:
        """What there is now, with the effects of all writes of this process. Raises `KubeError`."""
        await self._relist(await self._expectations.take_overdue(WRITE_EFFECT_TIMEOUT_S))
        seen = self._seen()
        if other_namespace := await self._other_namespace(seen):
            return msgspec.structs.replace(seen, other_namespace=other_namespace)
        nodes = nodes_to_inspect(seen)
        workloads = await self._workloads.on(nodes)
        return msgspec.structs.replace(self._seen() if nodes else seen, workloads=workloads)

    async def _other_namespace(self, seen: Snapshot) -> str:
        """Whose the policies are, if not this operator's: a namespace that is gone has no operator any more."""
        home = namespace_of_operator(seen.policies)
        return home if home not in ("", self._namespace) and await is_namespace(self._client, home) else ""

    def _seen(self) -> Snapshot:
        """All of one instant."""
        known = ObservedState(
            defined=CLUSTER_POLICIES in self._served,
            policies=self._policies.store,
            nodes=self._nodes.store,
            node_views=self._node_views,
            operand_pods=self._operand_pods,
            owned=tuple(informer.store for kind, informer in self._owned.items() if kind in self._served),
            rivals=self._rivals.store if RIVALS in self._served else {},
            budgets=self._budgets.store if self._budgets is not None else {},
            policy_version=self._policy_version,
            service_monitors=SERVICE_MONITORS in self._served,
            node_features=self._node_features,
        )
        now, settled = self._clock.now().timestamp(), self.settled
        return snapshot_of(known, now=now, namespace=self._namespace, purser_image=self._image, settled=settled)

    async def refresh(self) -> None:
        """List nodes and operands' pods again: another process may have written to them. Raises `KubeError`."""
        await self._relist({_resource_name(NODES), _resource_name(DETAILED_PODS)})

    # --- reports of writers: see `purser.operator.writing.Notes`

    def applied(self, key: ObjectKey, settled: AppliedObject) -> None:
        """An object was applied and came out so."""
        self.settled[key] = settled

    def expect(self, resource: Resource[Any], key: str, check: Check) -> None:
        """A write will have this effect, and no round begins before it was seen."""
        called = _resource_name(resource)
        informer = self._informers[called]
        if informer.resource in self._served:
            self._expectations.expect((called, key), check, informer.store.get(key))

    # --- how

    def _attach(self) -> None:
        self._watch(self._policies, None)
        self._watch(self._nodes, ViewCache(self._node_views, node_view))
        self._nodes.add_handler(self._read_facts, lambda _, node: self._read_facts(node))
        self._watch(self._pods, ViewCache(self._operand_pods, pod_view))
        self._watch(self._rivals, None)
        for informer in self._owned.values():
            views = ViewCache(self._config_maps, config_view) if informer.resource is CONFIG_MAPS else None
            self._watch(informer, views)
            informer.add_handler(on_delete=self._forget)

    def _watch(self, informer: Informer[T], views: ViewCache[T, Any] | None) -> None:
        called = _resource_name(informer.resource)

        def put(obj: T) -> None:
            if views is None or views.put(obj):
                self._notify()
            self._expectations.see((called, key_of(obj)), obj)

        def gone(obj: T) -> None:
            if views is not None:
                views.drop(obj)
            self._notify()
            self._expectations.see((called, key_of(obj)), None)

        informer.add_handler(put, lambda _, new: put(new), gone)

    def _read_facts(self, node: Node) -> None:
        """Unreadable ones are reported; discovery rewrites them later."""
        text = node.metadata.annotations.get(NODE_FACTS_ANNOTATION)
        if text and decode_facts(text) is None:
            message = f"The node facts in annotation {NODE_FACTS_ANNOTATION} are invalid, so they are ignored"
            log.warning("Ignoring invalid node facts", node=node.metadata.name)
            self._client.failures.malformed(NODES, node, message)

    async def _takes_node_features(self) -> None:
        takes = await is_node_feature_api_used(self._client)
        if takes != self._node_features:
            self._node_features = takes
            self._notify()

    async def _relist(self, resources: Collection[str]) -> None:
        try:
            async with asyncio.timeout(KIND_LIST_TIMEOUT_S):
                for called in resources:
                    await self._informers[called].wait_for_relist()
        except TimeoutError:
            raise ApiUnavailableError(
                f"{', '.join(sorted(resources))} were not listed within {KIND_LIST_TIMEOUT_S:g} s"
            ) from None

    async def _find_policy_version(self) -> str:
        while True:
            try:
                return await policy_version(self._client)
            except KubeError as error:
                self._no_version = error
                log.warning("Cannot read the API server's version, retrying", error=str(error))
                await self._clock.sleep(1.0)

    def _follow(self, group: asyncio.TaskGroup, informer: Informer[Any]) -> asyncio.Event:
        """Begin to; gives what is set once it was listed."""
        listed = asyncio.Event()

        async def note() -> None:
            await informer.synced()
            listed.set()

        group.create_task(informer.run())
        group.create_task(note())
        return listed

    def _follow_if_served(self, group: asyncio.TaskGroup, informer: Informer[Any]) -> asyncio.Event:
        """Begin to; gives what is set once it was looked for the first time."""
        looked = asyncio.Event()

        def note(served: bool) -> None:
            if served != (informer.resource in self._served):
                self._served ^= {informer.resource}
                self._notify()
            looked.set()

        follow = partial(follow_if_served, self._client, informer, self._clock, note)
        group.create_task(self._keep_going(f"following {informer.resource.plural}", follow))
        return looked

    def _missing_words(self, what: str) -> str:
        error = self._troubles[what]()
        if what == _resource_name(CLUSTER_POLICIES) and isinstance(error, NotFoundError):
            return f"{what} ({MISSING_DEFINITION_MESSAGE})"
        return f"{what} ({error})" if error is not None else what

    def _notify(self) -> None:
        self._on_change()

    def _forget(self, gone: Raw) -> None:
        """What became of an apply is of use as long as the object is there."""
        key = ObjectKey.of(gone)
        if key in self.settled and meta_of(self.settled[key].came_out).uid == meta_of(gone).uid:
            del self.settled[key]


def _informer_error(informer: Informer[Any]) -> KubeError | None:
    return informer.error


def _resource_name(resource: Resource[Any]) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural
