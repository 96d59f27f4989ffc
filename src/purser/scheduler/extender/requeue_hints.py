"""Wakes kube-scheduler for refused pods that fit by now, or were refused by other quotas than there are now.

kube-scheduler tries a pod again when it hears of something that could help: a pod that ended, a node that changed.
Purser hears of the same through a watch of its own, perhaps some milliseconds later. Asked in between, it refuses what
would fit, and kube-scheduler lets the pod rest: for a minute, since Kubernetes 1.22 for five. Of other things that make
room, an inventory or a quota, kube-scheduler does not hear at all. So pods that were refused are looked at again, and
one that now fits gets an annotation: kube-scheduler tries a pod that was changed at once.

One whose namespace got another quota is tried again as well, even where it still does not fit: what users read of it
names the old limits.

Once for each refusal: what else keeps a pod from its node is kube-scheduler's own business.
"""

import asyncio

import msgspec
import structlog

from purser.adapters.pods import ref_of_request
from purser.core.grant.quota import QuotaLimits
from purser.core.model import PodRequest
from purser.core.names import ROOM_ANNOTATION
from purser.kube.client import Client
from purser.kube.clock import micro_timestamp
from purser.kube.errors import KubeError, NotFoundError
from purser.kube.resources import PODS
from purser.scheduler.cache import ClusterCache
from purser.scheduler.placement import Feasibility
from purser.scheduler.waiting import WaitingPods

MAX_WOKEN_PODS = 8
"""In one look: they may all want the same room."""

log = structlog.get_logger("purser.scheduler")


class _Waiting(msgspec.Struct, frozen=True):
    request: PodRequest
    node_names: list[str]
    """The nodes that kube-scheduler asked about."""
    quota: QuotaLimits
    """Its namespace's limits, when it was refused."""


class RequeueHints:
    """The pods that fit nowhere when kube-scheduler last asked."""

    def __init__(self, client: Client, cache: ClusterCache, feasibility: Feasibility) -> None:
        self._client = client
        self._cache = cache
        self._feasibility = feasibility
        self._waiting: WaitingPods[_Waiting] = WaitingPods()

    def refused(self, request: PodRequest, node_names: list[str]) -> None:
        """The pod fits nowhere."""
        self._waiting.put(_Waiting(request, node_names, self._cache.quota_limits(request.namespace, request.family)))

    def _quota(self, request: PodRequest) -> QuotaLimits:
        return self._cache.quota_limits(request.namespace, request.family)

    def forget(self, pod_uid: str) -> None:
        """The pod fits, or is gone."""
        self._waiting.pop(pod_uid)

    def clear(self) -> None:
        """Another replica is asked from now on."""
        self._waiting.clear()

    async def look(self) -> None:
        """Wake kube-scheduler for what is no longer refused as it was: the most important pods first, then those that
        wait longest."""
        woken = 0
        for waiting in self._waiting.by_importance():
            await asyncio.sleep(0)  # kube-scheduler's questions go first
            if waiting in self._waiting and (why := self._retry_reason(waiting)):
                self.forget(waiting.request.uid)
                await self._wake(waiting.request, why)
                woken += 1
            if woken == MAX_WOKEN_PODS:
                return

    def _retry_reason(self, waiting: _Waiting) -> str:
        """Why kube-scheduler should try the pod again; empty: it need not."""
        request = waiting.request
        with self._client.failures.guard(PODS, ref_of_request(request)):
            if self._feasibility.fits_any(request, waiting.node_names):
                return "it now fits"
            return (
                "its quota changed"
                if self._cache.quota_limits(request.namespace, request.family) != waiting.quota
                else ""
            )
        self.forget(request.uid)  # until it is refused again: what fails once fails at each look
        return ""

    async def _wake(self, request: PodRequest, why: str) -> None:
        """Through the status: permission to change pods' specifications is not needed."""
        patch = {
            "metadata": {"uid": request.uid, "annotations": {ROOM_ANNOTATION: micro_timestamp(self._cache.clock.now())}}
        }
        try:
            await self._client.patch_merge(PODS, request.name, patch, request.namespace, subresource="status")
        except NotFoundError:
            return
        except KubeError as error:
            log.warning(
                "Failed to ask kube-scheduler to retry a rejected pod", pod=request.key, why=why, error=str(error)
            )
            return
        log.info("Asked kube-scheduler to retry a rejected pod", pod=request.key, why=why)
