"""Node locks of other vendors' device plugins, taken before a pod is bound: see `purser.core.vendors.locks`."""

import asyncio

import structlog

from purser.core.vendors.family import NodeLock
from purser.core.vendors.locks import LockHolder, lock_text, read_lock
from purser.core.wording import pods_text
from purser.kube import Client, ConflictError, KubeError, NotFoundError
from purser.kube.objects import Pod
from purser.kube.pods import is_terminal
from purser.kube.resources import NODES, PODS
from purser.scheduler.cache import ClusterCache

LOCK_TIMEOUT_S = 5.0
"""For all requests together: kube-scheduler waits 10 s for a Binding, and its lease counts for 15 s."""

_MAX_TRIES = 3
"""Kubelet writes its node as well."""

log = structlog.get_logger("purser.scheduler")


class NodeLockedError(Exception):
    """The node is not free for the pod; the message says why."""


class NodeLocks:
    """Takes locks, and gives back those of pods that were not bound; others the plugin removes."""

    def __init__(self, client: Client, cache: ClusterCache) -> None:
        self._client = client
        self._cache = cache

    async def take(self, node: str, lock: NodeLock, pod: Pod) -> None:
        """Returns once the lock is the pod's, and will be for a while. Raises `NodeLockedError`."""
        owner = LockHolder(pod.metadata.namespace, pod.metadata.name)
        try:
            async with asyncio.timeout(LOCK_TIMEOUT_S):
                for _ in range(_MAX_TRIES):
                    if await self._try_lock(node, lock, owner):
                        return
        except KubeError as error:
            raise NodeLockedError(f"node {node} cannot be locked: {error}") from error
        except TimeoutError:
            why = f"the API server did not answer within {LOCK_TIMEOUT_S:g} s"
            raise NodeLockedError(f"node {node} cannot be locked: {why}") from None
        raise NodeLockedError(f"node {node} cannot be locked: the node keeps changing")

    async def _try_lock(self, node: str, lock: NodeLock, owner: LockHolder) -> bool:
        metadata, now_s = (await self._client.get(NODES, node)).metadata, self._cache.clock.now().timestamp()
        held = read_lock(lock, metadata.annotations.get(lock.annotation), now_s)
        holder = None if held is None else held.holder
        if held is not None and holder == owner and held.age_s < lock.seconds / 2:
            return True
        if holder is not None and holder != owner and not await self._is_over(holder):
            by = pods_text(owner.namespace, [f"{holder.namespace}/{holder.pod}"]) if holder.pod else "another pod"
            raise NodeLockedError(f"node {node} is locked until its device plugin has served {by}")
        patch = {"annotations": {lock.annotation: lock_text(lock, now_s, owner)}}
        try:
            await self._client.patch_merge(
                NODES, node, {"metadata": {**patch, "resourceVersion": metadata.resource_version}}
            )
        except ConflictError:
            return False
        return True

    async def _is_over(self, holder: LockHolder) -> bool:
        """Whether the pod for which a node is locked is gone, or has ended."""
        if not holder.pod:
            return False
        try:
            return is_terminal(await self._client.get(PODS, holder.pod, holder.namespace))
        except NotFoundError:
            return True

    async def give_back(self, node: str, lock: NodeLock, pod: Pod) -> None:
        """Remove the lock of a pod that was not bound; a lock that stays is too old soon."""
        owner = LockHolder(pod.metadata.namespace, pod.metadata.name) if lock.names_pod else LockHolder()
        try:
            metadata, now_s = (await self._client.get(NODES, node)).metadata, self._cache.clock.now().timestamp()
            held = read_lock(lock, metadata.annotations.get(lock.annotation), now_s)
            if held is not None and held.holder == owner:
                patch = {"annotations": {lock.annotation: None}, "resourceVersion": metadata.resource_version}
                await self._client.patch_merge(NODES, node, {"metadata": patch})
        except KubeError as error:
            log.warning("Failed to remove a node lock", node=node, annotation=lock.annotation, error=str(error))
