"""Finds out whose call it is, with kubelet's list and the API server at hand.

A refusal ends the pod, so what may only be a moment's disagreement between the two (a pod that kubelet rejected and the
API server still calls pending, a pod that another scheduler placed) is asked again for a while first. Node and grant
come in one write: a grant that does not count in a fresh read never will. kubelet admits nothing else meanwhile, so
that all waiting together is bounded.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec
import structlog

from purser.adapters.pods import devices_asked
from purser.agent.allocation.admission import ContainerTurn, Resolution, resolve
from purser.agent.allocation.advice import DEFAULT_SCHEDULERS, advice
from purser.agent.allocation.book import Book
from purser.agent.allocation.pods import UNADOPTED_PROBLEM, UNGRANTED_PROBLEM, LivePods, NodePods
from purser.agent.kubelet.calls import AllocateCall, PreferredAllocationCall
from purser.agent.kubelet.pod_resources import KubeletBooks, ListedPod
from purser.agent.kubelet.refusals import AllocationRefused, RefusalReason
from purser.core.model import Grant
from purser.core.names import AWAITS_GRANT_ANNOTATION, NOT_GRANTED, ignore_label_of
from purser.kube.clock import Clock
from purser.kube.errors import KubeError
from purser.kube.objects import Pod

log = structlog.get_logger("purser.agent")

STATUS_POLL_PERIOD_S = 0.05
"""Between two looks; kubelet's status updates reach the API server in tens of milliseconds."""

WAITS_PER_MINUTE = 5
"""How many calls may wait as long as one may, before others are refused at once."""


_MISMATCH_REMEDY = (
    "Delete and recreate the pod. If this happens again, check whether kubelet's topology policy lets the plugin "
    "choose devices on this node"
)

Ask: TypeAlias = PreferredAllocationCall | AllocateCall
"""What kubelet asks for devices."""


class WaitingBudget:
    """How long calls may wait together, within any minute. Times are monotonic seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._spent: deque[tuple[float, float]] = deque()

    def spend(self, seconds: float, now: float) -> bool:
        """Wait so long from now on; False: too much was spent."""
        while self._spent and self._spent[0][0] <= now - 60.0:
            self._spent.popleft()
        if sum(each for _, each in self._spent) + seconds > self._seconds:
            return False
        self._spent.append((now, seconds))
        return True


class NoGrantFits(AllocationRefused):
    """kubelet's ids meet none of the grants of the containers that wait."""

    def __init__(self, ask: Ask, turns: tuple[ContainerTurn, ...], listing: tuple[ListedPod, ...]) -> None:
        grants = "does not match the grant" if len(turns) == 1 else "matches none of the waiting containers' grants"
        found = f"kubelet's request for {ask} {grants}"
        keys = _keys(turns)
        super().__init__(RefusalReason.MISMATCH, _describe_turns(found, turns, _MISMATCH_REMEDY), keys, in_the_way=keys)
        self.turns = turns
        """All that wait."""
        self.listing = listing
        """kubelet's list at that moment."""


class ResolvedCall(msgspec.Struct, frozen=True):
    """Whose call it is, and what was known when that was decided."""

    turn: ContainerTurn
    pod: Pod
    listing: tuple[ListedPod, ...]
    view: LivePods

    @property
    def key(self) -> str:
        """The pod's key."""
        return self.turn.key


