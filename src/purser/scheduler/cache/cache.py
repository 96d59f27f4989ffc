"""The cluster as the scheduler knows it: the book and the fleet, kept up to date from pods, nodes and quotas.

Everything here can be thrown away and read again from the API server; nothing lives only in memory but reservations
whose Binding is on its way, and those are `binding`'s.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence

import structlog

from purser.adapters.nodes import (
    DEVICE_ANNOTATIONS,
    InventoryError,
    devices_of_other_plugins,
    hami_inventory,
    joined_inventory,
    own_inventory,
)
from purser.adapters.quotas import Quotas
from purser.core.dialects import hami
from purser.core.fleet import Fleet
from purser.core.grant.quota import UNLIMITED, Demand, QuotaLimits, remaining_quota
from purser.core.ledger import Ledger
from purser.core.model import Enforcement, GrantState, NodeInventory, PodRequest
from purser.core.names import (
    ENFORCEMENT_ANNOTATION,
    GPU_RESOURCE,
    SCHEDULER_NAME,
)
from purser.core.placement.offers import FleetOffers, offers_of
from purser.core.state import StateQuota
from purser.core.vendors import hami_nodes
from purser.core.vendors.family import DeviceFamily
from purser.kube import Clock, Informer, SystemClock
from purser.kube.objects import Namespace, Node, Pod
from purser.kube.pods import is_terminal
from purser.kube.reasons import FailureReason
from purser.kube.resource_quotas import ResourceQuota
from purser.kube.resources import NODES, PODS, node_ref
from purser.kube.store import StaticStore
from purser.scheduler.cache.arrivals import Arrivals
from purser.scheduler.cache.bound_grants import BoundGrants, PublicKeys
from purser.scheduler.cache.budgets import Budgets
from purser.scheduler.cache.disputes import DisputeBook
from purser.scheduler.cache.hami_records import HamiRecords
from purser.scheduler.cache.kubelets import Kubelets
from purser.scheduler.cache.node_free_resources import NodeFreeResources
from purser.scheduler.cache.nominations import Nominations
from purser.scheduler.cache.readings import Readings
from purser.scheduler.metrics import SchedulerMetrics

log = structlog.get_logger("purser.scheduler")


class ClusterCache:
    """Fleet and ledger, kept up to date from informers."""

    def __init__(
        self,
        keys: PublicKeys | None,
        metrics: SchedulerMetrics | None = None,
        clock: Clock | None = None,
        *,
        scheduler_name: str = SCHEDULER_NAME,
        families: Sequence[DeviceFamily] = (),
        units_mib: Mapping[str, int] | None = None,
    ) -> None:
        """``families``: of other vendors, whose devices Purser serves; what nodes register of others does not count.
        ``units_mib``: see `Readings`.

        ``keys`` None: grants count as annotations state them, which is for showing and not for deciding.
        """
        self._families = families
        metrics = metrics or SchedulerMetrics()
        self.scheduler_name = scheduler_name
        self.clock = clock or SystemClock()
        """Of all that is decided from here."""
        self.readings = Readings(
            scheduler_name, self.enforcement_of_namespace, frozenset(family.name for family in families), units_mib
        )
        """What pods were found to ask for."""
        self.arrivals = Arrivals(self.readings, scheduler_name)
        self.budgets = Budgets()
        self.fleet = Fleet()
        self.nominations = Nominations(self.fleet, self.clock, self.readings, scheduler_name)
        self.kubelets = Kubelets(self.fleet)
        self.kubelets.on_unreadable = self._report_node
        self.free_resources = NodeFreeResources(self.fleet)
        self.disputes = DisputeBook(self.fleet, self._is_live, metrics, self.clock)
        self._quotas = Quotas()
        self._device_texts: dict[str, tuple[str, ...]] = {}
        self._hami = HamiRecords(self.fleet, self.clock, self.readings)
        self.bound_grants = BoundGrants(
            self.ledger, self._hami, self.disputes, keys, metrics, families, self._report_pod
        )
        self._offers: FleetOffers | None = None
        self._follows_kubelets = True
        """Whether pods are told to what is known of kubelets: not where all nodes are known, and none has one."""
        self.on_released: Callable[[], None] = lambda: None
        """Called after a pod that held GPUs has ended."""
        self.on_new_inventory: Callable[[], None] = lambda: None
        """Called once a node has come, has gone, or has other devices."""
        self._pods: Informer[Pod] | StaticStore[Pod] | None = None
        self._nodes: Informer[Node] | StaticStore[Node] | None = None
        self._namespaces: Informer[Namespace] | StaticStore[Namespace] | None = None
        self._informers: dict[str, Callable[[], bool]] = {}
        self._relists: list[Callable[[], Awaitable[None]]] = []

    @property
    def ledger(self) -> Ledger:
        """The book."""
        return self.fleet.ledger

    def attach(
        self,
        pods: Informer[Pod],
        nodes: Informer[Node],
        quotas: Informer[ResourceQuota] | None = None,
        namespaces: Informer[Namespace] | None = None,
    ) -> None:
        """Follow these informers; their creator runs them."""
        nodes.add_handler(self.put_node, lambda _, node: self.put_node(node), self.remove_node)
        pods.add_handler(self.put_pod, lambda _, pod: self.put_pod(pod), self.remove_pod)
        self.arrivals.attach(pods)
        self._follow(nodes)
        self._follow(pods)
        self._pods, self._nodes = pods, nodes
        if quotas is not None:
            quotas.add_handler(self._quotas.put, lambda _, quota: self._quotas.put(quota), self._quotas.remove)
            self._follow(quotas)
        if namespaces is not None:
            self._follow(namespaces)
            self._namespaces = namespaces

    def take(
        self,
        pods: StaticStore[Pod],
        nodes: StaticStore[Node],
        quotas: StaticStore[ResourceQuota],
        namespaces: StaticStore[Namespace],
    ) -> None:
        """Take what there was at one moment, where nothing is followed."""
        self._pods, self._nodes, self._namespaces = pods, nodes, namespaces
        for quota in quotas.store.values():
            with quotas.failures.guard(quotas.resource, quota):
                self.put_quota(quota)
        for node in nodes.store.values():
            with nodes.failures.guard(NODES, node):
                self.put_node(node)
        self._follows_kubelets = self.fleet.has_kubelets
        for pod in pods.store.values():
            with pods.failures.guard(PODS, pod):
                self.put_pod(pod)

    def put_quota(self, quota: ResourceQuota) -> None:
        """Take a quota as it now is."""
        self._quotas.put(quota)

    def not_ready(self) -> list[str]:
        """Why the cache is not yet what the cluster is; empty when it is. Not being the active replica is no reason."""
        return [f"{name} have not been listed yet" for name, synced in self._informers.items() if not synced()]

    async def wait_for_relist(self) -> None:
        """Return once everything is at least as fresh as a consistent list made now.

        Grants that did not count are looked at again: their key may have been published since.
        """
        await asyncio.gather(*(wait_for_relist() for wait_for_relist in self._relists))
        for uid in list(self.bound_grants.untrusted):
            pod = self.pod_by_uid(uid)
            if pod is not None and self._pods is not None:
                with self._pods.failures.guard(PODS, pod):
                    self.put_pod(pod)

    def pod(self, namespace: str, name: str) -> Pod | None:
        """A pod as last heard of."""
        return None if self._pods is None else self._pods.store.get(f"{namespace}/{name}")

    def pod_by_uid(self, uid: str) -> Pod | None:
        """A pod as last heard of."""
        return None if self._pods is None else self._pods.store.by_uid(uid)

    def node_of_pod(self, namespace: str, name: str, uid: str) -> str:
        """Where a pod runs; empty where it is not known, or its name leads to another pod by now."""
        pod = self.pod(namespace, name)
        return pod.spec.node_name if pod is not None and pod.metadata.uid == uid else ""

    def node(self, name: str) -> Node | None:
        """A node as last heard of."""
        return None if self._nodes is None else self._nodes.store.get(name)

    def is_served_by_hami(self, name: str) -> bool:
        """Whether HAMi's device plugin serves a node's GPUs."""
        return self._hami.is_served(name)

    def is_hami_node(self, name: str) -> bool:
        """Whether HAMi's scheduler knows a node's GPUs, whoever serves them."""
        return self._hami.is_known(name)

    def waiting_pods(self) -> list[Pod]:
        """Pods that are not bound yet."""
        known = () if self._pods is None else self._pods.store.values()
        return [pod for pod in known if not pod.spec.node_name and not pod.metadata.deletion_timestamp]

    def gpus(self) -> FleetOffers | None:
        """What the nodes' GPUs can give containers; None where no node has an inventory. Recomputed once an inventory
        has changed."""
        if self._offers is None:
            self._offers = offers_of(self.fleet)
        return self._offers

    def enforcements(self) -> frozenset[Enforcement]:
        """What holds shares of devices to their limits; none where no node has an inventory."""
        offers = self.gpus()
        return frozenset() if offers is None else offers.enforcements

    def offers(self, resource: str) -> bool:
        """Whether any node lists a resource, of any plugin."""
        return any(resource in node.status.allocatable for node in self._known_nodes())

    def has_label(self, key: str, value: str) -> bool:
        """Whether any node has a label with this value."""
        return any(node.metadata.labels.get(key) == value for node in self._known_nodes())

    def enforcement_of_namespace(self, name: str) -> str:
        """What a namespace says of the enforcement of its pods' shares; empty: nothing."""
        namespace = None if self._namespaces is None else self._namespaces.store.get(name)
        return "" if namespace is None else namespace.metadata.annotations.get(ENFORCEMENT_ANNOTATION, "")

    def quota_limits(self, namespace: str, family: str = "") -> QuotaLimits:
        """What a namespace's quotas allow of a family of devices (`purser.core.model.PodRequest.family`)."""
        return self._quotas.of(namespace, family)

    def quota_remaining(self, namespace: str, family: str = "") -> QuotaLimits:
        """What a namespace's quotas leave of it."""
        hard = self.quota_limits(namespace, family)
        return hard if hard == UNLIMITED else remaining_quota(hard, self.ledger.namespace_usage(namespace, family))

    @property
    def limited_namespaces(self) -> Collection[str]:
        """Those with quotas that are kept here."""
        return self._quotas.namespaces

    def state_quotas(self, namespace: str) -> Iterator[StateQuota]:
        """How much of a namespace's quotas is held."""
        return self._quotas.documents(namespace, lambda family: self.ledger.namespace_usage(namespace, family))

    def exceeded_quota(self, request: PodRequest, asked: Demand, own: Demand) -> str:
        """Which of its namespace's quotas does not hold a pod's demand beside what others use; ``own``: what it holds
        already."""
        namespace, family = request.namespace, request.family
        return self._quotas.exceeded(namespace, family, asked, self.ledger.namespace_usage(namespace, family) - own)

    def tick(self) -> None:
        """Let go of what time has overtaken."""
        self.disputes.tick()
        self._hami.tick()

    def grants_by_state(self) -> dict[str, int]:
        """How many grants are how far."""
        counts: Counter[str] = Counter(dict.fromkeys(GrantState, 0))
        counts.update(state for grant in self.ledger.grants() if (state := self.ledger.state(grant.pod_uid)))
        return dict(counts)

    def put_node(self, node: Node) -> None:
        """Take a node's inventory where it changed; nodes are written every few seconds for other reasons."""
        self.kubelets.put_node(node)
        self.free_resources.put_node(node)
        self.disputes.put_node(node)
        name = node.metadata.name
        texts = _device_texts(node, self._families)
        if self._device_texts.get(name) == texts:
            return
        self._device_texts[name] = texts
        inventory, has_hami_plugin = self._inventory(node)
        has_news = self._hami.put_node(node, is_served=has_hami_plugin)
        self._offers = None
        if inventory is None:
            self.fleet.remove_node(name)
        else:
            self.fleet.set_inventory(inventory)
            self.disputes.update_fleet(name)
            self.bound_grants.report_violations(name)
        if has_news and self._pods is not None:
            for pod in list(self._pods.store.values()):  # heard of before this was known of their node
                if name in (pod.spec.node_name, pod.metadata.annotations.get(hami.VGPU_NODE)):
                    with self._pods.failures.guard(PODS, pod):
                        self.put_pod(pod)
        self.on_new_inventory()

    def _inventory(self, node: Node) -> tuple[NodeInventory | None, bool]:
        """What of a node's devices makes sense, the rest is reported; and whether HAMi's device plugin serves it."""
        name, own, has_hami_plugin = node.metadata.name, None, False
        problems: list[str] = []
        try:
            own, has_hami_plugin = own_inventory(node, problems), hami_inventory(node) is not None
        except InventoryError as error:
            log.warning("A node's inventory is invalid, so it is ignored", node=name, error=str(error))
            self._report_node(name, f"The node's inventory is invalid, so it is ignored: {error}")
        others = devices_of_other_plugins(node, own, self._families)
        for problem in (*problems, *others.problems):
            log.warning("There is a problem with a node's devices", node=name, error=problem)
            self._report_node(name, f"There is a problem with the node's devices: {problem}")
        return joined_inventory(node, own, others), has_hami_plugin

    def remove_node(self, node: Node) -> None:
        """The node is gone; its pods' grants stay until they are gone as well."""
        self._device_texts.pop(node.metadata.name, None)
        self._hami.remove_node(node.metadata.name)
        self._offers = None
        self.fleet.remove_node(node.metadata.name)
        self.kubelets.remove_node(node)
        self.free_resources.remove_node(node)
        self.disputes.remove_node(node.metadata.name)
        self.on_new_inventory()

    def put_pod(self, pod: Pod) -> None:
        """Take a pod's grant, or its end."""
        self.nominations.put_pod(pod)
        if is_terminal(pod):
            self.bound_grants.note_rejection(pod)
            self.remove_pod(pod)
        elif pod.spec.node_name:
            if self._follows_kubelets:
                self.kubelets.put_pod(pod)
            self.free_resources.put_pod(pod)
            self.bound_grants.put_pod(pod)
        elif pod.spec.scheduler_name != self.scheduler_name:
            self._hami.put_waiting(pod)

    def remove_pod(self, pod: Pod) -> None:
        """The pod has ended or is gone: what it held is free."""
        uid = pod.metadata.uid
        released = self.ledger.release(uid)
        self._hami.remove_pod(uid)
        self.nominations.remove_pod(pod)
        self.kubelets.remove_pod(pod)
        self.free_resources.remove_pod(pod)
        self.bound_grants.remove_pod(uid)
        if pod.spec.node_name:
            self.disputes.remove_pod(pod.spec.node_name, uid)
        if released is not None:
            self.on_released()

    def _is_live(self, uid: str) -> bool:
        pod = self.pod_by_uid(uid)
        return pod is not None and not is_terminal(pod)

    def _known_nodes(self) -> Iterable[Node]:
        return () if self._nodes is None else self._nodes.store.values()

    def _report_pod(self, pod: Pod, problem: str, reason: FailureReason) -> None:
        if self._pods is not None:
            self._pods.failures.malformed(PODS, pod, problem, reason)

    def _report_node(self, name: str, problem: str) -> None:
        if self._nodes is not None:
            self._nodes.failures.malformed(NODES, node_ref(name), problem)

    def _follow(self, informer: Informer[Pod] | Informer[Node] | Informer[ResourceQuota] | Informer[Namespace]) -> None:
        self._informers[informer.resource.plural] = lambda: informer.health.synced
        self._relists.append(informer.wait_for_relist)


def _device_texts(node: Node, families: Iterable[DeviceFamily]) -> tuple[str, ...]:
    """All that says which devices a node has for pods; of its amounts those of other plugins."""
    annotations, status = node.metadata.annotations, node.status
    registered = hami_nodes.REGISTER_ANNOTATION in annotations
    named = {GPU_RESOURCE, hami_nodes.renamed_resource(status.allocatable)} if registered else set()
    named.update(resource for family in families for resource in family.resources)
    registers = (name for family in families for name in family.node_annotations)
    listed = (
        f"{name}={amounts[name]}"
        for amounts in (status.capacity, status.allocatable)
        for name in amounts
        if name in named
    )
    labels = (node.metadata.labels.get(name, "") for family in families for name in family.node_labels)
    return (*(annotations.get(each, "") for each in (*DEVICE_ANNOTATIONS, *registers)), *labels, *listed)
