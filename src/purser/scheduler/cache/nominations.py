"""Nominated pods, and the resources of nodes that are kept for them meanwhile.

As in kube-scheduler: what pods that are nominated to a node (``status.nominatedNodeName``) will take there counts
against every other pod of the same or of lower priority, until they are bound, gone or nominated elsewhere. Without it
the preempted pods are recreated by their ReplicaSet before the freed room is used, and are preempted again and again.

Whoever may write a pod's status may nominate it. Unlike in kube-scheduler a nomination therefore lasts only while the
pod is tried: a node is not kept for good for a pod that can never go there.
"""

import math
from collections.abc import Collection
from contextlib import suppress

import msgspec

from purser.core.dialects import DialectError
from purser.core.fleet import NO_NOMINATED_USAGE, Fleet, NominatedUsage, nominated_usage
from purser.core.model import PodRequest
from purser.core.names import SCHEDULER_NAME
from purser.core.placement import Placement, PolicySettings, place, to_grant
from purser.kube.clock import Clock
from purser.kube.objects import Pod
from purser.kube.pods import is_terminal
from purser.recent import Recent
from purser.scheduler.cache.readings import Readings
from purser.scheduler.waiting import keep_most_important

UNCONFIRMED_NOMINATION_HOLD_S = 30.0
"""How long a nomination is kept of which the pod itself says nothing: it was just decided, or kube-scheduler took it
back while it knew less than Purser."""

NOMINATED_NODE_HOLD_S = 600.0
"""How long a node is kept for a pod that names it and about which kube-scheduler does not ask. It tries each pod again
after five minutes at the latest (``--pod-max-in-unschedulable-pods-duration``), if any node passes its own filters."""

MAX_GRACE_S = 3600.0
"""A longer grace period, which is for the pod's author to choose, is not waited for: others are asked to go then."""

OVERDUE_TERMINATION_S = 60.0
"""How long after its grace period a terminating pod still counts as leaving."""


MAX_NOMINEES = 1024
"""Each is placed again whenever a pod that has to yield to it is evaluated."""


_MAX_REMEMBERED_PODS = 4 * MAX_NOMINEES


class _Nominee(msgspec.Struct, frozen=True):
    request: PodRequest
    node: str
    victims: frozenset[str] = frozenset()
    """Who is to go for it."""
    decided_at: float = -math.inf
    """Monotonic seconds: those who are to go are asked at once."""
    until: float | None = None
    """Monotonic seconds; None while the pod itself names the node: then `named_until` counts."""
    named_until: float = -math.inf
    """Monotonic seconds."""


