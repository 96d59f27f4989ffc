"""Nodes for pods that still wait in kube-scheduler's queue, so that kube-scheduler looks at one node instead of all.

kube-scheduler runs its filters on every node before it asks an extender, which in large clusters is most of what a pod
costs. Where a pod has ``status.nominatedNodeName``, from any writer, kube-scheduler looks at that node first, and no
further if the pod fits there (`evaluateNominatedNode`, 1.22 and newer). So while pods queue up, Purser chooses a node
for those next in turn as it would at ``filter``, reserves what they are to get (`Reservations`), and writes the name.

It is a hint: where the pod does not fit, by a rule of kube-scheduler's own or since something changed, kube-scheduler
goes through all nodes as ever. Pods that say where they may or would rather be, beyond a node selector, are left to it.
"""

import asyncio
import heapq
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import structlog

from purser.adapters.eligibility import has_only_simple_constraints, why_not_schedulable
from purser.core.dialects import DialectError
from purser.core.model import PodRequest
from purser.kube import Client, KubeError
from purser.kube.objects import Pod
from purser.kube.pods import is_terminal
from purser.kube.resources import PODS, key_of
from purser.scheduler.cache import ClusterCache
from purser.scheduler.leadership_gate import LeadershipGate
from purser.scheduler.metrics import SchedulerMetrics
from purser.scheduler.placement import Feasibility, ReservationError, Reservations

MANY_NODES = 500
"""With fewer, kube-scheduler's filters cost less than the write (docs/benchmarks.md)."""

MIN_PODS_NEXT_IN_TURN = 2
"""Pods that are next in turn: kube-scheduler asks about them before it would see a nomination."""

MAX_NOMINATED_AHEAD = 64
"""Nominated pods that may wait at most: some seconds of kube-scheduler's work, and a write takes milliseconds."""

_MAX_CONCURRENT_WRITES = 4
"""At once."""

_MAX_TRIED_NODES = 8
"""Of the best nodes, for one that is not closed to the pod."""

log = structlog.get_logger("purser.scheduler")


class _QueuePosition(NamedTuple):
    """In kube-scheduler's queue, as far as it can be known."""

    importance: int
    """The less, the earlier."""
    arrival: int
    uid: str


