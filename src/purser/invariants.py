"""What a server does with violated invariants of its own state: each is counted and logged once, with the state."""

from collections.abc import Callable, Iterable

import structlog

from purser.core.consistency import InvariantViolation

log = structlog.get_logger("purser.invariants")

MAX_DUMPS = 100
"""Log lines with state, in the life of a process; what is found beyond that is counted only."""

MAX_DUMP_CHARACTERS = 4096
"""Of each of the two states in a line. They hold names of pods, UUIDs and amounts; no keys and no environment."""


class InvariantReports:
    """Counts and logs a violation when a sweep finds it and the sweep before did not."""

    def __init__(self, count: Callable[[str], None]) -> None:
        """``count``: adds one to the metric of an invariant."""
        self._count = count
        self._before: set[tuple[str, str]] = set()
        self._now: set[tuple[str, str]] = set()
        self._dumps = 0

    def report(self, found: Iterable[InvariantViolation]) -> None:
        """What a part of a sweep found."""
        for each in found:
            key = (each.invariant, each.subject)
            if key not in self._before and key not in self._now:
                self._count(each.invariant)
                self._dump(each)
            self._now.add(key)

    def end_sweep(self) -> None:
        """The sweep is over: what it did not find has ended."""
        self._before, self._now = self._now, set()

    def _dump(self, each: InvariantViolation) -> None:
        if self._dumps >= MAX_DUMPS:
            return
        self._dumps += 1
        kept, recounted = each.kept[:MAX_DUMP_CHARACTERS], each.recounted[:MAX_DUMP_CHARACTERS]
        log.error(
            "An invariant is violated: report a bug with this line",
            invariant=str(each.invariant),
            subject=each.subject,
            kept=kept,
            recounted=recounted,
        )