class Nominations:
    """Nominated pods by uid, and the pods that are leaving their nodes."""

    def __init__(self, fleet: Fleet, clock: Clock, readings: Readings, scheduler_name: str = SCHEDULER_NAME) -> None:
        """Pods of other schedulers are never bound by this one: nothing is kept for them."""
        self._scheduler_name = scheduler_name
        self._fleet = fleet
        self._clock = clock
        self._readings = readings
        self._nominees: dict[str, _Nominee] = {}
        self._named_until: Recent[str, float] = Recent(_MAX_REMEMBERED_PODS)
        """By uid: names that come and go make a nomination last no longer."""
        self._leaving: dict[str, float] = {}
        """By uid of a pod that was asked to go: until when it is counted on to."""

    def put_pod(self, pod: Pod) -> None:
        """A pod is there, or changed."""
        uid, asked_to_go = pod.metadata.uid, bool(pod.metadata.deletion_timestamp)
        if is_terminal(pod):
            return self.remove_pod(pod)
        if asked_to_go:
            patience = min(pod.metadata.deletion_grace_period_seconds, MAX_GRACE_S) + OVERDUE_TERMINATION_S
            self._leaving.setdefault(uid, self._clock.monotonic() + patience)
        if pod.spec.node_name or asked_to_go:
            self._nominees.pop(uid, None)
        elif self._is_nominated(pod):
            self._put_nominated(pod)
        else:
            self._forget_nomination(uid)
        return None

    def remove_pod(self, pod: Pod) -> None:
        """It has ended, or is gone: the pod that it made room for has some time to use it."""
        uid = pod.metadata.uid
        self._nominees.pop(uid, None)
        self._named_until.forget(uid)
        self._leaving.pop(uid, None)
        for nominee in [each for each in self._nominees.values() if uid in each.victims and each.until is not None]:
            self._hold(nominee)

    def nominate(self, request: PodRequest, node: str, victims: Collection[str]) -> None:
        """Room is being made for a pod on a node by the going of others."""
        named_until = self._renew_hold(request.uid)
        self._hold(_Nominee(request, node, frozenset(victims), self._clock.monotonic(), named_until=named_until))

    def asked(self, uid: str) -> None:
        """kube-scheduler tries a pod."""
        if (nominee := self._nominees.get(uid)) is not None:
            self._nominees[uid] = msgspec.structs.replace(nominee, named_until=self._renew_hold(uid))

    def forget(self, uid: str) -> None:
        """A pod is nominated nowhere any more."""
        self._nominees.pop(uid, None)

    def __bool__(self) -> bool:
        """Whether any pod is nominated."""
        return bool(self._nominees)

    def nodes(self) -> set[str]:
        """The nodes to which pods are nominated."""
        return {each.node for each in self._nominees.values() if self._is_kept(each)}

    def node_of(self, uid: str) -> str:
        """Where a pod is nominated to; empty: nowhere."""
        nominee = self._nominees.get(uid)
        return nominee.node if nominee is not None and self._is_kept(nominee) else ""

    def lower(self, node: str, priority: int) -> list[PodRequest]:
        """The pods of lower priority that are nominated to a node."""
        return [each.request for each in self._of(node) if each.request.priority < priority]

    def leaving(self, node: str) -> frozenset[str]:
        """The pods with grants on a node that are about to go: they were asked to, or will be in a moment."""
        now = self._clock.monotonic()
        nominated = {
            uid
            for each in self._nominees.values()
            if now < each.decided_at + UNCONFIRMED_NOMINATION_HOLD_S
            for uid in each.victims
        }
        here = (grant.pod_uid for grant in self._fleet.ledger.grants(node))
        return frozenset(uid for uid in here if uid in nominated or now < self._leaving.get(uid, -math.inf))

    def is_leaving(self, uid: str) -> bool:
        """Whether a pod was asked to go, be it stuck."""
        return uid in self._leaving

    def held(self, node: str, request: PodRequest, policy: PolicySettings) -> NominatedUsage:
        """What is kept of a node, devices of SR-IOV pools too, for nominated pods that this one has to yield to.

        They are placed on the node as it will be without its terminating pods; one that does not fit even then keeps
        nothing.
        """
        before = [each for each in self._of(node) if _has_precedence(request, each.request)]
        if not before:
            return NO_NOMINATED_USAGE
        state = self._fleet.without(node, self.leaving(node) | {request.uid})
        if state is None:
            return NO_NOMINATED_USAGE
        state = msgspec.structs.replace(state, kubelet=None)  # what its kubelet is busy with will be over by then
        held = NO_NOMINATED_USAGE
        for nominee in sorted(before, key=lambda each: (-each.request.priority, each.request.uid)):
            placement = place(state, nominee.request, policy)
            if isinstance(placement, Placement):
                taken = nominated_usage(to_grant(placement, nominee.request, state.inventory))
                state, held = state.plus(taken), held + taken
        return held

    def _of(self, node: str) -> list[_Nominee]:
        if not self._nominees:
            return []
        here = [each for each in self._nominees.values() if each.node == node and self._is_kept(each)]
        granted = self._fleet.ledger.grant  # what is in the ledger is not kept once more
        return [each for each in here if granted(each.request.uid) is None]

    def _is_kept(self, nominee: _Nominee) -> bool:
        """Whether it still counts: longer while a pod is terminating for it."""
        if self._clock.monotonic() < (nominee.named_until if nominee.until is None else nominee.until):
            return True
        return any(self._clock.monotonic() < self._leaving.get(uid, -math.inf) for uid in nominee.victims)

    def _is_nominated(self, pod: Pod) -> bool:
        is_own = pod.spec.scheduler_name == self._scheduler_name
        return is_own and bool(pod.status.nominated_node_name) and not pod.spec.scheduling_gates

    def _renew_hold(self, uid: str) -> float:
        return self._named_until.put(uid, self._clock.monotonic() + NOMINATED_NODE_HOLD_S)

    def _put_nominated(self, pod: Pod) -> None:
        if self._fleet.ledger.grant(pod.metadata.uid) is not None:
            return  # what it is to get is in the ledger
        request = None
        with suppress(DialectError):  # placing it reports that
            request = self._readings.of(pod).request()
        if request is None:
            self._nominees.pop(pod.metadata.uid, None)
            return
        known, node = self._nominees.get(request.uid), pod.status.nominated_node_name
        if known is not None and known.node != node and known.victims and self._is_kept(known):
            return  # kube-scheduler 1.20 names nodes without victims where the pod does not fit
        if known is None or known.node != node:
            named_until = self._named_until.recall(request.uid, lambda: self._clock.monotonic() + NOMINATED_NODE_HOLD_S)
            known = _Nominee(request, node, named_until=named_until)
        self._keep(msgspec.structs.replace(known, request=request, until=None))

    def _forget_nomination(self, uid: str) -> None:
        nominee = self._nominees.get(uid)
        if nominee is None:
            return
        if not self._is_kept(nominee):
            del self._nominees[uid]
        elif nominee.until is None:
            self._hold(nominee)

    def _hold(self, nominee: _Nominee) -> None:
        until = self._clock.monotonic() + UNCONFIRMED_NOMINATION_HOLD_S
        self._keep(msgspec.structs.replace(nominee, until=until))

    def _keep(self, nominee: _Nominee) -> None:
        self._nominees[nominee.request.uid] = nominee
        keep_most_important(self._nominees, MAX_NOMINEES)


def _has_precedence(request: PodRequest, nominee: PodRequest) -> bool:
    return nominee.uid != request.uid and nominee.priority >= request.priority
