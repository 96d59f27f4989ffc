"""Which nodes a pod fits now: by the book, its quota, and what is kept for the pods that it has to yield to."""

from collections.abc import Iterable, Mapping

from purser.core.decisions.notes import DecisionInputs
from purser.core.fleet import NominatedUsage
from purser.core.grant.quota import UNLIMITED, Demand, QuotaLimits, grant_demand, remaining_quota
from purser.core.model import GpuPolicy, PodRequest
from purser.core.placement import Evaluation, Evaluator, PolicySettings, Refusal, demand_over_quota, explain
from purser.core.placement.yielding import without_kept_nodes
from purser.scheduler.cache import ClusterCache
from purser.scheduler.decision_log import NO_LOG, DecisionLog
from purser.scheduler.placement.reservations import Reservations


class Feasibility:
    """Judges pods for all who choose nodes: the extender's verbs, preemption, early nominations, hints.

    Of the book it changes nothing but early reservations, which yield to pods of higher priority.
    """

    def __init__(
        self,
        cache: ClusterCache,
        evaluator: Evaluator,
        reservations: Reservations,
        log: DecisionLog = NO_LOG,
    ) -> None:
        self._log = log
        self._cache = cache
        self._evaluator = evaluator
        self._reservations = reservations

    @property
    def policy(self) -> PolicySettings:
        """What the operator chose."""
        return self._evaluator.policy

    def evaluate(self, request: PodRequest, names: Iterable[str], *, scored: bool = True) -> Evaluation:
        """The verdict on each of these nodes; not ``scored``: all scores are 0.

        The pod's own reservation, whose Binding's outcome is unknown, does not stand in its way.
        """
        return self._evaluate(request, list(names), scored)[0]

    def decide(self, request: PodRequest, names: list[str], verb: str, created: str) -> Evaluation:
        """As `evaluate`, for the decision log as well. ``verb``: what it is asked for; ``created``: when the pod was,
        as the API server writes it."""
        found, left, held = self._evaluate(request, names, scored=True)
        self._log.judged(DecisionInputs(request, left, held, created), found, verb)
        return found

    def decide_outranking(self, request: PodRequest, names: list[str], verb: str, created: str) -> Evaluation:
        """As `decide`; where no node fits, early reservations of pods of lower priority are withdrawn first."""
        found = self.decide(request, names, verb, created)
        if not found.fits and self._reservations.withdraw_lower(request.priority):
            return self.decide(request, names, verb, created)
        return found

    def fits_any(self, request: PodRequest, names: list[str]) -> bool:
        """Whether any of these nodes fits, see `decide_outranking`."""
        return self._fits_any_now(request, names) or (
            self._reservations.withdraw_lower(request.priority) and self._fits_any_now(request, names)
        )

    def quota_left(self, request: PodRequest) -> QuotaLimits:
        """What the quota of the pod's namespace leaves, the pod's own reservation not counted."""
        left = self._cache.quota_remaining(request.namespace, request.family)
        held = self._cache.ledger.grant(request.uid)
        return left if held is None or left == UNLIMITED else remaining_quota(left, Demand() - grant_demand(held))

    def explain(self, request: PodRequest, found: Evaluation) -> str:
        """Why no node fits, for kube-scheduler's event and condition on the pod."""
        idle_only = GpuPolicy.MUTEX in self.policy.gpu_policy(request)
        quota = self.exceeded_quota(request, found.refusals)
        fleet, lists = self._cache.fleet, self._evaluator.lists
        return explain(found.refusals, request, fleet, quota, idle_only=idle_only, lists=lists)

    def exceeded_quota(self, request: PodRequest, refusals: Mapping[str, Refusal]) -> str:
        """Which of the namespace's quotas is in the way on these nodes, in a sentence; empty: none."""
        left = self.quota_left(request)
        if left == UNLIMITED:
            return ""
        held = self._cache.ledger.grant(request.uid)
        own = Demand() if held is None else grant_demand(held)
        asked = demand_over_quota(refusals, request, self._cache.fleet, left)
        return self._cache.exceeded_quota(request, asked, own)

    def _evaluate(
        self, request: PodRequest, names: list[str], scored: bool
    ) -> tuple[Evaluation, QuotaLimits, Mapping[str, NominatedUsage]]:
        """The verdict, with what it depends on beside the fleet."""
        own = self._cache.ledger.grant(request.uid)
        left = self.quota_left(request)
        found = self._evaluator.evaluate(request, names, left, own, scored=scored)
        held = self._held(request, found.fits)
        if held:
            found = without_kept_nodes(found, self._cache.fleet, request, self.policy, left, held)
        return found, left, held

    def _fits_any_now(self, request: PodRequest, names: list[str]) -> bool:
        if self._cache.nominations:
            return bool(self.evaluate(request, names).fits)
        own = self._cache.ledger.grant(request.uid)
        return self._evaluator.fits_any(request, names, self.quota_left(request), own)

    def _held(self, request: PodRequest, fits: list[str]) -> dict[str, NominatedUsage]:
        """What is kept of these nodes for pods nominated to them that it has to yield to."""
        nominations = self._cache.nominations
        nodes = nominations.nodes().intersection(fits) if nominations else ()
        return {node: taken for node in nodes if (taken := nominations.held(node, request, self.policy))}
