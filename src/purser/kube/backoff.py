"""How long to wait before the next attempt."""

import random


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
        delay = exponential(self.initial_s, self.cap_s, self._failures)
        self._failures += 1
        return delay * self._rng.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Start from the shortest delay again: something worked."""
        self._failures = 0


def exponential(initial_s: float, cap_s: float, failures: int) -> float:
    """The delay after a number of failures, without jitter."""
    return min(cap_s, initial_s * 2.0 ** min(failures, 60))
