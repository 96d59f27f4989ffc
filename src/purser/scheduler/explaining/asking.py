"""Why one pod waits, and what would make it fit, when somebody asks the running scheduler.

kube-scheduler's questions go first: between two verdicts the loop rests for half as long as the last one took, and
one pod is searched for at a time. After a search the next waits for twice as long as that one took, so whoever asks
cannot take more than a fourth of the scheduler's time. A search that takes long ends with what was found so far, and
one whose time is over before its turn does not begin.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from purser.adapters.eligibility import other_scheduler
from purser.core.explaining.grouping import ReasonCount
from purser.core.placement import Evaluator
from purser.kube.objects import Pod
from purser.scheduler.cache import ClusterCache
from purser.scheduler.explaining.changes import Suggestion
from purser.scheduler.explaining.explainer import BEING_DELETED
from purser.scheduler.explaining.judging import Judgement, reason_counts
from purser.scheduler.explaining.last_message import last_message
from purser.scheduler.explaining.live_judge import LiveJudge
from purser.scheduler.explaining.suggesting import device_request_changes
from purser.scheduler.explaining.trial import PodTrial
from purser.scheduler.gates import gated_message
from purser.scheduler.placement import Feasibility, Reservations

SEARCH_TIMEOUT_S = 2.0
"""Of one search, the time included for which it waits for others."""
_REST_FACTOR = 0.5
"""Times as long as a verdict took."""
_PAUSE_FACTOR = 2.0
"""Times as long as a search took, until the next."""


class SearchedPod(msgspec.Struct, frozen=True):
    """What was found of a pod that waits. Its reasons name no other pods."""

    nodes: int = 0
    """How many were asked."""
    fits: tuple[str, ...] = ()
    """Those that would take it now."""
    objection: str = ""
    """Why it is placed nowhere, whatever the nodes, in a sentence without its end; empty: nothing is in the way."""
    reasons: tuple[ReasonCount, ...] = ()
    further_reasons: tuple[ReasonCount, ...] = ()
    """Of nodes that kube-scheduler's filters reject: all but the first, Purser's own included. Not looked for where a
    node takes the pod."""
    suggestions: tuple[Suggestion, ...] = ()
    last_message: str = ""
    """What its scheduler said last, by the pod's condition PodScheduled."""
    is_cut_short: bool = False
    """Whether the time was over before all changes were tried."""


class NoTurnError(Exception):
    """The time of a search is over before its turn comes."""

    def __init__(self, wait_s: float) -> None:
        """``wait_s``: until the next search may begin."""
        super().__init__(f"earlier searches will take more than {SEARCH_TIMEOUT_S:g} s")
        self.wait_s = wait_s


class PodSearch:
    """Asks the nodes that kube-scheduler asked about last, else all nodes with GPUs; changes nothing."""

    def __init__(
        self,
        cache: ClusterCache,
        evaluator: Evaluator,
        reservations: Reservations,
        asked_nodes: Callable[[str], Sequence[str] | None],
    ) -> None:
        """``asked_nodes``: by a pod's uid, those that kube-scheduler asked about; None: it was not refused."""
        self._cache, self._asked_nodes = cache, asked_nodes
        self._evaluator = evaluator.for_trials()
        self._feasibility = Feasibility(cache, self._evaluator, reservations)
        self._one_by_one = asyncio.Lock()
        self._next_at = 0.0
        """When the next search may begin, in monotonic seconds."""

    async def search(self, pod: Pod, *, names_taints: bool = True) -> SearchedPod:
        """Why a pod that is on no node is on none, and what of its devices it could ask for instead. ``names_taints``:
        who asks may list nodes. Raises `NoTurnError`."""
        found = await self._judged(pod, names_taints=names_taints)
        return msgspec.structs.replace(found, last_message=last_message(pod))

    async def _judged(self, pod: Pod, *, names_taints: bool) -> SearchedPod:
        if pod.metadata.deletion_timestamp:
            return SearchedPod(objection=BEING_DELETED)
        if pod.spec.scheduling_gates:
            return SearchedPod(objection=gated_message(pod))
        if objection := other_scheduler(pod, self._cache.scheduler_name):
            return SearchedPod(objection=objection)
        clock = self._cache.clock
        deadline = clock.monotonic() + SEARCH_TIMEOUT_S
        async with self._one_by_one:
            began = await self._turn(deadline)
            try:
                return await self._search(pod, deadline, names_taints=names_taints)
            finally:
                now = clock.monotonic()
                self._next_at = now + _PAUSE_FACTOR * (now - began)

    async def _turn(self, deadline: float) -> float:
        """Once the pause after the last search is over, when that is. Raises `NoTurnError`, at once where it lasts
        longer than the deadline."""
        clock = self._cache.clock
        now = clock.monotonic()
        if max(now, self._next_at) < deadline:
            await clock.sleep(max(0.0, self._next_at - now))
            now = clock.monotonic()
        if max(now, self._next_at) >= deadline:
            raise NoTurnError(max(0.0, self._next_at - now))
        return now

    async def _search(self, pod: Pod, deadline: float, *, names_taints: bool) -> SearchedPod:
        asked = self._asked_nodes(pod.metadata.uid)
        names = self._cache.fleet.names() if asked is None else asked
        judge = LiveJudge(self._cache, self._evaluator, self._feasibility, names)
        began = self._cache.clock.monotonic()
        judge.ask_filters(pod)
        began = await self._rest(began)
        refused = judge.judge(pod)
        began = await self._rest(began)
        reasons = self._reasons(refused, names_taints=names_taints)
        found = SearchedPod(len(names), refused.fits, refused.objection, reasons)
        if refused.fits or refused.objection:
            return found
        began = await self._rest(began)
        if refused.rejections:
            further = self._reasons(judge.judge_further(pod, refused), names_taints=names_taints)
            found = msgspec.structs.replace(found, further_reasons=further)
            began = await self._rest(began)
        suggestions: list[Suggestion] = []
        for each in device_request_changes(PodTrial(judge, pod, refused)):
            if each is not None:
                suggestions.append(each)
            began = await self._rest(began)
            if began >= deadline:
                return msgspec.structs.replace(found, suggestions=tuple(suggestions), is_cut_short=True)
        return msgspec.structs.replace(found, suggestions=tuple(suggestions))

    def _reasons(self, refused: Judgement, *, names_taints: bool) -> tuple[ReasonCount, ...]:
        return reason_counts(
            self._with_quota(refused),
            self._cache.fleet,
            self._feasibility.policy,
            names_pods=False,
            names_taints=names_taints,
        )

    def _with_quota(self, refused: Judgement) -> Judgement:
        if refused.request is None or not refused.refusals:
            return refused
        quota = self._feasibility.exceeded_quota(refused.request, refused.refusals)
        return msgspec.structs.replace(refused, quota=quota)

    async def _rest(self, began: float) -> float:
        """After work that began then; when the next begins."""
        clock = self._cache.clock
        await clock.sleep(_REST_FACTOR * (clock.monotonic() - began))
        return clock.monotonic()
