"""The cheapest steps: first each site's pods straight away, then best first (A*) what could be cheaper.

The first search takes room by room, then what is cheap where each pod keeps the place that it would find now, then what
is cheap at the least.

What the pods on a room cost at least is never more than what emptying it costs, so that the first complete plan that
the second search takes up is the cheapest. Pods elsewhere may be asked to leave as well, for one of a room to land in
their place; no pod is evicted twice.
"""

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice

import msgspec

from purser.core.placement import Evaluator
from purser.core.placement.shape import largest_shape
from purser.core.planning.model import (
    MOVED_POD_PRICE,
    WAITING_POD_PRICE,
    Occupancy,
    PlanStep,
    Room,
    RoomPlan,
    RoomRequest,
)
from purser.core.planning.rehearsal import Rehearsal
from purser.core.planning.rooms import Site, choices_by_price, evictable_pod, sites
from purser.core.policy.settings import DEFAULT_POLICIES, PolicySettings

MAX_DECISIONS = 4000
"""Of the scheduler, that a search asks for: some seconds on a thousand nodes."""

_GREEDY_SHARE = 0.5
"""Of these, for the first search."""

MAX_CHOICES = 10_000
"""Of rooms, that one search looks at: where no pod of them may go, they cost no decision."""

_MAX_TRIED_SITES = 8
"""Rooms beside those that were taken before, in each of two orders."""

_PLACES_SHARE = 0.1
"""Of these, for which pods have places now."""


def plan(
    occupancy: Occupancy,
    wish: RoomRequest,
    policy: PolicySettings = DEFAULT_POLICIES,
    max_decisions: int = MAX_DECISIONS,
) -> RoomPlan | None:
    """The cheapest plan that was found; None where there is none, or none within the limit.

    ``policy`` is the scheduler's: it says where replacements go. The fleet is changed meanwhile, and left as it was.
    """
    rehearsal = Rehearsal(occupancy, Evaluator(occupancy.fleet, policy))
    try:
        return _Search(occupancy, wish, rehearsal, max_decisions).run()
    finally:
        rehearsal.close()


def rehearse(
    occupancy: Occupancy, rooms: Sequence[Room], uids: Iterable[str], policy: PolicySettings = DEFAULT_POLICIES
) -> tuple[PlanStep, ...]:
    """What comes of evicting these pods in this order now: fewer steps than pods where one of them may not be evicted.

    A replacement without a place keeps its budget from allowing the next eviction, so the last step tells why.
    """
    rehearsal = Rehearsal(occupancy, Evaluator(occupancy.fleet, policy))
    steps: list[PlanStep] = []
    try:
        rehearsal.restore_state(rooms, ())
        for uid in uids:
            step = rehearsal.evict(uid) if evictable_pod(occupancy, uid) else None
            if step is None:
                break
            steps.append(step)
        return tuple(steps)
    finally:
        rehearsal.close()


class _PartialPlan(msgspec.Struct, frozen=True):
    """A beginning of a plan that is to be continued."""

    chosen: tuple[Site, ...]
    steps: tuple[PlanStep, ...] = ()
    elsewhere: bool = False
    """Whether by pods that hold nothing of the rooms."""


