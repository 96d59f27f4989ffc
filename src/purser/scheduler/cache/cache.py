"""The cluster as the scheduler knows it: the book and the fleet, kept up to date from pods, nodes and quotas.

Everything here can be thrown away and read again from the API server; nothing lives only in memory but reservations
whose Binding is on its way, and those are `binding`'s.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from purser.adapters.nodes import (
    DEVICE_ANNOTATIONS,
    InventoryError,
    devices_of_other_plugins,
    hami_inventory,
    joined_inventory,
    own_inventory,
)
from purser.adapters.pods import devices_asked, families_asked, grant_state
from purser.adapters.quotas import Quotas
from purser.core.dialects import hami
from purser.core.fleet import Fleet
from purser.core.grant.quota import UNLIMITED, Demand, QuotaLimits, remaining_quota
from purser.core.grant.reconcile import PodBook
from purser.core.grant.signing import GrantError, verify
from purser.core.kubelet.errors import UNEXPECTED_ADMISSION_ERROR
from purser.core.ledger import Ledger
from purser.core.model import Enforcement, Grant, GrantState, NodeInventory, PodRequest
from purser.core.names import (
    AWAITS_GRANT,
    AWAITS_GRANT_ANNOTATION,
    ENFORCEMENT_ANNOTATION,
    GPU_RESOURCE,
    GRANT_ANNOTATION,
    GRANT_SIGNATURE_ANNOTATION,
    SCHEDULER_NAME,
)
from purser.core.placement.offers import FleetOffers, offers_of
from purser.core.state import StateQuota
from purser.core.vendors import hami_nodes
from purser.core.vendors.family import DeviceFamily
from purser.kube import Clock, Informer, SystemClock, key_of
from purser.kube.objects import Namespace, Node, Pod
from purser.kube.pods import has_started, is_terminal
from purser.kube.reasons import FailureReason
from purser.kube.resource_quotas import ResourceQuota
from purser.kube.resources import NODES, PODS, node_ref
from purser.kube.store import StaticStore
from purser.scheduler.cache.arrivals import Arrivals
from purser.scheduler.cache.budgets import Budgets
from purser.scheduler.cache.disputes import DisputeBook
from purser.scheduler.cache.hami_records import HamiRecords
from purser.scheduler.cache.kubelets import Kubelets
from purser.scheduler.cache.node_free_resources import NodeFreeResources
from purser.scheduler.cache.nominations import Nominations
from purser.scheduler.cache.readings import Readings
from purser.scheduler.metrics import SchedulerMetrics
from purser.scheduler.reasons import BindFailure

log = structlog.get_logger("purser.scheduler")


class PublicKeys(Protocol):
    """The keys by which grants may be signed."""

    @property
    def public(self) -> tuple[Ed25519PublicKey, ...]:
        """All of them."""
        ...


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
        self._family_words = {word: family.resource for family in families for word in family.resources}
        self._metrics = metrics or SchedulerMetrics()
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
        self.disputes = DisputeBook(self.fleet, self._is_live, self._metrics, self.clock)
        self._keys = keys
        self._quotas = Quotas()
        self._verified: dict[str, tuple[str, str]] = {}
        self._untrusted: dict[str, str] = {}
        self._ungranted: dict[str, str] = {}
        self._admitted: set[str] = set()
        """By uid: pods that kubelet had admitted when they were last heard of."""
        self._device_texts: dict[str, tuple[str, ...]] = {}
        self._hami = HamiRecords(self.fleet, self.clock, self.readings)
        self._of_hami: set[str] = set()
        """By uid: bound pods without a grant that hold GPUs by HAMi's record."""
        self._offers: FleetOffers | None = None
        self._follows_kubelets = True
        """Whether pods are told to what is known of kubelets: not where all nodes are known, and none has one."""
        self._overdrawn: set[str] = set()
        self.on_overdrawn: Callable[[str], None] = lambda node: None
        """Called for a node with more grants than capacity, and again whenever the phase of a pod there changes."""
        self.on_released: Callable[[], None] = lambda: None
        """Called after a pod that held GPUs has ended."""
        self.on_bound: Callable[[str], None] = lambda uid: None
        """Called once the API server is known to have a Binding for which GPUs were reserved, with the pod's uid."""
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

    @property
    def untrusted(self) -> Mapping[str, str]:
        """By uid: bound pods whose grant does not count, and why not."""
        return MappingProxyType(self._untrusted)

    @property
    def ungranted(self) -> Mapping[str, str]:
        """By uid: pods that were bound without a grant though they request devices, and their nodes."""
        return MappingProxyType(self._ungranted)

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
        for uid in list(self._untrusted):
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
            self._report_violations(name)
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
            self._note_rejection(pod)
            self.remove_pod(pod)
        elif pod.spec.node_name:
            if self._follows_kubelets:
                self.kubelets.put_pod(pod)
            self.free_resources.put_pod(pod)
            uid = pod.metadata.uid
            if has_started(pod):
                self._admitted.add(uid)
            was_reserved = self.ledger.state(uid) is GrantState.RESERVED
            self._put_bound(pod)
            if was_reserved and self.ledger.state(uid) not in (GrantState.RESERVED, None):
                self.on_bound(uid)
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
        self._verified.pop(uid, None)
        self._untrusted.pop(uid, None)
        self._ungranted.pop(uid, None)
        self._of_hami.discard(uid)
        self._admitted.discard(uid)
        if pod.spec.node_name:
            self.disputes.remove_pod(pod.spec.node_name, uid)
        if released is not None:
            self.on_released()

    def confirm(self, grant: Grant) -> None:
        """A Binding of ours was carried out: its grant counts until the pod ends, even where somebody removes the
        annotation before an informer shows it."""
        if self.ledger.state(grant.pod_uid) is GrantState.RESERVED:
            self.ledger.advance(grant.pod_uid, GrantState.BOUND)
            self._verified[grant.pod_uid] = _CARRIED_OUT_TEXTS
            self.on_bound(grant.pod_uid)

    def forget_confirmed(self, pod_uid: str) -> None:
        """No informer will show this pod, nor report its end."""
        self._verified.pop(pod_uid, None)

    def trusted_grant(self, pod: Pod) -> Grant | None:
        """The grant a bound pod carries, None when it carries none. Raises `GrantError` when it must not count."""
        whose = {"pod_uid": pod.metadata.uid, "node": pod.spec.node_name}
        keys = None if self._keys is None else self._keys.public
        return verify(pod.metadata.annotations, **whose, keys=keys)

    def _put_bound(self, pod: Pod) -> None:
        uid, state = pod.metadata.uid, grant_state(pod)
        self._hami.forget(uid)
        held, text = self.ledger.grant(uid), _grant_text(pod)
        if held is not None and (self._verified.get(uid) == text or (uid in self._of_hami and not text[0])):
            self.ledger.adopt(held, state)
            if held.node in self._overdrawn:
                self.on_overdrawn(held.node)
            return
        try:
            grant = self.trusted_grant(pod)
        except GrantError as error:
            self._mark_untrusted(pod, str(error))
            return
        if grant is None and (theirs := self._hami.grant_of(pod)) is not None:
            if self._hami.is_served(theirs.node):
                self._of_hami.add(uid)  # no change of the annotation frees what the pod was given
            self._ungranted.pop(uid, None)
            self.ledger.adopt(theirs, state)
            self.disputes.put_granted(theirs.node, uid)
            self._report_violations(theirs.node)
            return
        if grant is None:
            self._note_ungranted(pod)
            return
        self._of_hami.discard(uid)
        self._untrusted.pop(uid, None)
        self._ungranted.pop(uid, None)
        self._verified[uid] = text
        self.ledger.adopt(grant, state)
        self.disputes.put_granted(grant.node, uid)
        self._report_violations(grant.node)

    def _mark_untrusted(self, pod: Pod, problem: str) -> None:
        """A grant without a valid signature takes nothing from others.

        One that was verified before stays in the ledger: changing the annotation of a running pod frees nothing.
        """
        uid, sentence = pod.metadata.uid, "A change to the grant in the pod's annotations is ignored"
        if uid not in self._verified:
            sentence = "The grant in the pod's annotations is invalid, so it is ignored"
            self._dispute(pod, problem)
        if self._untrusted.get(uid) != problem:
            self._untrusted[uid] = problem
            self._metrics.bind_failed(BindFailure.BOUND_WITH_INVALID_GRANT)
            log.warning(sentence, pod=key_of(pod), node=pod.spec.node_name, error=problem)
            if self._pods is not None:
                self._pods.failures.malformed(PODS, pod, f"{sentence}: {problem}", FailureReason.UNTRUSTED)

    def _note_ungranted(self, pod: Pod) -> None:
        """Somebody else bound it: a reservation of ours cannot come true any more."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        if uid in self._verified:
            return self._mark_untrusted(pod, "the grant's annotation was removed")
        if pod.metadata.annotations.get(AWAITS_GRANT_ANNOTATION) == AWAITS_GRANT and not has_started(pod):
            return None  # `binding.ServedPods` sees to it
        if self._dispute(pod, "") and uid not in self._ungranted:
            self._ungranted[uid] = node
            self._metrics.bind_failed(BindFailure.BOUND_WITHOUT_GRANT)
            log.warning("A pod that requests devices was bound without a grant", pod=key_of(pod), node=node)
        if self._pods is not None and (message := self._hami.problem_of(uid)):
            sentence = (
                f"{message[0].upper()}{message[1:]}. While the pod runs, no new pods are placed on the node's GPUs"
            )
            self._pods.failures.malformed(PODS, pod, sentence, FailureReason.RECORD_NOT_COUNTED)
        return None

    def _dispute(self, pod: Pod, problem: str) -> bool:
        """What the pod holds only its node's agent knows, if anybody does. Returns whether it asks for any devices."""
        meta, asks, families = pod.metadata, bool(devices_asked(pod)), families_asked(pod, self._family_words)
        if asks or families:
            started, whose = has_started(pod), (meta.namespace, meta.name, meta.uid)
            record = self._hami.problem_of(meta.uid)
            book = PodBook(*whose, asks, started, problem=problem, record=record, families=families)
            self.disputes.put_ungranted(pod.spec.node_name, book, grant_state(pod))
        else:
            self.ledger.release(meta.uid)
        return asks or bool(families)

    def _note_rejection(self, pod: Pod) -> None:
        """kubelet gives every failure to allocate devices this reason, of any plugin."""
        grant = self.ledger.grant(pod.metadata.uid)
        if grant is not None and pod.status.reason == UNEXPECTED_ADMISSION_ERROR:
            was_admitted = pod.metadata.uid in self._admitted
            self.disputes.rejected(key_of(pod), grant, pod.status.message, was_admitted=was_admitted)

    def _is_live(self, uid: str) -> bool:
        pod = self.pod_by_uid(uid)
        return pod is not None and not is_terminal(pod)

    def _known_nodes(self) -> Iterable[Node]:
        return () if self._nodes is None else self._nodes.store.values()

    def _report_node(self, name: str, problem: str) -> None:
        if self._nodes is not None:
            self._nodes.failures.malformed(NODES, node_ref(name), problem)

    def _report_violations(self, node: str) -> None:
        self._overdrawn.discard(node)
        for violation in self.ledger.violations(node):
            log.warning(
                "Device overcommitted in the ledger", node=node, device=violation.uuid, problem=violation.problem
            )
            self._overdrawn.add(node)
        if node in self._overdrawn:
            self.on_overdrawn(node)

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


_CARRIED_OUT_TEXTS = ("", "carried out")
"""Stands for a text that no informer has shown yet; no pod has it."""


def _grant_text(pod: Pod) -> tuple[str, str]:
    """What was verified: the same text need not be verified again at each of a pod's many updates."""
    annotations = pod.metadata.annotations
    return annotations.get(GRANT_ANNOTATION, ""), annotations.get(GRANT_SIGNATURE_ANNOTATION, "")
