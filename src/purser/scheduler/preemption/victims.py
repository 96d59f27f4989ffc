"""Which pods would have to go from which node for a pod, by the book as it is now."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from purser.core.grant.quota import UNLIMITED, QuotaLimits
from purser.core.kubernetes.times import parsed
from purser.core.model import PodRequest
from purser.core.placement import Placement, PolicySettings, Refusal, place
from purser.core.placement.preemption import Occupant, Victims, cheapest_victims, least
from purser.kube.objects import Pod
from purser.scheduler.cache import ClusterCache
from purser.scheduler.placement import Reservations

MIN_CANDIDATES = 100
MIN_CANDIDATES_PERCENT = 10
"""As many nodes are weighed against one another as by kube-scheduler (``minCandidateNodesAbsolute`` and
``minCandidateNodesPercentage``)."""

NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"
TOO_FEW_VICTIMS = "would not take the pod even if all lower-priority pods were evicted"
"""The first two are kube-scheduler's words, and are read after a number of nodes."""


class FoundVictims(msgspec.Struct, frozen=True):
    """What was found on all nodes."""

    chosen: Victims | None
    why_not: Mapping[str, int]
    """How many of the others do not help, by reason."""


class VictimSearch:
    """Looks for victims; changes nothing."""

    def __init__(self, cache: ClusterCache, policy: PolicySettings, reservations: Reservations) -> None:
        self._cache = cache
        self._policy = policy
        self._reservations = reservations

    async def on_nodes(
        self,
        request: PodRequest,
        refusals: Mapping[str, Refusal],
        left: QuotaLimits = UNLIMITED,
        proposed: Mapping[str, Collection[str]] = {},
    ) -> FoundVictims:
        """The cheapest of all nodes. ``refusals`` are the nodes where only Purser says no; on those that are
        ``proposed`` kube-scheduler needs these pods gone, for reasons of its own.
        """
        names = [*proposed, *(name for name in refusals if name not in proposed)]
        enough = max(MIN_CANDIDATES, len(names) * MIN_CANDIDATES_PERCENT // 100)
        found: list[Victims] = []
        why_not: dict[str, int] = {}
        for name in names:
            if len(found) >= enough and not all(victims.violations for victims in found):
                break
            refusal = refusals.get(name)
            if name not in proposed and refusal is not None and not refusal.resolvable:
                why = NOT_HELPFUL
            else:
                await asyncio.sleep(0)  # kube-scheduler's questions go first
                victims = self.on_node(name, request, left, proposed.get(name, ()))
                if victims is not None:
                    found.append(victims)
                    continue
                why = TOO_FEW_VICTIMS if any(self._lower_priority_pods(name, request)) else NO_VICTIMS
            why_not[why] = why_not.get(why, 0) + 1
        return FoundVictims(cheapest_victims(found), why_not)

    def on_node(
        self, node: str, request: PodRequest, left: QuotaLimits = UNLIMITED, proposed: Collection[str] = ()
    ) -> Victims | None:
        """The victims on one node; None where preemption would not help, or is not needed."""
        lower = {occupant.uid: occupant for occupant in self._lower_priority_pods(node, request)}
        for uid in proposed:
            lower.setdefault(uid, self._occupant(uid))
        if not lower or any(occupant.priority >= request.priority for occupant in lower.values()):
            return None
        fits = self._fits(node, request, left)
        return least(node, lower.values(), fits, self._cache.budgets.rules, frozenset(proposed))

    def is_being_emptied(self, node: str, request: PodRequest, left: QuotaLimits = UNLIMITED) -> bool:
        """Whether the terminating pods of a node make enough room, so that there are no further victims. Kubelet's
        state until then does not count.
        """
        return bool(self._cache.nominations.leaving(node)) and self.fits_after_termination(node, request, left)

    def fits_after_termination(self, node: str, request: PodRequest, left: QuotaLimits = UNLIMITED) -> bool:
        """Whether the pod fits a node once its terminating pods are gone."""
        return self._fits(node, request, left, checks_kubelet=False)(frozenset())

    def _fits(
        self, node: str, request: PodRequest, left: QuotaLimits, *, checks_kubelet: bool = True
    ) -> Callable[[frozenset[str]], bool]:
        fleet, nominations = self._cache.fleet, self._cache.nominations
        held = nominations.held(node, request, self._policy)
        early = {
            occupant.uid
            for occupant in self._lower_priority_occupants(node, request)
            if self._reservations.is_early(occupant.uid)
        }
        going = nominations.leaving(node) | {request.uid} | early

        def fits(gone: frozenset[str]) -> bool:
            state = fleet.without(node, gone | going)
            if state is None:
                return False
            if not checks_kubelet:
                state = msgspec.structs.replace(state, kubelet=None)
            return isinstance(place(state.plus(held), request, self._policy, left), Placement)

        return fits

    def _lower_priority_pods(self, node: str, request: PodRequest) -> Iterable[Occupant]:
        """Pods with grants on a node that the request outranks, that hold them and are not leaving it anyway."""
        return (
            occupant
            for occupant in self._lower_priority_occupants(node, request)
            if not self._reservations.is_early(occupant.uid)
        )

    def _lower_priority_occupants(self, node: str, request: PodRequest) -> Iterable[Occupant]:
        leaving = self._cache.nominations.leaving(node)
        for uid in [grant.pod_uid for grant in self._cache.ledger.grants(node)]:
            pod = None if uid in leaving else self._cache.pod_by_uid(uid)
            if pod is not None and pod.spec.priority < request.priority and not pod.metadata.deletion_timestamp:
                yield _occupant(pod)

    def _occupant(self, uid: str) -> Occupant:
        pod = self._cache.pod_by_uid(uid)
        return Occupant(uid) if pod is None else _occupant(pod)


def _occupant(pod: Pod) -> Occupant:
    metadata = pod.metadata
    started = parsed(pod.status.start_time)
    known = Occupant(metadata.uid, metadata.namespace, metadata.name, pod.spec.priority, labels=metadata.labels)
    return known if started is None else msgspec.structs.replace(known, started_at=started)
