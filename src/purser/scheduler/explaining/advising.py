"""Tells pods that wait what change of their own would make them fit now: in an event, and at the end of what
kube-scheduler is told when it next asks about the pod, which is the pod's condition ``PodScheduled`` then.

Both, because neither is enough. kube-scheduler asks again after minutes, where nothing changes; and its own event keeps
the words of the first refusal as long as others follow within six minutes (client-go's ``tools/events`` tells events
apart by everything but the note).

The changes are those that `purser why` offers of the pod's own words for devices, found by the same search; others are
not for its author to make, or name pods in other namespaces. kube-scheduler's questions go first: between two verdicts
the loop answers them, verdicts are few in a second, and pods that are refused again are looked at again once a minute
at most. What is known from before is said at the next refusal only if it still holds on one of the nodes for which it
was found; if not, it is forgotten, and looked for again after ten seconds.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Never

import msgspec

from purser.adapters.pods import ref_of_request
from purser.core.decoding import brief
from purser.core.model import PodRequest
from purser.core.placement import Evaluator
from purser.core.state import ADVICE
from purser.kube.events import EventRecorder
from purser.kube.failures import ObjectFailures
from purser.kube.objects import Pod
from purser.kube.pods import is_terminal
from purser.kube.resources import PODS, ref_of
from purser.scheduler.cache import ClusterCache
from purser.scheduler.explaining.changes import Suggestion
from purser.scheduler.explaining.last_message import MAX_ADVICE
from purser.scheduler.explaining.live_judge import LiveJudge
from purser.scheduler.explaining.suggesting import device_request_changes
from purser.scheduler.explaining.trial import PodTrial
from purser.scheduler.placement import Feasibility, Reservations
from purser.scheduler.reasons import SchedulerReason
from purser.scheduler.waiting import WaitingPods

FIRST_ADVICE_DELAY_S = 10.0
"""From a pod's first refusal: most pods are placed before."""
ADVICE_REFRESH_INTERVAL_S = 60.0
"""From one search to the next, of a pod that was refused again meanwhile."""
VERDICT_PERIOD_S = 0.05
"""From one verdict to the next at least."""
_REST_FACTOR = 9.0
"""Times as long as a verdict took: a tenth of the time at most."""
_LOOK_PERIOD_S = 1.0


class _Way(msgspec.Struct, frozen=True):
    """A change by which a pod fitted."""

    text: str
    request: PodRequest
    """With the change."""
    nodes: tuple[str, ...]
    """Some that it fitted."""


class _RefusedPod(msgspec.Struct, frozen=True):
    """A pod that fits nowhere."""

    request: PodRequest
    node_names: list[str]
    """The nodes that kube-scheduler asked about."""
    due: float
    """When it may be looked at, in monotonic seconds."""
    is_new: bool = True
    """Whether it was refused since it was looked at: if not, nothing has changed that kube-scheduler knows of."""
    ways: tuple[_Way, ...] = ()
    """By which changes it fits, as far as is known."""
    told: str = ""
    """What the last search found, as far as an event has it; empty: nothing."""


