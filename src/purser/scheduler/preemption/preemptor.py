"""Preemption: pods of lower priority go where Purser has no room for a pod, asked by kube-scheduler or by Purser.

kube-scheduler looks for victims in a dry run of its own filters, and asks its extenders only about nodes where that run
found some. To it a share is one of ``nvidia.com/gpu``: where ids are free and memory is not, its run finds no victims,
and since 1.21 it gives up there ("expected at least one victim pod"). On these nodes, which it has offered and only
Purser refused, Purser preempts as kube-scheduler would have: it writes ``nominatedNodeName``, which kube-scheduler
respects from any writer, then evicts the victims. Where kube-scheduler does ask, it gets the one node on which
preemption costs least, these nodes included, and does the rest.
"""

from collections.abc import Mapping
from contextlib import suppress

import msgspec
import structlog

from purser.adapters.pods import ref_of_request
from purser.core.dialects import DialectError
from purser.core.model import PodRequest
from purser.core.placement import Refusal
from purser.core.placement.preemption import Occupant, Victims
from purser.kube import Client, ConflictError, EventRecorder, KubeError, NotFoundError, ref_of
from purser.kube.clock import timestamp
from purser.kube.objects import Pod
from purser.kube.resources import PODS
from purser.recent import Recent
from purser.scheduler.cache import ClusterCache
from purser.scheduler.extender_api import MetaPod, MetaVictims
from purser.scheduler.leadership_gate import LeadershipGate
from purser.scheduler.placement import Feasibility, Reservations
from purser.scheduler.preemption.victims import TOO_FEW_VICTIMS, VictimSearch
from purser.scheduler.reasons import SchedulerReason
from purser.scheduler.waiting import WaitingPods

PREEMPTION_DELAY_S = 1.0
"""How long kube-scheduler has to preempt by itself: it does so right after the answer that no node fits."""

MAX_SEARCHES_PER_LOOK = 8
"""In one look: on thousands of nodes each takes some seconds."""

WATCH_LAG_TIMEOUT_S = 2.0
"""How much later than kube-scheduler this replica may hear of a pod. Where kube-scheduler's own count of what nodes
list refuses the pod, its question about preemption is the first about it. Without an answer it does not ask again."""

_PREEMPTION_POLL_S = 0.02

_MAX_REMEMBERED_PODS = 4096
_MAX_NAMED_PODS = 5

log = structlog.get_logger("purser.scheduler")


class _RefusedPod(msgspec.Struct, frozen=True):
    request: PodRequest
    refusals: Mapping[str, Refusal]
    """By node: those that passed all of kube-scheduler's own filters."""
    at: float


