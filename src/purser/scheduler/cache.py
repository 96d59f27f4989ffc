"""The cluster as the scheduler knows it: the book and the fleet, kept up to date from pods, nodes and quotas.

Everything here can be thrown away and read again from the API server; nothing lives only in memory but reservations
whose Binding is on its way, and those are `binding`'s.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Protocol

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from purser.core.dialects import asks_for_devices
from purser.core.fleet import Fleet
from purser.core.ledger import Ledger
from purser.core.model import Grant, GrantState
from purser.core.names import GRANT_ANNOTATION, GRANT_SIGNATURE_ANNOTATION, INVENTORY_ANNOTATION
from purser.core.quota import UNLIMITED, Room, room
from purser.core.signing import GrantError, verify
from purser.kube import Informer
from purser.kube.adapters import InventoryError, grant_state, inventory_of, is_terminal, pod_spec
from purser.kube.objects import Node, Pod
from purser.scheduler.extender_quota import Quotas, ResourceQuota
from purser.scheduler.kubelets import Kubelets
from purser.scheduler.metrics import SchedulerMetrics
from purser.scheduler.noderooms import NodeRooms

log = structlog.get_logger("purser.scheduler")


class PublicKeys(Protocol):
    """Who knows by which keys grants may be signed."""

    @property
    def public(self) -> tuple[Ed25519PublicKey, ...]:
        """All of them."""
        ...


class ClusterCache:
    """Fleet and ledger as the informers tell them."""

    def __init__(self, keys: PublicKeys, metrics: SchedulerMetrics | None = None) -> None:
        self.fleet = Fleet()
        self.kubelets = Kubelets(self.fleet)
        self.node_rooms = NodeRooms(self.fleet)
        self._keys = keys
        self._metrics = metrics or SchedulerMetrics()
        self._quotas = Quotas()
        self._verified: dict[str, tuple[str, str]] = {}
        self._untrusted: dict[str, str] = {}
        self._ungranted: dict[str, str] = {}
        self._inventory_texts: dict[str, str] = {}
        self._pods: Informer[Pod] | None = None
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
        """By uid: pods that somebody bound without a grant though they ask for devices, and to which node."""
        return MappingProxyType(self._ungranted)

    def attach(self, pods: Informer[Pod], nodes: Informer[Node], quotas: Informer[ResourceQuota] | None = None) -> None:
        """Follow these informers; whoever made them runs them."""
        nodes.add_handler(self.put_node, lambda _, node: self.put_node(node), self.remove_node)
        pods.add_handler(self.put_pod, lambda _, pod: self.put_pod(pod), self.remove_pod)
        self._follow(nodes)
        self._follow(pods)
        self._pods = pods
        if quotas is not None:
            quotas.add_handler(self._quotas.put, lambda _, quota: self._quotas.put(quota), self._quotas.remove)
            self._follow(quotas)

    def not_ready(self) -> list[str]:
        """Why the cache is not yet what the cluster is; empty when it is."""
        return [f"{name} are not listed yet" for name, synced in self._informers.items() if not synced()]

    async def relist(self) -> None:
        """Return once everything is at least as fresh as a consistent list made now.

        Grants that did not count are looked at again: their key may have been published since.
        """
        await asyncio.gather(*(relist() for relist in self._relists))
        for uid in list(self._untrusted):
            pod = self.pod_by_uid(uid)
            if pod is not None:
                self.put_pod(pod)

    def pod(self, namespace: str, name: str) -> Pod | None:
        """A pod as last heard of."""
        return None if self._pods is None else self._pods.store.get(f"{namespace}/{name}")

    def pod_by_uid(self, uid: str) -> Pod | None:
        """A pod as last heard of."""
        return None if self._pods is None else self._pods.store.by_uid(uid)

    def waiting_pods(self) -> list[Pod]:
        """Pods that nobody has bound yet."""
        known = () if self._pods is None else self._pods.store.values()
        return [pod for pod in known if not pod.spec.node_name and not pod.metadata.deletion_timestamp]

    def largest_node(self) -> int | None:
        """How many devices the largest node has; None where no node has an inventory."""
        return max((len(node.devices) for node in self.fleet), default=None)

    def room_of(self, namespace: str) -> Room:
        """What a namespace's quotas leave."""
        hard = self._quotas.of(namespace)
        return hard if hard == UNLIMITED else room(hard, self.ledger.namespace_usage(namespace))

    def grants_by_state(self) -> dict[str, int]:
        """How many grants are how far."""
        counts: Counter[str] = Counter(dict.fromkeys(GrantState, 0))
        counts.update(state for grant in self.ledger.grants() if (state := self.ledger.state(grant.pod_uid)))
        return dict(counts)

    def put_node(self, node: Node) -> None:
        """Take a node's inventory where it changed; nodes are written every few seconds for other reasons."""
        self.kubelets.put_node(node)
        self.node_rooms.put_node(node)
        name, text = node.metadata.name, node.metadata.annotations.get(INVENTORY_ANNOTATION, "")
        if self._inventory_texts.get(name, "") == text:
            return
        self._inventory_texts[name] = text
        try:
            inventory = inventory_of(node)
        except InventoryError as error:
            log.warning("A node's inventory does not count", node=name, error=str(error))
            inventory = None
        if inventory is None:
            self.fleet.remove_node(name)
        else:
            self.fleet.set_inventory(inventory)
            self._report_violations(name)

    def remove_node(self, node: Node) -> None:
        """The node is gone; its pods' grants stay until they are gone as well."""
        self._inventory_texts.pop(node.metadata.name, None)
        self.fleet.remove_node(node.metadata.name)
        self.kubelets.remove_node(node)
        self.node_rooms.remove_node(node)

    def put_pod(self, pod: Pod) -> None:
        """Take a pod's grant, or its end."""
        if is_terminal(pod):
            self.remove_pod(pod)
        elif pod.spec.node_name:
            self.kubelets.put_pod(pod)
            self.node_rooms.put_pod(pod)
            self._put_bound(pod)

    def remove_pod(self, pod: Pod) -> None:
        """The pod has ended or is gone: what it held is free."""
        uid = pod.metadata.uid
        self.ledger.release(uid)
        self.kubelets.remove_pod(pod)
        self.node_rooms.remove_pod(pod)
        self._verified.pop(uid, None)
        self._untrusted.pop(uid, None)
        self._ungranted.pop(uid, None)

    def trusted_grant(self, pod: Pod) -> Grant | None:
        """The grant a bound pod carries, None when it carries none. Raises `GrantError` when it must not count."""
        return verify(
            pod.metadata.annotations,
            pod_uid=pod.metadata.uid,
            node=pod.spec.node_name,
            keys=self._keys.public,
        )

    def _put_bound(self, pod: Pod) -> None:
        uid, state = pod.metadata.uid, grant_state(pod)
        held, text = self.ledger.grant(uid), _grant_text(pod)
        if held is not None and self._verified.get(uid) == text:
            self.ledger.adopt(held, state)
            return
        try:
            grant = self.trusted_grant(pod)
        except GrantError as error:
            self._distrust(pod, str(error))
            return
        if grant is None:
            self._note_ungranted(pod)
            return
        self._untrusted.pop(uid, None)
        self._ungranted.pop(uid, None)
        self._verified[uid] = text
        self.ledger.adopt(grant, state)
        self._report_violations(grant.node)

    def _distrust(self, pod: Pod, problem: str) -> None:
        """A grant that anybody could have written takes nothing from others.

        One that was found right before stays on the book: defacing the annotation of a running pod frees nothing.
        """
        uid = pod.metadata.uid
        if uid not in self._verified:
            self.ledger.release(uid)
        if self._untrusted.get(uid) != problem:
            self._untrusted[uid] = problem
            self._metrics.bind_failed("untrusted-grant")
            log.warning("A pod's grant does not count", pod=_name(pod), node=pod.spec.node_name, error=problem)

    def _note_ungranted(self, pod: Pod) -> None:
        """Somebody else bound it: a reservation of ours cannot come true any more."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        if uid in self._verified:
            return self._distrust(pod, "the grant's annotation was removed")
        self.ledger.release(uid)
        if uid not in self._ungranted and asks_for_devices(pod_spec(pod)):
            self._ungranted[uid] = node
            self._metrics.bind_failed("bound-by-others")
            log.warning("A pod that asks for devices was bound without a grant", pod=_name(pod), node=node)
        return None

    def _report_violations(self, node: str) -> None:
        for violation in self.ledger.violations(node):
            log.warning("The book is overdrawn", node=node, device=violation.uuid, problem=violation.problem)

    def _follow(self, informer: Informer[Pod] | Informer[Node] | Informer[ResourceQuota]) -> None:
        self._informers[informer.resource.plural] = lambda: informer.health.synced
        self._relists.append(informer.relist)


def _grant_text(pod: Pod) -> tuple[str, str]:
    """What was verified: the same text need not be verified again at each of a pod's many updates."""
    annotations = pod.metadata.annotations
    return annotations.get(GRANT_ANNOTATION, ""), annotations.get(GRANT_SIGNATURE_ANNOTATION, "")


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