class PodAdvisor:
    """The pods that fitted nowhere when kube-scheduler last asked, and what would help them."""

    def __init__(
        self,
        cache: ClusterCache,
        evaluator: Evaluator,
        reservations: Reservations,
        events: EventRecorder,
        failures: ObjectFailures,
        is_active: Callable[[], bool],
        on_advice: Callable[[str, str], None] = lambda uid, ways: None,
    ) -> None:
        """``is_active``: whether this replica is the one that places pods; ``on_advice``: called with a pod's uid and
        by which changes it fits, or an empty text, whenever that was looked for."""
        self._on_advice = on_advice
        self._cache, self._events, self._failures, self._is_active = cache, events, failures, is_active
        self._evaluator = evaluator.for_trials()
        self._feasibility = Feasibility(cache, self._evaluator, reservations)
        self._waiting: WaitingPods[_RefusedPod] = WaitingPods()

    def refused(self, request: PodRequest, node_names: list[str]) -> None:
        """The pod fits nowhere."""
        known = self._waiting.get(request.uid)
        due = self._cache.clock.monotonic() + FIRST_ADVICE_DELAY_S if known is None else known.due
        ways, told = ((), "") if known is None else (known.ways, known.told)
        self._waiting.put(_RefusedPod(request, node_names, due, ways=ways, told=told))

    def with_advice(self, pod_uid: str, why: str, node_names: Sequence[str], most: int) -> str:
        """Why a pod is refused, followed by what would help it, where that is known and still does on one of these
        nodes; in so many characters at most."""
        known = self._waiting.get(pod_uid)
        if known is None or not known.ways:
            return why
        ways = tuple(way for way in known.ways if self._holds(way, node_names))
        if ways != known.ways:
            due = min(known.due, self._cache.clock.monotonic() + FIRST_ADVICE_DELAY_S)
            self._waiting.renew(msgspec.structs.replace(known, ways=ways, due=due))
        if not ways:
            return why
        advice = f"{ADVICE}{_text(ways)}"
        return (why if len(why) + len(advice) <= most else brief(why, most - len(advice))) + advice

    def ways(self, pod_uid: str) -> str:
        """By which changes the pod fitted when it was last looked at, as the end of a sentence; empty: by none."""
        known = self._waiting.get(pod_uid)
        return "" if known is None else _text(known.ways)

    def _holds(self, way: _Way, node_names: Sequence[str]) -> bool:
        """On one of the nodes where it did, of those that kube-scheduler asks about."""
        nodes = [name for name in way.nodes if name in node_names]
        return bool(self._feasibility.evaluate(way.request, nodes, scored=False).fits)

    def node_names(self, pod_uid: str) -> list[str] | None:
        """The nodes that kube-scheduler asked about last; None: it was not refused."""
        known = self._waiting.get(pod_uid)
        return None if known is None else known.node_names

    def forget(self, pod_uid: str) -> None:
        """The pod fits, or is gone."""
        self._waiting.pop(pod_uid)

    def clear(self) -> None:
        """Another replica is asked from now on."""
        self._waiting.clear()

    async def run(self) -> Never:
        """Look for what would help, until cancelled."""
        while True:
            await self._cache.clock.sleep(_LOOK_PERIOD_S)
            await self.look()

    async def look(self) -> None:
        """Once for each pod that is due: the most important first, then those that wait longest."""
        for refused in self._waiting.by_importance():
            is_due = refused.is_new and refused.due <= self._cache.clock.monotonic()
            if is_due and refused in self._waiting and self._is_active():
                await self._advise(refused)

    async def _advise(self, refused: _RefusedPod) -> None:
        uid = refused.request.uid
        pod = self._cache.pod_by_uid(uid)
        if pod is None or pod.spec.node_name or pod.metadata.deletion_timestamp or is_terminal(pod):
            self.forget(uid)
            return
        ways: tuple[_Way, ...] = ()
        with self._failures.guard(PODS, ref_of_request(refused.request)):
            ways = _first_ways(await self._try_changes(pod, refused.node_names))
        known = self._waiting.get(uid)
        if known is None or not self._is_active():
            return
        due = self._cache.clock.monotonic() + ADVICE_REFRESH_INTERVAL_S
        text = _text(ways)
        self._waiting.renew(msgspec.structs.replace(known, due=due, is_new=known is not refused, ways=ways, told=text))
        self._on_advice(uid, text)
        if text and text != known.told:
            message = f"There is room now if {text}"
            self._events.event(ref_of(PODS, pod), SchedulerReason.FITS_IF_CHANGED, message)

    async def _try_changes(self, pod: Pod, node_names: Sequence[str]) -> list[tuple[Suggestion, _Way]]:
        judge = LiveJudge(self._cache, self._evaluator, self._feasibility, node_names)
        began = self._cache.clock.monotonic()
        refused = judge.judge(pod)
        began = await self._pause(began)
        found: list[tuple[Suggestion, _Way]] = []
        if refused.fits or refused.objection:
            return found
        for each in device_request_changes(PodTrial(judge, pod, refused)):
            if each is not None and judge.last_request is not None:
                found.append((each, _Way(each.text, judge.last_request, each.examples)))
            began = await self._pause(began)
            if self._waiting.get(pod.metadata.uid) is None:  # it fits, or another replica is asked from now on
                return []
        return found

    async def _pause(self, began: float) -> float:
        """After a verdict that was asked for then; when the next one is."""
        clock = self._cache.clock
        await clock.sleep(max(VERDICT_PERIOD_S, _REST_FACTOR * (clock.monotonic() - began)))
        return clock.monotonic()


def _first_ways(found: Iterable[tuple[Suggestion, _Way]]) -> tuple[_Way, ...]:
    """The first of each kind: of the amounts, and of the annotations."""
    by_kind: dict[str, _Way] = {}
    for each, way in found:
        by_kind.setdefault(each.kind, way)
    return tuple(by_kind.values())


def _text(ways: Iterable[_Way]) -> str:
    """As the end of a sentence; empty: there are none."""
    return brief(", or if ".join(way.text for way in ways), MAX_ADVICE)
