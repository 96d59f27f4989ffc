"""Bindings with an unknown outcome, which is looked up at the API server.

As long as one may still be carried out, its grant stays in the ledger.
"""

from dataclasses import dataclass
from enum import Enum

import structlog

from purser.core.grant.signing import GrantError
from purser.core.model import Grant, GrantState
from purser.kube import Client, KubeError, NotFoundError
from purser.kube.objects import Pod
from purser.kube.pods import is_terminal
from purser.kube.resources import PODS
from purser.scheduler.cache import ClusterCache
from purser.scheduler.placement import Reservations

LOST_BINDING_TIMEOUT_S = 65.0
"""For how long a Binding whose answer was lost may still be carried out: its request timeout is 60 s."""

log = structlog.get_logger("purser.scheduler")


class BindOutcome(Enum):
    """What the API server says of a pod that we tried to bind."""

    BOUND_BY_US = "the pod is bound with this grant"
    UNBOUND = "the pod is still unbound"
    BOUND_BY_OTHER = "another component has bound the pod"
    GONE = "the pod no longer exists or has finished"


@dataclass(slots=True)
class _Unsettled:
    """A grant whose Binding may or may not have been carried out, or whose pod no informer knows yet."""

    grant: Grant
    until: float
    """Monotonic seconds; after that an unbound pod stays unbound."""


class UnsettledBindings:
    """Takes grants forward, or off the book, by what is really there."""

    def __init__(self, client: Client, cache: ClusterCache, reservations: Reservations) -> None:
        self._client = client
        self._cache = cache
        self._reservations = reservations
        self._by_uid: dict[str, _Unsettled] = {}

    def __contains__(self, pod_uid: str) -> bool:
        """Whether it is not known what became of a pod's Binding."""
        return pod_uid in self._by_uid

    def grants(self) -> list[Grant]:
        """Those whose Bindings are unsettled."""
        return [each.grant for each in self._by_uid.values()]

    async def settle(self, grant: Grant) -> BindOutcome | None:
        """The answer to a Binding was lost, or says that the pod is not as expected: the pod is read to find the
        outcome.

        None where the API server cannot be asked.
        """
        outcome = await self._ask(grant)
        if outcome in (BindOutcome.GONE, BindOutcome.BOUND_BY_OTHER):
            self._drop(grant)
        elif outcome is BindOutcome.UNBOUND:
            self.mark_failed(grant)
        elif outcome is None:
            self.mark_unsettled(grant)
        return outcome

    async def resolve(self, pod_uid: str) -> None:
        """Ask once more about an unsettled Binding."""
        unsettled, state = self._by_uid[pod_uid], self._cache.ledger.state(pod_uid)
        if state is None or (state is not GrantState.RESERVED and self._cache.pod_by_uid(pod_uid) is not None):
            self._by_uid.pop(pod_uid, None)  # an informer was faster, and will also report the pod's end
            return
        outcome = await self._ask(unsettled.grant)
        if outcome is BindOutcome.BOUND_BY_US:
            self.confirm(unsettled.grant)
        elif outcome in (BindOutcome.GONE, BindOutcome.BOUND_BY_OTHER) or (
            outcome is BindOutcome.UNBOUND and self._cache.clock.monotonic() >= unsettled.until
        ):
            log.info("Resolved a Binding with an unknown outcome", pod=unsettled.grant.key, found=outcome.value)
            self._drop(unsettled.grant)

    def mark_unsettled(self, grant: Grant) -> None:
        """The grant's Binding may or may not be carried out."""
        if self._cache.ledger.grant(grant.pod_uid) == grant:
            self._by_uid[grant.pod_uid] = _Unsettled(grant, self._cache.clock.monotonic() + LOST_BINDING_TIMEOUT_S)

    def confirm(self, grant: Grant) -> None:
        """The pod is bound; it may even have ended meanwhile, and then the ledger has nothing of it any more. An
        informer that has not seen the pod may never report its deletion, so the pod is read until one has seen it.
        """
        self._by_uid.pop(grant.pod_uid, None)
        self._cache.bound_grants.confirm(grant)
        if self._cache.pod_by_uid(grant.pod_uid) is None:
            self.mark_unsettled(grant)

    def mark_failed(self, grant: Grant) -> None:
        """This Binding was not carried out; another one before it may still be."""
        if grant.pod_uid not in self._by_uid:
            self._drop(grant)

    def _drop(self, grant: Grant) -> None:
        """Take the reservation off the book, unless an informer has replaced it by what is really there, be it the same
        grant: the informer will also report the pod's end."""
        uid = grant.pod_uid
        self._by_uid.pop(uid, None)
        is_unseen = self._cache.pod_by_uid(uid) is None
        if self._cache.ledger.state(uid) is GrantState.RESERVED or is_unseen:
            self._reservations.release(grant)
        if is_unseen:
            self._cache.bound_grants.forget_confirmed(uid)

    async def _ask(self, grant: Grant) -> BindOutcome | None:
        try:
            pod = await self._client.get(PODS, grant.pod, grant.namespace)
        except NotFoundError:
            return BindOutcome.GONE
        except KubeError as error:
            log.warning("A pod cannot be read", pod=grant.key, error=str(error))
            return None
        return self._actual_outcome(pod, grant)

    def _actual_outcome(self, pod: Pod, grant: Grant) -> BindOutcome:
        if pod.metadata.uid != grant.pod_uid or is_terminal(pod):
            return BindOutcome.GONE
        if not pod.spec.node_name:
            return BindOutcome.UNBOUND
        try:
            return (
                BindOutcome.BOUND_BY_US
                if self._cache.bound_grants.trusted_grant(pod) == grant
                else BindOutcome.BOUND_BY_OTHER
            )
        except GrantError:
            return BindOutcome.BOUND_BY_OTHER
