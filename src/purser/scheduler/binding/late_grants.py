"""Pods that another scheduler bound, and that get their grant afterwards, so that agents serve them.

Rules and quotas of pods that Purser places hold for these, too. Agents write no pods: the scheduler signs the grant and
patches it onto the pod, through its status, for which permission to change pods' specifications is not needed.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

import structlog

from purser.core.dialects import DialectError
from purser.core.dialects.hami_codec import CodecError
from purser.core.fleet import NodeState
from purser.core.grant.adopting import AdoptionError
from purser.core.grant.quota import Demand, grant_demand
from purser.core.grant.signing import sign
from purser.core.ledger import LedgerError
from purser.core.model import Grant, PodRequest
from purser.core.pod.manifest import PodManifest
from purser.kube import Client, EventRecorder, Informer, NotFoundError, ref_of
from purser.kube.objects import Pod
from purser.kube.resources import PODS, key_of
from purser.kube.workqueue import WorkQueue, run_workers
from purser.scheduler.cache import ClusterCache
from purser.scheduler.keys import GrantKeys
from purser.scheduler.leadership_gate import INACTIVE_RECHECK_PERIOD_S
from purser.scheduler.reasons import SchedulerReason

_LATE_GRANT_WORKERS = 4

log = structlog.get_logger("purser.scheduler")


class LateGrants(ABC):
    """Finds such pods of one scheduler among those of an informer, and sees to them."""

    REFUSED: ClassVar[Mapping[str, str]]
    """The annotations that say of a pod that it gets no grant."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        keys: GrantKeys,
        pods: Informer[Pod],
        events: EventRecorder,
        is_active: Callable[[], bool],
    ) -> None:
        """``is_active``: whether this replica is the one that acts."""
        self._client = client
        self._events = events
        self._cache = cache
        self._keys = keys
        self._pods = pods
        self._is_active = is_active
        self._queue: WorkQueue[str] = WorkQueue(initial_s=0.1, cap_s=5.0)

    async def run(self) -> None:
        """See to them until cancelled. The cache must follow the informers already."""
        self._pods.add_handler(self._put, lambda _, pod: self._put(pod))
        await run_workers(self._queue, self._process, _LATE_GRANT_WORKERS)

    @abstractmethod
    def _awaits_grant(self, pod: Pod) -> bool:
        """Whether the pod is to get a grant now."""

    @abstractmethod
    def _reserve(self, spec: PodManifest, request: PodRequest, node: NodeState) -> Grant:
        """The pod's grant, in the ledger. Raises `AdoptionError`, `CodecError` and `LedgerError`."""

    @abstractmethod
    def _annotations(self, pod: Pod, request: PodRequest, grant: Grant, node: NodeState) -> Mapping[str, str]:
        """What the pod carries beside its grant."""

    @abstractmethod
    async def _release_lock(self, pod: Pod, grant: Grant | None) -> None:
        """The pod carries its grant, or what says that it has none."""

    def _put(self, pod: Pod) -> None:
        if self._awaits_grant(pod):
            self._queue.add(key_of(pod))

    async def _process(self, key: str) -> None:
        pod = self._pods.store.get(key)
        if pod is None or not self._awaits_grant(pod):
            return
        if not self._is_active():
            self._queue.add_after(key, INACTIVE_RECHECK_PERIOD_S)
            return
        grant, annotations, why = self._outcome(pod)
        patch = {"metadata": {"uid": pod.metadata.uid, "annotations": dict(annotations)}}
        try:
            await self._client.patch_merge(PODS, pod.metadata.name, patch, pod.metadata.namespace, subresource="status")
        except NotFoundError:
            return
        await self._release_lock(pod, grant)
        if grant is None:
            whose, node = pod.spec.scheduler_name[:63], pod.spec.node_name
            message = f"{whose} placed the pod on node {node}, where Purser cannot grant the pod a GPU: {why}"
            self._events.event(ref_of(PODS, pod), SchedulerReason.NOT_GRANTED, message, type="Warning")

    def _outcome(self, pod: Pod) -> tuple[Grant | None, Mapping[str, str], str]:
        """The grant, what the pod is to carry, and why there is none."""
        reading, node = self._cache.readings.of(pod), self._cache.fleet.node(pod.spec.node_name)
        try:
            if reading.objection:
                raise AdoptionError(reading.objection)
            request = reading.request()
            if request is None:
                raise AdoptionError("the pod does not request GPUs")
            if node is None:
                raise AdoptionError("the node has no GPU inventory")
            self._cache.ledger.release(pod.metadata.uid)  # what was said of it before it was bound
            grant = self._reserve(reading.spec, request, node)
        except (AdoptionError, CodecError, DialectError, LedgerError) as error:
            log.warning("Cannot grant GPUs to another scheduler's pod", pod=key_of(pod), error=str(error))
            return None, self.REFUSED, str(error)
        log.info("Granted GPUs to another scheduler's pod", pod=key_of(pod), node=grant.node)
        return grant, {**self._annotations(pod, request, grant, node), **sign(grant, self._keys.signing)}, ""

    def _enter(self, request: PodRequest, grant: Grant) -> Grant:
        """The grant, reserved. Raises `AdoptionError` and `LedgerError`."""
        if exceeded := self._cache.exceeded_quota(request, grant_demand(grant), Demand()):
            raise AdoptionError(exceeded)
        self._cache.ledger.reserve(grant)
        return grant
