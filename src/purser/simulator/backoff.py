"""Pods that wait for a place as in kube-scheduler's queue: who was refused is not tried again before its back-off ends.

So a pod that came later may take the room that one in back-off waits for, and who needs the most waits the longest. The
simulator's own queue (`purser.simulator.waiting`) is the fair one; this one is how a cluster's past went.
"""

import heapq
import math
from collections.abc import Callable
from itertools import count

INITIAL_BACKOFF_S = 1.0
MAX_BACKOFF_S = 10.0
"""Of kube-scheduler: doubled with each attempt (``podInitialBackoffSeconds``, ``podMaxBackoffSeconds``)."""
_MAX_DOUBLINGS = 4
"""After as many it is at its maximum."""

Place = Callable[[int, int], bool]
"""Tries a pod, by event and number of its shape; whether it has a place now."""


class BackoffQueue:
    """Pods by event, in the order in which each was last tried (kube-scheduler's PrioritySort, without priorities)."""

    def __init__(self) -> None:
        self._number: dict[int, int] = {}
        """By event, the number of its shape."""
        self._attempts: dict[int, int] = {}
        self._tried_s: dict[int, float] = {}
        self._unschedulable: dict[int, None] = {}
        """Those that nothing has woken since they were tried, in that order."""
        self._backing_off: list[tuple[float, int, int]] = []
        """When each is due, the ticket of its last attempt, and the event."""
        self._ticket: dict[int, int] = {}
        self._tickets = count()

    @property
    def next_s(self) -> float:
        """When the next one is due."""
        return self._backing_off[0][0] if self._backing_off else math.inf

    def try_or_wait(self, event: int, number: int, now: float, place: Place) -> bool:
        """It is tried at once, whoever else waits; whether it has a place."""
        if place(event, number):
            return True
        self._number[event] = number
        self._attempts[event] = 0
        self._refused(event, now)
        return False

    def wake(self) -> None:
        """Resources were given back: each is due when its back-off has ended."""
        for event in self._unschedulable:
            wait_s = min(MAX_BACKOFF_S, INITIAL_BACKOFF_S * 2 ** min(self._attempts[event] - 1, _MAX_DOUBLINGS))
            heapq.heappush(self._backing_off, (self._tried_s[event] + wait_s, self._ticket[event], event))
        self._unschedulable.clear()

    def retry(self, now: float, place: Place) -> None:
        """Try those that are due."""
        due = []
        while self._backing_off and self._backing_off[0][0] <= now:
            due.append(heapq.heappop(self._backing_off)[1:])
        hopeless: set[int] = set()
        for _, event in sorted(due):
            number = self._number[event]
            if number not in hopeless and place(event, number):
                self._forget(event)
                continue
            hopeless.add(number)  # nor will another one of this shape, behind others that take more of the same
            self._refused(event, now)

    def _refused(self, event: int, now: float) -> None:
        self._attempts[event] += 1
        self._tried_s[event] = now
        self._ticket[event] = next(self._tickets)
        self._unschedulable[event] = None

    def _forget(self, event: int) -> None:
        for table in (self._number, self._attempts, self._tried_s, self._ticket):
            del table[event]
