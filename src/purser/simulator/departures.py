"""Pods come and go in virtual time; one that finds no place waits.

Whenever pods have left, those that wait are tried again in the order in which they came. One that does not fit does not
hold up those behind it. At one moment nodes come and go, pods leave, then the waiting are tried, then others arrive.
Time ends with the last time of the list, or where the order says: who still waits then has waited until then.
"""

import heapq
import math
from collections import Counter, deque
from collections.abc import Callable
from time import perf_counter

import msgspec
import numpy as np
import numpy.typing as npt

from purser.simulator.arrivals import TICK_EVENTS, Tick
from purser.simulator.backoff import BackoffQueue
from purser.simulator.deciding import Decider, PlacedPod, Shapes, check_overcommitted, shapes_of
from purser.simulator.decision_log import SimulationLog
from purser.simulator.waiting import Waiting
from purser.simulator.workload import Order, SimWorkload

Floats = npt.NDArray[np.float64]

OnPlaced = Callable[[int, str, tuple[int, ...]], None]
"""Called for each pod that is placed: its event, the node, and its GPUs there."""


class Moments:
    """How things stood from each moment on, in arrays that are as long as they will be from the beginning.

    ``allocated`` and ``waiting`` (what waiting pods ask for) are in thousandths of a GPU, ``fragments`` as well.
    """

    def __init__(self, most: int) -> None:
        self._end = 0
        self._time_s = np.zeros(most)
        self._allocated = np.zeros(most, np.int64)
        self._waiting = np.zeros(most, np.int64)
        self._fragments = np.zeros(most)

    def add(self, time_s: float, allocated: int, waiting: int, fragments: float) -> None:
        """As it is from this time on; a second word on one moment takes the first one's place."""
        if not self._end or self._time_s[self._end - 1] != time_s:
            self._end += 1
        place = self._end - 1
        self._time_s[place], self._allocated[place] = time_s, allocated
        self._waiting[place], self._fragments[place] = waiting, fragments

    @property
    def time_s(self) -> Floats:
        """When each moment was."""
        return self._time_s[: self._end]

    @property
    def allocated(self) -> npt.NDArray[np.int64]:
        """Held by pods from then on."""
        return self._allocated[: self._end]

    @property
    def waiting(self) -> npt.NDArray[np.int64]:
        """Asked for by pods that wait from then on."""
        return self._waiting[: self._end]

    @property
    def fragments(self) -> Floats:
        """Idle, and of no use to the pods that come."""
        return self._fragments[: self._end]

    def mean(self, values: "Floats | npt.NDArray[np.int64]", end_s: float) -> float:
        """Over time, until the end."""
        spans = np.diff(np.append(self.time_s, end_s))
        total = float(spans.sum())
        return float((values * spans).sum()) / total if total else 0.0


class Departures(msgspec.Struct, frozen=True):
    """What came of one run."""

    moments: Moments
    end_s: float
    waited_s: Floats
    """By event: how long its pod waited, until the end where it never found a place."""
    placed: npt.NDArray[np.bool_]
    """By event."""
    pending_gpu_hours: float
    """What waiting pods asked for, multiplied by their waiting time."""
    unplaced: dict[str, int]
    """By class, those that found no place until the end."""
    seconds: float
    """Of decisions and what is measured of them."""


def run(
    workload: SimWorkload,
    order: Order,
    policy: str,
    learns: bool = False,
    tick: Tick = lambda _: None,
    placed: OnPlaced = lambda *_: None,
    log: SimulationLog | None = None,
    backs_off: bool = False,
) -> Departures:
    """One policy on one order with times. Raises ValueError for a policy that there is none of.

    ``backs_off``: those that wait are tried as kube-scheduler does, see `purser.simulator.backoff`.
    """
    simulation = _Simulation(workload, order, policy, learns, placed, log)
    if backs_off:
        simulation.queue = BackoffQueue()
    begun = perf_counter()
    simulation.run(tick)
    seconds = perf_counter() - begun
    check_overcommitted(simulation.decider.fleet)
    return simulation.result(seconds)


