"""Which nodes a pod fits now: by the book, its quota, and what is kept for the pods that it has to yield to."""

from collections.abc import Iterable, Mapping
from itertools import compress

from purser.core.grant.quota import UNLIMITED, Demand, QuotaLimits, grant_demand, remaining
from purser.core.ledger import Usage
from purser.core.model import GpuPolicy, PodRequest
from purser.core.placement import (
    PROMISED,
    Evaluation,
    Evaluator,
    Placement,
    PolicySettings,
    demand_over_quota,
    explain,
    place,
)
from purser.scheduler.cache import ClusterCache
from purser.scheduler.placement.reservations import Reservations


class Feasibility:
    """Judges pods for all who choose nodes: the extender's verbs, preemption, early nominations, hints.

    Of the book it changes nothing but early reservations, which yield to pods of higher priority.
    """

    def __init__(self, cache: ClusterCache, evaluator: Evaluator, reservations: Reservations) -> None:
        self._cache = cache
        self._evaluator = evaluator
        self._reservations = reservations

    @property
    def policy(self) -> PolicySettings:
        """What the operator chose."""
        return self._evaluator.policy

    def evaluate(self, request: PodRequest, names: Iterable[str]) -> Evaluation:
        """The verdict on each of these nodes.

        The pod's own reservation, whose Binding's outcome is unknown, does not stand in its way.
        """
        own = self._cache.ledger.grant(request.uid)
        left = self.quota_left(request)
        return self._yielding(request, self._evaluator.evaluate(request, list(names), left, own), left)

    def evaluate_outranking(self, request: PodRequest, names: list[str]) -> Evaluation:
        """As `evaluate`; where no node fits, early reservations of pods of lower priority are withdrawn first."""
        found = self.evaluate(request, names)
        if not found.fits and self._reservations.withdraw_lower(request.priority):
            return self.evaluate(request, names)
        return found

    def fits_any(self, request: PodRequest, names: list[str]) -> bool:
        """Whether any of these nodes fits, see `evaluate_outranking`."""
        return self._fits_any_now(request, names) or (
            self._reservations.withdraw_lower(request.priority) and self._fits_any_now(request, names)
        )

    def quota_left(self, request: PodRequest) -> QuotaLimits:
        """What the quota of the pod's namespace leaves, the pod's own reservation not counted."""
        left = self._cache.quota_remaining(request.namespace, request.family)
        held = self._cache.ledger.grant(request.uid)
        return left if held is None or left == UNLIMITED else remaining(left, Demand() - grant_demand(held))

    def explain(self, request: PodRequest, found: Evaluation) -> str:
        """Why no node fits, for kube-scheduler's event and condition on the pod."""
        idle_only = GpuPolicy.MUTEX in self.policy.gpu_policy(request)
        quota = self._exceeded_quota(request, found)
        return explain(found.refusals, request, self._cache.fleet, quota, idle_only=idle_only)

    def _exceeded_quota(self, request: PodRequest, found: Evaluation) -> str:
        left = self.quota_left(request)
        if left == UNLIMITED:
            return ""
        held = self._cache.ledger.grant(request.uid)
        own = Demand() if held is None else grant_demand(held)
        asked = demand_over_quota(found.refusals, request, self._cache.fleet, left)
        return self._cache.exceeded_quota(request, asked, own)

    def _fits_any_now(self, request: PodRequest, names: list[str]) -> bool:
        if self._cache.nominations:
            return bool(self.evaluate(request, names).fits)
        own = self._cache.ledger.grant(request.uid)
        return self._evaluator.fits_any(request, names, self.quota_left(request), own)

    def _yielding(self, request: PodRequest, found: Evaluation, left: QuotaLimits) -> Evaluation:
        """Without nodes where the pod fits, but not beside those nominated to them that it has to yield to."""
        nominated = self._cache.nominations.nodes().intersection(found.fits)
        held = {node: taken for node in nominated if (taken := self._held(node, request))}
        promised = {node for node, taken in held.items() if not self._fits_beside(node, request, left, taken)}
        if not promised:
            return found
        kept = [name not in promised for name in found.fits]
        refusals = {**found.refusals, **dict.fromkeys(promised, PROMISED)}
        return Evaluation(list(compress(found.fits, kept)), found.scores[kept], refusals)

    def _held(self, node: str, request: PodRequest) -> Mapping[str, Usage]:
        return self._cache.nominations.held(node, request, self.policy)

    def _fits_beside(self, node: str, request: PodRequest, left: QuotaLimits, held: Mapping[str, Usage]) -> bool:
        state = self._cache.fleet.without(node, {request.uid})
        return state is not None and isinstance(place(state.plus(held), request, self.policy, left), Placement)