class EarlyNominations:
    """Follows the pods that wait, and nominates those that kube-scheduler comes to next."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        feasibility: Feasibility,
        reservations: Reservations,
        gate: LeadershipGate,
        metrics: SchedulerMetrics,
    ) -> None:
        self._client = client
        self._cache = cache
        self._feasibility = feasibility
        self._reservations = reservations
        self._gate = gate
        self._metrics = metrics
        self._seen: set[str] = set()
        """A pod is considered once: one that is refused is looked after by others."""
        self._waiting: dict[str, Pod] = {}
        """By uid: kube-scheduler has not asked about them."""
        self._queue: list[_QueuePosition] = []
        """A heap. Who no longer waits is passed over."""
        self._ahead: dict[str, _QueuePosition] = {}
        """Of those that wait, who is nominated."""
        self._arrived = 0
        self._more = asyncio.Event()

    def put_pod(self, pod: Pod) -> None:
        """A pod is there, or changed."""
        uid = pod.metadata.uid
        if pod.spec.node_name or pod.metadata.deletion_timestamp or is_terminal(pod):
            self.remove_pod(pod)
        elif (known := self._waiting.get(uid)) is not None:
            self._waiting[uid] = pod
            if known.status.nominated_node_name and not pod.status.nominated_node_name:
                self._reservations.withdraw(uid)  # kube-scheduler took the name back: the pod fits nowhere
                self.asked(uid)
        elif uid not in self._seen and self._can_be_nominated(pod):
            self._seen.add(uid)
            self._waiting[uid] = pod
            self._arrived += 1
            heapq.heappush(self._queue, _QueuePosition(-pod.spec.priority, self._arrived, uid))
            self._remove_stale()
            self._more.set()

    def remove_pod(self, pod: Pod) -> None:
        """It is bound, has ended or is gone."""
        self._seen.discard(pod.metadata.uid)
        self._reservations.withdraw(pod.metadata.uid)
        self.asked(pod.metadata.uid)

    def asked(self, uid: str) -> None:
        """kube-scheduler asks about a pod: it is no longer ahead of kube-scheduler."""
        self._waiting.pop(uid, None)
        self._ahead.pop(uid, None)
        self._more.set()

    async def withdraw_nominations(self, uids: Iterable[str]) -> None:
        """kube-scheduler has not asked about these pods in time: as long as they name a node, room is kept there, by
        kube-scheduler as well. It may have looked at them before they did, and would again in minutes only."""
        for pod in [self._waiting[uid] for uid in uids if uid in self._waiting]:
            if pod.status.nominated_node_name:
                await self._name(pod, None)

    def clear(self) -> None:
        """Another replica decides, or has decided until now: the pods that wait may have been asked about, and refused
        by rules of kube-scheduler's own. They are not considered again."""
        self._waiting.clear()
        self._ahead.clear()
        self._queue.clear()

    def look(self) -> None:
        """Let go of pods whose reservation was not used in time, and go on where this replica has become active."""
        for uid in [uid for uid in self._ahead if not self._reservations.is_early(uid)]:
            self.asked(uid)
        self._more.set()

    def _remove_stale(self) -> None:
        """Without nominated pods none is passed over."""
        if len(self._queue) > 2 * len(self._waiting) + MAX_NOMINATED_AHEAD:
            self._queue = [place for place in self._queue if place.uid in self._waiting]
            heapq.heapify(self._queue)

    async def run(self) -> None:
        """Nominate, until cancelled."""
        async with asyncio.TaskGroup() as group:
            writes = asyncio.Semaphore(_MAX_CONCURRENT_WRITES)
            while True:
                await writes.acquire()
                place, pod = await self._next()
                node = self._choose(pod)
                if node:
                    self._ahead[pod.metadata.uid] = place
                    group.create_task(self._write(pod, node)).add_done_callback(lambda _: writes.release())
                else:
                    writes.release()
                await asyncio.sleep(0)  # a decision takes milliseconds: requests are answered in between

    async def _next(self) -> tuple[_QueuePosition, Pod]:
        while (found := self._first()) is None:
            self._more.clear()
            await self._more.wait()
        return found

    def _first(self) -> tuple[_QueuePosition, Pod] | None:
        """The first pod that is not nominated, but for those that kube-scheduler comes to right now."""
        if len(self._ahead) >= MAX_NOMINATED_AHEAD or len(self._cache.fleet) < MANY_NODES or not self._is_active():
            return None
        next_in_turn: list[_QueuePosition] = []
        found = None
        while self._queue and found is None:
            place = heapq.heappop(self._queue)
            if (pod := self._waiting.get(place.uid)) is None:
                continue
            if len(next_in_turn) + sum(each < place for each in self._ahead.values()) < MIN_PODS_NEXT_IN_TURN:
                next_in_turn.append(place)
            else:
                found = place, pod
        for place in next_in_turn:
            heapq.heappush(self._queue, place)
        return found

    def _is_active(self) -> bool:
        """Whether this replica decides, and the operator wants nominations."""
        return self._gate.is_open and self._feasibility.policy.nodes_to_score > 0

    def _choose(self, pod: Pod) -> str:
        """The best node, where what the pod is to get is reserved from now on; empty where there is none."""
        with self._client.failures.guard(PODS, pod):
            request = self._request(pod)
            if request is None or self._cache.ledger.grant(request.uid) is not None:
                return ""
            created = pod.metadata.creation_timestamp
            found = self._feasibility.decide(request, self._cache.fleet.names(), "nominate", created)
            for place in np.argsort(-found.scores, kind="stable")[:_MAX_TRIED_NODES].tolist():
                node = self._cache.node(found.fits[place])
                if node is None or not np.isfinite(found.scores[place]) or why_not_schedulable(pod, node):
                    continue
                try:
                    self._reservations.reserve_early(node.metadata.name, request)
                except ReservationError as error:
                    log.debug("Failed to reserve a node early", pod=request.key, error=str(error))
                else:
                    return node.metadata.name
        return ""

    def _request(self, pod: Pod) -> PodRequest | None:
        reading = self._cache.readings.of(pod)
        try:
            return None if reading.objection else reading.request()
        except DialectError:  # reported when kube-scheduler asks about it
            return None

    async def _write(self, pod: Pod, node: str) -> None:
        if await self._name(pod, node):
            self._metrics.nominated("written")
        else:
            self._metrics.nominated("failed")
            self._reservations.withdraw(pod.metadata.uid)
            self.asked(pod.metadata.uid)

    async def _name(self, pod: Pod, node: str | None) -> bool:
        """Write the name to the pod as it was: one that was bound meanwhile stays as it is. Whether it was written."""
        meta = pod.metadata
        named = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        patch = {"metadata": named, "status": {"nominatedNodeName": node}}
        try:
            await self._client.patch_merge(PODS, meta.name, patch, meta.namespace, subresource="status")
        except KubeError as error:
            log.debug("Failed to write a nomination", pod=key_of(pod), error=str(error))
            return False
        return True

    def _can_be_nominated(self, pod: Pod) -> bool:
        return (
            pod.spec.scheduler_name == self._cache.scheduler_name
            and not pod.status.nominated_node_name
            and pod.spec.preemption_policy != "Never"  # kube-scheduler would not take the name back
            and has_only_simple_constraints(pod)
            and self._cache.readings.of(pod).asks_for_devices
        )
