"""Writes into the status of ResourceQuotas how much of the limits that Purser keeps is used.

Kubernetes counts neither ``limits.nvidia.com/gpumem`` nor ``limits.nvidia.com/gpucores``, so that `kubectl describe
quota` would say that 0 of them are used. kube-controller-manager and kube-apiserver keep entries of ``status.used``
that they do not count, as long as ``spec.hard`` names them (``syncResourceQuota``, Kubernetes 1.37).
"""

from collections import defaultdict
from collections.abc import Callable

import structlog

from purser.adapters.quotas import kept_limits, used_amounts
from purser.core.kubernetes.quantities import QuantityError, QuantityLike, quantity_ceil
from purser.kube.client import Client
from purser.kube.errors import NotFoundError
from purser.kube.informer import Informer
from purser.kube.objects import Pod
from purser.kube.resource_quotas import RESOURCE_QUOTAS, ResourceQuota
from purser.kube.resources import key_of
from purser.kube.workqueue import WorkQueue, run_workers
from purser.scheduler.cache import ClusterCache
from purser.scheduler.leadership_gate import INACTIVE_RECHECK_PERIOD_S

log = structlog.get_logger("purser.scheduler")

WRITE_PERIOD_S = 2.0
"""At least this long after a change: kube-apiserver itself writes a quota's status whenever a pod is created, and tries
that three times where others write meanwhile."""
RECHECK_PERIOD_S = 30.0
"""After a write it is checked once more: a reservation that came to nothing changes no pod."""


class QuotaUsage:
    """Keeps the status of quotas what the ledger says."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        pods: Informer[Pod],
        quotas: Informer[ResourceQuota],
        is_active: Callable[[], bool],
    ) -> None:
        """``is_active``: whether this replica is the one that acts."""
        self._client = client
        self._cache = cache
        self._pods = pods
        self._quotas = quotas
        self._is_active = is_active
        self._queue: WorkQueue[str] = WorkQueue(clock=cache.clock)
        self._keys: defaultdict[str, set[str]] = defaultdict(set)
        """By namespace: its quotas with such limits."""

    async def run(self) -> None:
        """Follow pods and quotas until cancelled."""
        self._quotas.add_handler(self._put, lambda _, quota: self._put(quota), self._forget)
        self._pods.add_handler(self._changed, lambda _, pod: self._changed(pod), self._changed)
        await run_workers(self._queue, self._reconcile, on_failure=self._failed)

    def _failed(self, key: str, error: Exception) -> None:
        if quota := self._quotas.store.get(key):
            self._client.failures.failed(RESOURCE_QUOTAS, quota, error)

    def _put(self, quota: ResourceQuota) -> None:
        if kept_limits(quota):
            self._keys[quota.metadata.namespace].add(key_of(quota))
            self._queue.add_after(key_of(quota), WRITE_PERIOD_S)
        else:
            self._forget(quota)

    def _forget(self, quota: ResourceQuota) -> None:
        namespace = quota.metadata.namespace
        self._keys[namespace].discard(key_of(quota))
        if not self._keys[namespace]:
            del self._keys[namespace]

    def _changed(self, pod: Pod) -> None:
        for key in self._keys.get(pod.metadata.namespace, ()):
            self._queue.add_after(key, WRITE_PERIOD_S)

    async def _reconcile(self, key: str) -> None:
        quota = self._quotas.store.get(key)
        changes = {} if quota is None else self._changes(quota)
        if quota is None or not changes:
            return
        if not self._is_active():
            self._queue.add_after(key, INACTIVE_RECHECK_PERIOD_S)
            return
        name, namespace = quota.metadata.name, quota.metadata.namespace
        patch = {"status": {"used": changes}}
        try:
            await self._client.patch_merge(RESOURCE_QUOTAS, name, patch, namespace, subresource="status")
        except NotFoundError:
            return
        log.debug("Updated a quota's usage", quota=key, used=changes)
        self._queue.add_after(key, RECHECK_PERIOD_S)

    def _changes(self, quota: ResourceQuota) -> dict[str, str]:
        namespace, there = quota.metadata.namespace, quota.status.used
        used = used_amounts(quota, lambda family: self._cache.ledger.namespace_usage(namespace, family))
        return {resource: str(amount) for resource, amount in used.items() if _amount(there.get(resource)) != amount}


def _amount(written: QuantityLike | None) -> int | None:
    try:
        return None if written is None else quantity_ceil(written)
    except QuantityError:
        return None