class Resolver:
    """Asks kubelet and the API server until it is clear whose call it is, or `timeout_s` is over."""

    def __init__(self, kubelet: KubeletBooks, pods: NodePods, book: Book, clock: Clock, timeout_s: float) -> None:
        self._kubelet = kubelet
        self._pods = pods
        self._book = book
        self._clock = clock
        self._timeout_s = timeout_s
        self._budget = WaitingBudget(WAITS_PER_MINUTE * timeout_s)
        self._refused: set[str] = set()

    async def find(self, ask: Ask) -> ResolvedCall:
        """Whose call this is. Raises `AllocationRefused` and `KubeletError`."""
        deadline = self._clock.monotonic() + self._timeout_s
        while True:
            found = await self._look(ask)
            if isinstance(found, ResolvedCall):
                return found
            refusal, is_final = found
            now = self._clock.monotonic()
            if is_final or now >= deadline or not self._budget.spend(STATUS_POLL_PERIOD_S, now):
                raise refusal
            await self._clock.sleep(STATUS_POLL_PERIOD_S)

    def remember_refused(self, pod_uid: str) -> None:
        """kubelet never asks again for a pod that it was refused for, though it may list it for a while."""
        self._refused.add(pod_uid)

    def forget(self, pod_uid: str) -> None:
        """The pod is gone."""
        self._refused.discard(pod_uid)

    async def _look(self, ask: Ask) -> ResolvedCall | tuple[AllocationRefused, bool]:
        """One look: kubelet's list once, then every pod that matters as the API server has it now."""
        listing = await self._kubelet.list()
        fetched: dict[str, Pod | None] = {}
        confirmed = True
        while True:
            view = self._pods.view(fetched)
            resolution = self._resolve(ask, listing, view)
            unconfirmed = self._pods_to_confirm(resolution, listing, view) - fetched.keys()
            if not unconfirmed:
                break
            now = await self._fetch(unconfirmed)
            confirmed = confirmed and now is not None
            fetched |= {key: self._pods.get(key) for key in unconfirmed} if now is None else now
        turn = resolution.turn
        pod = fetched.get(turn.key) if turn else None
        if turn is None or pod is None:
            return self._refusal(ask, resolution, listing, view, fetched, confirmed=confirmed)
        return ResolvedCall(turn, pod, listing, view)

    def _resolve(self, ask: Ask, listing: Iterable[ListedPod], view: LivePods) -> Resolution:
        """Pods that were refused before count only when there is no other candidate; so do those that run with what
        they were given: a kubelet that lost its record of devices lists them without any, and old ones ask again."""
        served = self._book.served
        fresh = {
            key: grant
            for key, grant in view.grants.items()
            if grant.pod_uid not in self._refused
            and not self._is_running(key, grant, served.get(grant.pod_uid, frozenset()))
        }
        resolution = resolve(ask, listing, fresh, served)
        return resolution if resolution.fitting else resolve(ask, listing, view.grants, served)

    def _is_running(self, key: str, grant: Grant, served: frozenset[str]) -> bool:
        pod = self._pods.get(key)
        return (
            pod is not None
            and pod.metadata.uid == grant.pod_uid
            and pod.status.phase == "Running"
            and served.issuperset(part.container for part in grant.containers)
        )

    def _pods_to_confirm(self, resolution: Resolution, listing: Iterable[ListedPod], view: LivePods) -> set[str]:
        """The pods whose state in the API decides: those whose turn it may be, also where the same is granted to each
        as far as was heard, or all that it could be; and those that hold devices of which the informer and the book
        have nothing yet."""
        if resolution.turn is not None:
            return {turn.key for turn in resolution.fitting} | self._unconfirmed_holders(listing)
        lacking = {pod.key for pod in listing if pod.lacks_devices}
        return {key for key in lacking if key in view.grants or key in view.problems or self._pods.get(key) is None}

    def _unconfirmed_holders(self, listing: Iterable[ListedPod]) -> set[str]:
        holders = {pod.key for pod in listing if any(pod.containers.values()) and self._pods.get(pod.key) is None}
        return holders and holders - {pod.grant.key for pod in self._book.pods.values()}

    async def _fetch(self, keys: set[str]) -> Mapping[str, Pod | None] | None:
        """These pods as they are now; None where the API server cannot be asked."""
        try:
            return await self._pods.fetch(sorted(keys))
        except KubeError as error:
            log.warning("Cannot confirm pods with the API server; using their last known state", error=str(error))
            return None

    def _refusal(
        self,
        ask: Ask,
        resolution: Resolution,
        listing: tuple[ListedPod, ...],
        view: LivePods,
        fetched: Mapping[str, Pod | None],
        *,
        confirmed: bool,
    ) -> tuple[AllocationRefused, bool]:
        """Why this is refused, and whether a second look could not change it.

        Where all waiting pods are gone according to the API server, kubelet asks for one of those: it was deleted
        between its Binding and its admission. Pods behind it do not have to wait for it. ``confirmed``: the API server
        was asked about all that matter.
        """
        gone = _vanished_pods(listing, fetched, view) if confirmed else ()
        problems = {
            pod.key: view.problems[pod.key]
            for pod in listing
            if pod.key in view.problems and _awaits_devices(pod, fetched.get(pod.key) or self._pods.get(pod.key))
        }
        if resolution.fitting:
            return _build_ambiguous_refusal(ask, resolution.fitting), False
        if resolution.waiting:
            return NoGrantFits(ask, resolution.waiting, listing), len(resolution.waiting) == 1 and not problems
        if gone and not problems:
            return _gone_refusal(ask, gone), True
        first = next(iter(sorted(problems)), "")
        has_invalid_grant = problems.get(first, UNGRANTED_PROBLEM) not in (UNGRANTED_PROBLEM, UNADOPTED_PROBLEM)
        pod = fetched.get(first) or self._pods.get(first)
        advised, is_ungranted = advice(pod, has_invalid_grant=has_invalid_grant), UNGRANTED_PROBLEM in problems.values()
        settled = bool(confirmed and problems and UNADOPTED_PROBLEM not in problems.values())
        may_wait = is_ungranted and pod is not None and _missed_webhook(pod)
        return _no_grant(ask, problems, advised, may_wait=may_wait), settled or is_ungranted