class Preemptor:
    """Makes room for pods that fit nowhere."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        feasibility: Feasibility,
        reservations: Reservations,
        gate: LeadershipGate,
        events: EventRecorder,
    ) -> None:
        self._client = client
        self._cache = cache
        self._feasibility = feasibility
        self._gate = gate
        self._events = events
        self._search = VictimSearch(cache, feasibility.policy, reservations)
        self._refused: WaitingPods[_RefusedPod] = WaitingPods()
        self._reported: Recent[str, str] = Recent(_MAX_REMEMBERED_PODS)

    # --- calls of the extender

    def refused(self, request: PodRequest, refusals: Mapping[str, Refusal]) -> None:
        """The pod fits nowhere; ``refusals`` are the nodes where it was for Purser to say."""
        self._refused.put(_RefusedPod(request, refusals, self._cache.clock.monotonic()))

    def forget(self, uid: str) -> None:
        """The pod fits, or is gone."""
        self._refused.pop(uid)
        self._reported.forget(uid)

    def clear(self) -> None:
        """Another replica is asked from now on."""
        self._refused.clear()
        self._reported.clear()

    async def answer(self, request: PodRequest, proposed: Mapping[str, MetaVictims]) -> dict[str, MetaVictims]:
        """What kube-scheduler, which has found candidates, is to do: at most one node, with its victims.

        It takes the one it is given, be it one that it did not propose, and needs at least one victim there.
        """
        uid = request.uid
        refused = self._refused.pop(uid)
        await self._note_asked(request)
        waiting = self._waiting(uid)
        if waiting is None:
            return {}
        pod, request = waiting
        if self._is_making_room(request):
            return {}
        search = await self._search.on_nodes(
            request,
            refused.refusals if refused is not None else {},
            self._feasibility.quota_left(request),
            {node: frozenset(pod.uid for pod in victims.pods or ()) for node, victims in proposed.items()},
        )
        if search.chosen is None:
            self._report_why_not(pod, search.why_not)
            return {}
        self._nominate(pod, request, search.chosen)
        chosen = search.chosen
        return {chosen.node: MetaVictims(tuple(MetaPod(victim.uid) for victim in chosen.pods), chosen.violations)}

    async def look(self) -> None:
        """Make room for pods for which kube-scheduler has not preempted, the most important first."""
        due = self._cache.clock.monotonic() - PREEMPTION_DELAY_S
        waiting = [each for each in self._refused.by_importance() if each.at <= due]
        for refused in waiting[:MAX_SEARCHES_PER_LOOK]:
            if self._cache.budgets.are_known and refused in self._refused:
                self._refused.pop(refused.request.uid)
                is_processed = True  # what fails once fails at each look: until it is refused again
                with self._client.failures.guard(PODS, ref_of_request(refused.request)):
                    is_processed = await self._process(refused)
                if not is_processed:
                    self._refused.put_back(refused)

    # --- Purser's own preemption

    async def _process(self, refused: _RefusedPod) -> bool:
        """Whether the pod need not be looked at again before it is refused again."""
        waiting = self._waiting(refused.request.uid)
        if waiting is None:
            return True
        pod, request = waiting
        if pod.spec.preemption_policy == "Never":  # kube-scheduler reports it on the pod
            return True
        if self._feasibility.fits_any(request, list(refused.refusals)):  # kube-scheduler is woken for it
            return True
        if self._is_making_room(request):
            node = self._cache.nominations.node_of(request.uid)
            return pod.status.nominated_node_name == node or await self._write_nomination(request, node)
        search = await self._search.on_nodes(request, refused.refusals, self._feasibility.quota_left(request))
        if search.chosen is None:
            self._report_why_not(pod, search.why_not)
            return True
        # While all nodes were looked at, pods came and went, and this one may have been bound.
        waiting = self._waiting(request.uid)
        if waiting is None or self._feasibility.fits_any(request, list(refused.refusals)):
            return True
        chosen = self._search.on_node(search.chosen.node, request, self._feasibility.quota_left(request))
        return chosen is not None and await self._preempt(waiting[0], request, chosen)

    async def _note_asked(self, request: PodRequest) -> None:
        """kube-scheduler, which waits, may ask about a pod that is gone by now as well."""
        until = self._cache.clock.monotonic() + WATCH_LAG_TIMEOUT_S
        if self._cache.pod_by_uid(request.uid) is not None or not await self._is_there(request):
            return
        while self._cache.pod_by_uid(request.uid) is None and self._cache.clock.monotonic() < until:
            await self._cache.clock.sleep(_PREEMPTION_POLL_S)

    async def _is_there(self, request: PodRequest) -> bool:
        try:
            return (await self._client.get(PODS, request.name, request.namespace)).metadata.uid == request.uid
        except NotFoundError:
            return False
        except KubeError as error:
            log.warning("Failed to read a pod", pod=request.key, error=str(error))
            return True

    def _waiting(self, uid: str) -> tuple[Pod, PodRequest] | None:
        """A pod as the API server has it, whatever was asked about it; None where it does not wait for devices, or not
        for this replica to find it some."""
        pod = self._cache.pod_by_uid(uid) if self._gate.is_open else None
        if pod is None or pod.spec.node_name or pod.metadata.deletion_timestamp:
            return None
        if self._cache.ledger.grant(uid):  # its Binding is on its way
            return None
        with suppress(DialectError):  # reported when kube-scheduler asks about it
            if request := self._cache.readings.of(pod).request():
                return pod, request
        return None

    def _is_making_room(self, request: PodRequest) -> bool:
        """Whether earlier victims for this pod are still terminating: no further ones are chosen then."""
        node = self._cache.nominations.node_of(request.uid)
        return bool(node) and self._search.is_being_emptied(node, request, self._feasibility.quota_left(request))

    async def _preempt(self, pod: Pod, request: PodRequest, chosen: Victims) -> bool:
        """As kube-scheduler does it (prepareCandidate). False where it has to be retried.

        The nomination is written to the pod as it was when this was decided: where another replica has bound it or
        nominated it elsewhere meanwhile, the write fails, and no pod is evicted.
        """
        self._cache.nominations.nominate(request, chosen.node, chosen.uids)
        if not await self._write_nomination(request, chosen.node, pod.metadata.resource_version):
            self._cache.nominations.forget(request.uid)
            if (known := self._cache.pod_by_uid(request.uid)) is not None:  # another replica may have nominated it
                self._cache.nominations.put_pod(known)
            return False
        self._report(pod, request, chosen)
        await self._clear_lower_nominations(chosen.node, request)
        evicted = []
        for victim in chosen.pods:
            if self._waiting(request.uid) is None:
                return True  # the others stay
            if await self._evict(victim, pod, chosen.node):
                evicted.append(victim.uid)
        if len(evicted) == len(chosen.pods):
            return True
        self._cache.nominations.nominate(request, chosen.node, evicted)
        return False

    def _nominate(self, pod: Pod, request: PodRequest, chosen: Victims) -> None:
        self._cache.nominations.nominate(request, chosen.node, chosen.uids)
        self._report(pod, request, chosen)

    def _report(self, pod: Pod, request: PodRequest, chosen: Victims) -> None:
        self._reported.forget(request.uid)
        self._events.event(ref_of(PODS, pod), SchedulerReason.PREEMPTING, _preempting_text(chosen, request.namespace))
        victims = [victim.key for victim in chosen.pods]
        log.info("Preempting pods", pod=request.key, node=chosen.node, victims=victims)

    async def _clear_lower_nominations(self, node: str, request: PodRequest) -> None:
        """Pods of lower priority that were nominated to the node and no longer fit are free to go elsewhere."""
        for lower in self._cache.nominations.lower(node, request.priority):
            if not self._search.fits_after_termination(node, lower):
                self._cache.nominations.forget(lower.uid)
                await self._write_nomination(lower, None)

    async def _write_nomination(self, request: PodRequest, node: str | None, version: str = "") -> bool:
        """With a ``version``, only where the pod has not changed since."""
        metadata = {"uid": request.uid} | ({"resourceVersion": version} if version else {})
        patch = {"metadata": metadata, "status": {"nominatedNodeName": node}}
        try:
            await self._client.patch_merge(PODS, request.name, patch, request.namespace, subresource="status")
        except KubeError as error:
            log.warning("Failed to write a nomination", pod=request.key, error=str(error))
            return False
        return True

    async def _evict(self, victim: Occupant, pod: Pod, node: str) -> bool:
        """Delete a pod with its own grace period; whether it goes, or is gone."""
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": f"{pod.spec.scheduler_name}: preempting to accommodate a higher priority pod",
            "lastTransitionTime": timestamp(self._cache.clock.now()),
        }
        patch = {"metadata": {"uid": victim.uid}, "status": {"conditions": [condition]}}
        victim_pod = self._cache.pod_by_uid(victim.uid)
        try:
            await self._client.patch_merge(
                PODS, victim.name, patch, victim.namespace, subresource="status", strategic=True
            )
            await self._client.delete(PODS, victim.name, victim.namespace, uid=victim.uid)
        except (NotFoundError, ConflictError):
            return True  # it is another pod of that name
        except KubeError as error:
            log.warning("Failed to preempt a pod", pod=victim.key, error=str(error))
            return False
        if victim_pod is not None:
            message = f"Preempted by pod {pod.metadata.uid} on node {node}"
            self._events.event(ref_of(PODS, victim_pod), SchedulerReason.PREEMPTED, message)
        return True

    def _report_why_not(self, pod: Pod, why_not: Mapping[str, int]) -> None:
        """An event on what kube-scheduler cannot know or report; once, as long as nothing changes."""
        uid, message = pod.metadata.uid, _unavailable_text(why_not)
        if TOO_FEW_VICTIMS not in why_not or self._reported.get(uid) == message:
            return
        self._reported.put(uid, message)
        self._events.event(ref_of(PODS, pod), SchedulerReason.PREEMPTION_NOT_ENOUGH, message)


def _unavailable_text(why_not: Mapping[str, int]) -> str:
    """In kube-scheduler's form."""
    reasons = sorted(f"{count} {reason}" for reason, count in why_not.items())
    return f"preemption: 0/{sum(why_not.values())} nodes are available: {', '.join(reasons)}."


def _preempting_text(victims: Victims, namespace: str) -> str:
    """Such as ``2 lower-priority pods on node n are being evicted to make room: a, b``, with the names of pods in its
    own namespace only."""
    names = [pod.name for pod in victims.pods if pod.namespace == namespace and pod.name]
    count = len(victims.pods)
    message = f"{count} lower-priority pods" if count > 1 else "1 lower-priority pod"
    message += f" on node {victims.node} {'are' if count > 1 else 'is'} being evicted to make room"
    shown = ", ".join(names[:_MAX_NAMED_PODS]) + (", ..." if len(names) > _MAX_NAMED_PODS else "")
    return f"{message}: {shown}" if names else message