class _Simulation:
    def __init__(
        self,
        workload: SimWorkload,
        order: Order,
        policy: str,
        learns: bool,
        placed: OnPlaced,
        log: SimulationLog | None,
    ) -> None:
        if order.arrives_s is None:
            raise ValueError("an order without times cannot be simulated with departures")
        self.shapes: Shapes = shapes_of(workload)
        self.decider = Decider(workload, order, policy, learns, log)
        self._on_placed = placed
        self.arrives_s = order.arrives_s
        self.lasts_s = np.array([pod.lasts_s or 0.0 for pod in workload.pods])[order.pods]
        self.of_event = self.shapes.of_pod[order.pods]
        self.end_s = _end_of(order, self.lasts_s)
        self.moments = Moments(3 * len(order.pods) + len(order.changes) + 1)
        self.placed_s = np.full(len(order.pods), np.inf)
        self._leaving: list[tuple[float, int, PlacedPod]] = []
        self._changes = deque(sorted(order.changes, key=lambda change: change.at_s))
        self._waiting = Waiting(self.shapes, self.decider.fleet)
        self.queue: BackoffQueue | None = None
        """In which pods wait instead, where they back off."""
        self._allocated = self._waiting_milli = 0

    def run(self, tick: Tick) -> None:
        """From the first arrival to the end."""
        for event, now in enumerate(self.arrives_s.tolist()):
            self._leave_until(now)
            self._arrive(event, now)
            if not event % TICK_EVENTS:
                tick(event)
        self._leave_until(self.end_s)

    def _arrive(self, event: int, now: float) -> None:
        number = int(self.of_event[event])
        self.decider.arrived(self.shapes.distinct[number])
        if not self._try_to_place(event, number, now):
            self._waiting_milli += int(self.shapes.demand_milli[number])
        self._note(now)

    def _try_to_place(self, event: int, number: int, now: float) -> bool:
        """Else it waits."""
        if self.queue is not None:
            return self.queue.try_or_wait(event, number, now, lambda event, number: self._try(event, number, now))
        if not self._waiting.has(number) and self._try(event, number, now):
            return True
        self._waiting.add(event, number)
        return False

    def _leave_until(self, time_s: float) -> None:
        """Everybody who leaves until then leaves, nodes come and go, and at each moment the waiting are tried."""
        while (now := self._next_moment()) <= time_s:
            freed = self._changed(now)
            while self._leaving and self._leaving[0][0] == now:
                placement = heapq.heappop(self._leaving)[2]
                self.decider.release(placement)
                self._allocated -= placement.milli
                freed.add(placement.row)
            waiting_milli = self._waiting_milli
            self._retry(freed, now)
            if freed or self._waiting_milli != waiting_milli:
                self._note(now)

    def _retry(self, freed: set[int], now: float) -> None:
        if self.queue is None:
            self._waiting.retry(freed, lambda event, number: self._try_again(event, number, now))
            return
        if freed:
            self.queue.wake()
        self.queue.retry(now, lambda event, number: self._try_again(event, number, now))

    def _next_moment(self) -> float:
        leaves = self._leaving[0][0] if self._leaving else math.inf
        due = self.queue.next_s if self.queue is not None else math.inf
        return min(leaves, due, self._changes[0].at_s if self._changes else math.inf)

    def _changed(self, now: float) -> set[int]:
        """The rows of nodes that come at this moment."""
        opened = set()
        while self._changes and self._changes[0].at_s == now:
            change = self._changes.popleft()
            row = self.decider.open_node(change.node, is_open=change.is_open)
            if change.is_open:
                opened.add(row)
        return opened

    def _try_again(self, event: int, number: int, now: float) -> bool:
        placed = self._try(event, number, now)
        if placed:
            self._waiting_milli -= int(self.shapes.demand_milli[number])
        return placed

    def _try(self, event: int, number: int, now: float) -> bool:
        placement = self.decider.place(self.shapes.distinct[number])
        if placement is None:
            return False
        self._allocated += placement.milli
        self.placed_s[event] = now
        self._on_placed(event, self.decider.fleet.names[placement.row], placement.gpus)
        # Of pods that leave at one moment the order is that of their arrival: nothing else may decide it.
        heapq.heappush(self._leaving, (now + float(self.lasts_s[event]), event, placement))
        return True

    def _note(self, now: float) -> None:
        self.moments.add(now, self._allocated, self._waiting_milli, self.decider.fragments.total)

    def result(self, seconds: float) -> Departures:
        """The results of the run."""
        placed = np.isfinite(self.placed_s)
        waited_s = np.minimum(self.placed_s, self.end_s) - self.arrives_s
        milli = self.shapes.demand_milli[self.of_event]
        classes = Counter(self.shapes.classes[self.of_event[event]] for event in (~placed).nonzero()[0])
        pending = float((waited_s * milli).sum()) / 1000 / 3600
        return Departures(self.moments, self.end_s, waited_s, placed, pending, dict(classes.most_common()), seconds)


def _end_of(order: Order, lasts_s: Floats) -> float:
    """The one that is said, else the last time of the list."""
    assert order.arrives_s is not None
    last = float(order.arrives_s[-1])
    return max(last, float((order.arrives_s + lasts_s).max())) if order.end_s is None else order.end_s