def _build_ambiguous_refusal(ask: Ask, turns: tuple[ContainerTurn, ...]) -> AllocationRefused:
    found = f"kubelet asks for {ask}, but several containers with different grants are waiting for those devices"
    message = _describe_turns(found, turns, "Delete the pod that kubelet has rejected")
    return AllocationRefused(RefusalReason.AMBIGUOUS, message, _keys(turns), in_the_way=_keys(turns))


def _describe_turns(found: str, turns: tuple[ContainerTurn, ...], remedy: str) -> str:
    return f"{found}: {_message_about(_keys(turns), map(str, turns))}. {remedy}"


def _message_about(keys: Sequence[str], words: Iterable[str]) -> str:
    """What is said of these pods to whichever of them kubelet asks for. Where they are of several namespaces none is
    named: the owner of one would read of the others."""
    return "; ".join(words) if _share_namespace(keys) else _pods_of_several_namespaces(keys)


def _share_namespace(keys: Sequence[str]) -> bool:
    return len({key.partition("/")[0] for key in keys}) <= 1


def _pods_of_several_namespaces(keys: Sequence[str]) -> str:
    return f"{len(set(keys))} pods in different namespaces"


def _no_grant(ask: Ask, problems: Mapping[str, str], advice: str, *, may_wait: bool) -> AllocationRefused:
    keys = sorted(problems)
    each = (_without_grant(key, problems[key]) for key in keys)
    why = (
        "; ".join(each)
        if _share_namespace(keys)
        else f"{_pods_of_several_namespaces(keys)} have no valid grant from Purser"
    )
    no_match = f"kubelet asks for {ask}, but no pod with a grant from Purser is waiting for those devices"
    message = f"{why or no_match}. {advice}"
    return AllocationRefused(RefusalReason.NO_GRANT, message, keys, may_wait=may_wait, in_the_way=keys)


def _without_grant(key: str, problem: str) -> str:
    if problem == UNGRANTED_PROBLEM:
        return f"Pod {key} has no grant from Purser"
    if problem == UNADOPTED_PROBLEM:
        return f"Pod {key} has no grant from Purser: {problem}"
    return f"Pod {key} has no valid grant from Purser: {problem}"


def _missed_webhook(pod: Pod) -> bool:
    """Whether a pod without a grant would have one, had the webhook been asked.

    Others are refused for good. Who labels pods to keep the webhook away, or names another scheduler, would else hold
    what kubelet lists for a pod that waits. A scheduler that placed a pod where Purser has nothing for it has to place
    the next one elsewhere.
    """
    is_refused = pod.metadata.annotations.get(AWAITS_GRANT_ANNOTATION) == NOT_GRANTED
    is_by_purser = pod.spec.scheduler_name in DEFAULT_SCHEDULERS
    return is_by_purser and not is_refused and not ignore_label_of(pod.metadata.labels)


def _awaits_devices(listed: ListedPod, pod: Pod | None) -> bool:
    """Whether kubelet may be asking for this pod: one that was admitted without devices has ids for all who ask."""
    if pod is None or not listed.lacks_devices:
        return listed.lacks_devices
    asked = devices_asked(pod)
    lists_none = not any(listed.containers.values())
    return any(not listed.containers.get(name, () if lists_none else ("an init container's",)) for name in asked)


def _vanished_pods(listing: Iterable[ListedPod], fetched: Mapping[str, Pod | None], view: LivePods) -> tuple[str, ...]:
    """The pods that kubelet lists without devices, and that are not on this node any more as the API server has it."""
    lacking = (pod.key for pod in listing if pod.lacks_devices)
    return tuple(sorted(key for key in lacking if key in fetched and key not in view.live))


def _gone_refusal(ask: Ask, gone: tuple[str, ...]) -> AllocationRefused:
    message = f"kubelet asks for {ask} for a pod that no longer exists on the API server: {_message_about(gone, gone)}"
    return AllocationRefused(RefusalReason.GONE, message, in_the_way=gone)


def _keys(turns: Iterable[ContainerTurn]) -> tuple[str, ...]:
    return tuple(turn.key for turn in turns)
