"""Grants that are in the ledger before the API server has them: those whose Binding is on its way, and early ones.

An early one is a pod's that still waits in kube-scheduler's queue (`early_nominations`). It takes of its node like
any other, so that the pods after it are placed beside it, but nothing depends on it: it never stands in the way of
its own pod, wherever that is bound in the end, nor of one of higher priority, and is dropped where the pod is not
bound in time.
"""

from dataclasses import dataclass

from purser.core.decisions.notes import DecisionInputs
from purser.core.fleet import NO_NOMINATED_USAGE, NodeState
from purser.core.ledger import LedgerError
from purser.core.model import Grant, GrantState, PodRequest
from purser.core.placement import Evaluator, Refusal, to_grant
from purser.scheduler.cache import ClusterCache
from purser.scheduler.decision_log import NO_LOG, DecisionLog
from purser.scheduler.reasons import BindFailure

EARLY_RESERVATION_TTL_S = 30.0
"""How long an early reservation is kept for a pod that is not bound: kube-scheduler may be busy, or have found another
reason to let the pod wait."""


class ReservationError(Exception):
    """Nothing was reserved; the message says why of this pod and node."""

    def __init__(self, reason: BindFailure, message: str):
        super().__init__(message)
        self.reason = reason


@dataclass(slots=True)
class _EarlyReservation:
    """What was reserved for a pod that kube-scheduler had not asked about."""

    request: PodRequest
    grant: Grant
    why: str
    node: NodeState | None
    """As it was right after."""
    until: float
    """Monotonic seconds."""


class Reservations:
    """Enters grants, and takes back those that came to nothing."""

    def __init__(self, cache: ClusterCache, evaluator: Evaluator, log: DecisionLog = NO_LOG) -> None:
        self._log = log
        self._cache = cache
        self._evaluator = evaluator
        self._early: dict[str, _EarlyReservation] = {}

    def reserve(self, node: str, request: PodRequest) -> tuple[Grant, str]:
        """Decide on the current ledger and reserve, without a pause in between; returns the reason as well.

        An early reservation for the pod stays valid, unless the node was replaced since. Early reservations of other
        pods, which kube-scheduler handles later, are no obstacle: they may have been made after the pod's filter.
        Raises `ReservationError`.
        """
        if self.early_node(request) == node:
            early = self._early.pop(request.uid)
            return early.grant, early.why
        self.withdraw(request.uid)
        try:
            return self._reserve(node, request)
        except ReservationError:
            if not self._withdraw_competing(node, request):
                raise
            return self._reserve(node, request)

    def reserve_early(self, node: str, request: PodRequest) -> None:
        """For a pod that kube-scheduler has not asked about yet. Raises `ReservationError`."""
        grant, why = self._reserve(node, request, is_early=True)
        until = self._cache.clock.monotonic() + EARLY_RESERVATION_TTL_S
        self._early[request.uid] = _EarlyReservation(request, grant, why, self._cache.fleet.node(node), until)

    def early_node(self, request: PodRequest) -> str:
        """Where devices that were reserved early wait for a pod that asks for this; empty: nowhere."""
        early = self._early.get(request.uid)
        if early is None or early.request != request or not self.is_early(request.uid):
            return ""
        return early.grant.node if self._is_unchanged(early) else ""

    def is_early(self, uid: str) -> bool:
        """Whether what a pod has in the ledger was reserved early."""
        early = self._early.get(uid)
        return (
            early is not None
            and self._cache.ledger.state(uid) is GrantState.RESERVED
            and self._cache.ledger.grant(uid) is early.grant
        )

    def withdraw(self, uid: str) -> None:
        """Drop what was reserved early for a pod; a grant in its place stays, be it equal: another replica's was."""
        is_early = self.is_early(uid)
        early = self._early.pop(uid, None)
        if early is not None and is_early:
            self.release(early.grant)

    def withdraw_lower(self, priority: int) -> bool:
        """Drop what was reserved early for pods of lower priority; whether there was any."""
        lower = [uid for uid, early in self._early.items() if early.request.priority < priority]
        for uid in lower:
            self.withdraw(uid)
        return bool(lower)

    def _withdraw_competing(self, node: str, request: PodRequest) -> bool:
        """Drop what was reserved early and is as important at most, on the node or of the same quota; whether any."""
        beside = [
            uid
            for uid, early in self._early.items()
            if early.request.priority <= request.priority
            and (early.grant.node == node or early.request.namespace == request.namespace)
        ]
        for uid in beside:
            self.withdraw(uid)
        return bool(beside)

    def withdraw_expired(self) -> list[str]:
        """Drop what was reserved early and not used in time; for which pods, by uid."""
        now = self._cache.clock.monotonic()
        old = [uid for uid, early in self._early.items() if early.until <= now]
        for uid in old:
            self.withdraw(uid)
        return old

    def withdraw_all(self) -> None:
        """Another replica decides from now on."""
        for uid in list(self._early):
            self.withdraw(uid)

    def release(self, grant: Grant) -> None:
        """The Binding came to nothing; a grant that an informer has put in its place stays."""
        if self._cache.ledger.grant(grant.pod_uid) == grant:
            self._cache.ledger.release(grant.pod_uid)
            self._cache.kubelets.forget_assumed(grant)
            self._cache.free_resources.forget_assumed(grant)

    def _is_unchanged(self, early: _EarlyReservation) -> bool:
        """Its devices, and what its kubelet will decide from; what others took meanwhile they took beside it, unless
        another replica let them."""
        then, now = early.node, self._cache.fleet.node(early.grant.node)
        if then is None or now is None or self._cache.ledger.violations(early.grant.node):
            return False
        disputed = any(state.disputed for state in now.devices if state.device.uuid in early.grant.uuids)
        return not disputed and now.inventory is then.inventory and now.kubelet == then.kubelet

    def _reserve(self, name: str, request: PodRequest, *, is_early: bool = False) -> tuple[Grant, str]:
        node = self._cache.fleet.node(name)
        if node is None:
            raise ReservationError(BindFailure.NO_INVENTORY, f"node {name} has no inventory")
        held = self._cache.nominations.held(name, request, self._evaluator.policy)
        left = self._cache.quota_remaining(request.namespace, request.family)
        placement = self._evaluator.place(name, request, left, held)
        self._log.placed(
            DecisionInputs(request, left, {} if held is NO_NOMINATED_USAGE else {name: held}),
            name,
            placement,
            is_early=is_early,
        )
        if isinstance(placement, Refusal):
            raise ReservationError(
                BindFailure.NO_LONGER_FITS, f"the pod no longer fits on node {name}: {placement.message}"
            )
        grant, why = to_grant(placement, request, node.inventory), self._evaluator.why(request, placement)
        try:
            self._cache.ledger.reserve(grant)
        except LedgerError as error:
            raise ReservationError(BindFailure.LEDGER_REFUSED, str(error)) from error
        self._cache.kubelets.assume(name, request)
        self._cache.free_resources.assume(name, request)
        return grant, why