class _Search:
    def __init__(self, occupancy: Occupancy, wish: RoomRequest, rehearsal: Rehearsal, max_decisions: int) -> None:
        self._pods = occupancy.pods
        self._wish = wish
        self._rehearsal = rehearsal
        self._max_decisions = max_decisions
        self._sites = sites(occupancy, wish.gpus)
        self._movable = sorted(
            (uid for uid in occupancy.fleet.ledger.uids() if evictable_pod(occupancy, uid)), key=self._size_key
        )
        self._best: tuple[PlanStep, ...] = ()
        self._chosen: tuple[Site, ...] = ()
        self._cost: float = math.inf

    def run(self) -> RoomPlan | None:
        self._greedy_plan()
        is_cheapest = self._cost <= self._sites.complete_below and self._search_best_first()
        if math.isinf(self._cost):
            return None
        return RoomPlan(tuple(site.room for site in self._chosen), self._best, is_cheapest)

    # --- each room's own pods, the largest first

    def _greedy_plan(self) -> None:
        likely = self._sites_by_likely_cost()
        self._room_by_room(likely)
        for part, found in ((_GREEDY_SHARE / 2, likely), (_GREEDY_SHARE, self._sites.by_price)):
            self._try_choices(choices_by_price(found, self._wish), self._max_decisions * part)

    def _try_choices(self, choices: Iterator[tuple[int, tuple[Site, ...]]], most: float) -> None:
        for least, chosen in islice(choices, MAX_CHOICES):
            is_over = self._rehearsal.decisions >= most
            if least >= self._cost or (is_over and not math.isinf(self._cost)):
                return
            if self._rehearsal.decisions >= self._max_decisions:
                return
            self._keep(self._empty(chosen, self._cost), chosen)

    def _room_by_room(self, likely: Sequence[Site]) -> None:
        """The cheapest room, then the one that is the cheapest beside it, and so on: of many rooms those that are cheap
        by themselves take each other's places."""
        chosen: tuple[Site, ...] = ()
        steps: tuple[PlanStep, ...] | None = None
        while len(chosen) < self._wish.nodes:
            nodes = {site.room.node for site in chosen}
            before, steps, cost = chosen, None, math.inf
            for found in (likely, self._sites.by_price):
                for site in islice((each for each in found if each.room.node not in nodes), _MAX_TRIED_SITES):
                    tried = self._empty((*before, site), cost)
                    if tried is not None and _cost(tried) < cost:
                        chosen, steps, cost = (*before, site), tried, _cost(tried)
                    if self._rehearsal.decisions >= self._max_decisions * _GREEDY_SHARE:
                        break
            if steps is None:
                return
        self._keep(steps, chosen)

    def _keep(self, steps: tuple[PlanStep, ...] | None, chosen: tuple[Site, ...]) -> None:
        if steps is not None and _cost(steps) < self._cost:
            self._best, self._chosen, self._cost = steps, chosen, _cost(steps)

    def _sites_by_likely_cost(self) -> list[Site]:
        """The sites by what they would cost if no pod took another one's place."""
        self._rehearsal.restore_state((), ())
        places: dict[object, bool] = {}
        prices: dict[str, int] = {}
        for uid in (uid for site in self._sites.by_price for uid in sorted(site.uids)):
            if uid in prices:
                continue
            pod, is_over = self._pods[uid], self._rehearsal.decisions >= int(self._max_decisions * _PLACES_SHARE)
            key = largest_shape(pod.request), len(pod.request.containers), pod.nodes
            if pod.returns and key not in places and not is_over:
                places[key] = self._rehearsal.has_place(uid)
            prices[uid] = pod.least_price if not pod.returns or places.get(key, True) else WAITING_POD_PRICE
        found = [
            msgspec.structs.replace(site, price=sum(map(prices.__getitem__, site.uids)))
            for site in self._sites.by_price
        ]
        return sorted(found, key=lambda site: (site.price, len(site.uids), site.room))

    def _empty(self, chosen: tuple[Site, ...], below: float) -> tuple[PlanStep, ...] | None:
        """The steps, where they cost less than that."""
        self._rehearsal.restore_state((site.room for site in chosen), ())
        waiting = sorted(_uids(chosen), key=self._size_key, reverse=True)
        steps: list[PlanStep] = []
        while waiting:
            later = []
            for uid in waiting:
                step = self._rehearsal.evict(uid)
                if step is None:
                    later.append(uid)
                    continue
                steps.append(step)
                if (
                    _cost(steps) + self._least_price(waiting[waiting.index(uid) + 1 :]) + self._least_price(later)
                    >= below
                ):
                    return None
            if later == waiting:
                return None
            waiting = later
        return tuple(steps)

    # --- best first

    def _search_best_first(self) -> bool:
        """Whether nothing cheaper is left."""
        choices = choices_by_price(self._sites.by_price, self._wish)
        following = next(choices, None)
        tie_breaker = count()
        heap: list[tuple[float, int, int, _PartialPlan]] = []
        seen: set[tuple[tuple[Site, ...], frozenset[PlanStep], bool]] = set()
        for _ in range(MAX_CHOICES):
            if following is not None and following[0] >= self._cost:
                following = None
            if following is not None and (not heap or following[0] <= heap[0][0]):
                heapq.heappush(heap, (following[0], 0, next(tie_breaker), _PartialPlan(following[1])))
                following = next(choices, None)
            if not heap or heap[0][0] >= self._cost:
                return True
            least, _, _, taken = heapq.heappop(heap)
            if (key := (taken.chosen, frozenset(taken.steps), taken.elsewhere)) in seen:
                continue
            seen.add(key)
            if self._rehearsal.decisions >= self._max_decisions:
                return False
            self._restore(taken)
            left = self._rehearsal.holders(site.room for site in taken.chosen)
            if not left:
                self._best, self._chosen, self._cost = taken.steps, taken.chosen, least
                continue
            for uid in self._next(taken, left):
                self._restore(taken)
                step = self._rehearsal.evict(uid)
                if step is not None:
                    steps = (*taken.steps, step)
                    bound = _cost(steps) + self._least_price(left - {uid})
                    heapq.heappush(heap, (bound, -len(steps), next(tie_breaker), _PartialPlan(taken.chosen, steps)))
            if not taken.elsewhere:
                others = msgspec.structs.replace(taken, elsewhere=True)
                heapq.heappush(heap, (least + MOVED_POD_PRICE, -len(taken.steps), next(tie_breaker), others))
        return False

    def _restore(self, taken: _PartialPlan) -> None:
        self._rehearsal.restore_state((site.room for site in taken.chosen), taken.steps)

    def _next(self, taken: _PartialPlan, left: set[str]) -> Iterable[str]:
        if not taken.elsewhere:
            return sorted(left, key=self._size_key, reverse=True)
        gone = {step.uid for step in taken.steps}
        return (uid for uid in self._movable if uid not in left and uid not in gone)

    def _least_price(self, uids: Iterable[str]) -> int:
        return sum(self._pods[uid].least_price for uid in uids)

    def _size_key(self, uid: str) -> tuple[int, int, str]:
        asked = [each.devices for each in self._pods[uid].request.containers]
        memory = max(((each.memory_mib or 0) for each in asked), default=0)
        return sum(each.count for each in asked), memory, uid


def _cost(steps: Sequence[PlanStep]) -> int:
    return sum(step.price for step in steps)


def _uids(chosen: Iterable[Site]) -> set[str]:
    return {uid for site in chosen for uid in site.uids}
