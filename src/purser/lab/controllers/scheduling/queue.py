"""Who is tried when: kube-scheduler's active queue, its back-off queue, and the pods that nothing fits."""

import asyncio
import heapq
from itertools import count

from purser.kube.clock import Clock
from purser.kube.racing import until

INITIAL_BACKOFF_S = 1.0
MAX_BACKOFF_S = 10.0
UNSCHEDULABLE_FLUSH_PERIOD_S = 300.0
"""Pods that no event woke are tried again after this long (``podMaxInUnschedulablePodsDuration``)."""


class SchedulingQueue:
    """Pods by uid. Higher priority first, then those first that came, or were put back, first.

    As kube-scheduler has it (its PrioritySort goes by when a pod was last put into the queue): pods that are tried
    again keep their order, and when their back-off ended decides nothing between pods that are due together.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ticket = count()
        self._active: list[tuple[int, int, str]] = []
        self._waiting: dict[str, float] = {}
        """By uid: when a pod in back-off is due."""
        self._unschedulable: dict[str, float] = {}
        """By uid: when it is flushed."""
        self._attempts: dict[str, int] = {}
        self._priority: dict[str, int] = {}
        self._place: dict[str, int] = {}
        """By uid: the ticket of when it came or was put back."""
        self._moves = 0
        self._changed = asyncio.Event()

    def add(self, uid: str, priority: int) -> None:
        """A new pod."""
        if uid not in self._priority:
            self._priority[uid] = priority
            self._attempts[uid] = 0
            self._place[uid] = next(self._ticket)
            self._activate(uid)

    def remove(self, uid: str) -> None:
        """The pod is bound or gone."""
        for table in (self._priority, self._attempts, self._place, self._waiting, self._unschedulable):
            table.pop(uid, None)

    def resting(self) -> int:
        """How many pods were tried, did not fit, and are not due again yet."""
        self._activate_due()
        return len(self._waiting) + len(self._unschedulable)

    async def pop(self) -> tuple[str, int]:
        """The next pod, and a mark to hand back when it did not fit."""
        while True:
            self._activate_due()
            while self._active:
                uid = heapq.heappop(self._active)[2]
                if uid in self._priority:
                    self._attempts[uid] += 1
                    return uid, self._moves
            await self._wait()

    def put_back(self, uid: str, mark: int, *, is_error: bool = False) -> None:
        """The pod did not fit. It waits for an event, or for its back-off when one came meanwhile or on an error."""
        if uid not in self._priority:
            return
        self._place[uid] = next(self._ticket)
        if is_error or mark != self._moves:
            self._waiting[uid] = self._clock.monotonic() + self._backoff(uid)
        else:
            self._unschedulable[uid] = self._clock.monotonic() + UNSCHEDULABLE_FLUSH_PERIOD_S
        self._changed.set()

    def move_all(self) -> None:
        """Something changed in the cluster that may let waiting pods in."""
        self._moves += 1
        for uid, flush_at in self._unschedulable.items():
            since = flush_at - UNSCHEDULABLE_FLUSH_PERIOD_S
            self._waiting[uid] = since + self._backoff(uid)
        self._unschedulable = {}
        self._changed.set()

    def _backoff(self, uid: str) -> float:
        return float(min(MAX_BACKOFF_S, INITIAL_BACKOFF_S * 2 ** (self._attempts[uid] - 1)))

    def _activate_due(self) -> None:
        now = self._clock.monotonic()
        for table in (self._waiting, self._unschedulable):
            for uid in [uid for uid, due in table.items() if due <= now]:
                del table[uid]
                self._activate(uid)

    def _activate(self, uid: str) -> None:
        heapq.heappush(self._active, (-self._priority[uid], self._place[uid], uid))
        self._changed.set()

    async def _wait(self) -> None:
        self._changed.clear()
        due = min([*self._waiting.values(), *self._unschedulable.values()], default=None)
        if due is None:
            await self._changed.wait()
        else:
            await until(self._clock.sleep(max(0.0, due - self._clock.monotonic())), self._changed.wait())
