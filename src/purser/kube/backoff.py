"""How long to wait before the next attempt."""

import random

from purser.kube.clock import Clock

MAX_UNDO_INTERVAL_S = 60.0
"""A write that has to be repeated within this time was undone by another client, which may do so again."""

TOLERATED_UNDOS = 5
"""Failures in a row that are normal: a kubelet that starts, a user who experiments."""


class Backoff:
    """Jittered exponential delays: each twice the last up to a cap, of which a random half to whole is taken.

    The jitter keeps a fleet of agents that lost the same API server from coming back in one instant.
    """

    def __init__(self, initial_s: float, cap_s: float, rng: random.Random | None = None):
        self.initial_s = initial_s
        self.cap_s = cap_s
        self._rng = rng or random.Random()  # spreads load, guards no secret
        self._failures = 0

    def next(self) -> float:
        """The delay in seconds before the coming attempt."""
        delay = exponential_delay(self.initial_s, self.cap_s, self._failures)
        self._failures += 1
        return delay * self._rng.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Start from the shortest delay again: something worked."""
        self._failures = 0


class WritePace:
    """Pauses after writes to one object: short, and growing while the same write is repeated because another client
    undoes it. Otherwise two clients that disagree would write without end, as fast as they can."""

    def __init__(self, first_s: float, cap_s: float, clock: Clock) -> None:
        self._first_s = first_s
        self._cap_s = cap_s
        self._clock = clock
        self._last: dict[str, tuple[object, float, int]] = {}

    def after(self, place: str, written: object) -> float:
        """Seconds to pause after this was written at a place of the object."""
        now = self._clock.monotonic()
        before, at, times = self._last.get(place, (None, now, 0))
        times = times + 1 if written == before and now - at <= MAX_UNDO_INTERVAL_S else 0
        self._last[place] = written, now, times
        return exponential_delay(self._first_s, self._cap_s, max(0, times - TOLERATED_UNDOS))


def exponential_delay(initial_s: float, cap_s: float, failures: int) -> float:
    """The delay after a number of failures, without jitter."""
    return min(cap_s, initial_s * 2.0 ** min(failures, 60))
