"""Pods that HAMi's scheduler placed on nodes of Purser's agents: they are given a grant, so that the agents serve them.

HAMi's scheduler knows such a node by the registration that its agent keeps up to date
(`purser.core.vendors.hami_nodes`). It writes the devices on the pod, locks the node and binds; from then on it waits
for what HAMi's device plugin would do. Agents write no pods, and serve nothing without a signed grant. So the scheduler
looks whether what HAMi's scheduler gave is what the pod asks for and is there, signs it, reports success as the plugin
would, and unlocks the node. Its own pods' rules and quotas hold for these, too.
"""

from collections.abc import Callable

import structlog

from purser.adapters.pods import devices_asked
from purser.core.dialects import DialectError, hami
from purser.core.dialects.hami_codec import CodecError
from purser.core.grant.adopting import AdoptionError, adopted_grant
from purser.core.grant.quota import Demand, grant_demand
from purser.core.grant.signing import sign
from purser.core.ledger import LedgerError
from purser.core.model import Grant
from purser.core.names import GRANT_ANNOTATION
from purser.core.vendors.hami_nodes import PLUGIN_LOCK, REGISTER_ANNOTATION
from purser.kube import Client, Informer, NotFoundError
from purser.kube.objects import Node, Pod
from purser.kube.pods import has_started, is_terminal
from purser.kube.resources import PODS, key_of
from purser.kube.workqueue import WorkQueue, run_workers
from purser.scheduler.binding.node_locks import NodeLocks
from purser.scheduler.cache import ClusterCache
from purser.scheduler.keys import GrantKeys
from purser.scheduler.leadership_gate import INACTIVE_RECHECK_PERIOD_S

_HAMI_POD_WORKERS = 4

log = structlog.get_logger("purser.scheduler")


class HamiPods:
    """Finds such pods among those of an informer, and sees to them."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        keys: GrantKeys,
        pods: Informer[Pod],
        nodes: Informer[Node],
        is_active: Callable[[], bool],
    ) -> None:
        """``is_active``: whether this replica is the one that acts."""
        self._client = client
        self._cache = cache
        self._keys = keys
        self._pods = pods
        self._nodes = nodes
        self._is_active = is_active
        self._locks = NodeLocks(client, cache)
        self._queue: WorkQueue[str] = WorkQueue(initial_s=0.1, cap_s=5.0)

    async def run(self) -> None:
        """See to them until cancelled. The cache must follow the informers already."""
        self._pods.add_handler(self._put, lambda _, pod: self._put(pod))
        self._nodes.add_handler(on_update=self._node_changed)
        await run_workers(self._queue, self._see_to, _HAMI_POD_WORKERS)

    def _put(self, pod: Pod) -> None:
        if self._waits(pod):
            self._queue.add(key_of(pod))

    def _node_changed(self, old: Node, node: Node) -> None:
        """An agent may have taken the node over while a pod was on its way there."""
        before, now = (each.metadata.annotations.get(REGISTER_ANNOTATION) for each in (old, node))
        if now is not None and now != before:
            for pod in list(self._pods.store.values()):
                if pod.spec.node_name == node.metadata.name:
                    self._put(pod)

    def _waits(self, pod: Pod) -> bool:
        annotations, node = pod.metadata.annotations, pod.spec.node_name
        return (
            annotations.get(hami.BIND_PHASE) == hami.ALLOCATING
            and annotations.get(hami.VGPU_NODE) == node
            and GRANT_ANNOTATION not in annotations
            and bool(node and devices_asked(pod))
            and not (has_started(pod) or is_terminal(pod))
            and self._cache.is_known_to_hami(node)
            and not self._cache.is_served_by_hami(node)
        )

    async def _see_to(self, key: str) -> None:
        pod = self._pods.store.get(key)
        if pod is None or not self._waits(pod):
            return
        if not self._is_active():
            self._queue.add_after(key, INACTIVE_RECHECK_PERIOD_S)
            return
        grant = self._reserved(pod)
        annotations = {hami.BIND_PHASE: hami.FAILED}
        if grant is not None:
            annotations = {
                **sign(grant, self._keys.signing),
                hami.BIND_PHASE: hami.SUCCESS,
                hami.DEVICES_TO_ALLOCATE: hami.no_devices(len(pod.spec.init_containers) + len(pod.spec.containers)),
            }
        patch = {"metadata": {"uid": pod.metadata.uid, "annotations": annotations}}
        try:  # through the status: the right to change pods' specifications is not needed
            await self._client.patch_merge(PODS, pod.metadata.name, patch, pod.metadata.namespace, subresource="status")
        except NotFoundError:
            return
        await self._locks.give_back(pod.spec.node_name, PLUGIN_LOCK, pod)

    def _reserved(self, pod: Pod) -> Grant | None:
        """The pod's grant, in the ledger; None where it cannot have what HAMi's scheduler gave it."""
        reading, node = self._cache.readings.of(pod), self._cache.fleet.node(pod.spec.node_name)
        try:
            if reading.objection:
                raise AdoptionError(reading.objection)
            request, recorded = reading.request(), hami.recorded_grant(reading.spec)
            if request is None or recorded is None or node is None:
                raise AdoptionError("it asks for no GPUs, or its node has none")
            grant = adopted_grant(request, recorded, node.inventory)
            self._cache.ledger.release(pod.metadata.uid)  # what HAMi's scheduler said of it
            if exceeded := self._cache.exceeded_quota(request, grant_demand(grant), Demand()):
                raise AdoptionError(exceeded)
            self._cache.ledger.reserve(grant)
        except (AdoptionError, CodecError, DialectError, LedgerError) as error:
            log.warning("A pod that HAMi's scheduler placed is not served", pod=key_of(pod), error=str(error))
            return None
        log.info("A pod that HAMi's scheduler placed is granted", pod=key_of(pod), node=grant.node)
        return grant
