"""All checks, in the order they run, and the choice among them.

First what everything else stands on, then what leaves the plugin as it is, then what shakes it; its end last.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from purser.lab.conformance.check import Check
from purser.lab.conformance.checks import (
    allocate,
    calls,
    ending,
    health,
    limits,
    listing,
    preferred,
    registration,
    restart,
)

CATALOGUE: tuple[Check, ...] = (
    *registration.CHECKS,
    *listing.CHECKS,
    *preferred.CHECKS,
    *allocate.CHECKS,
    *limits.CHECKS,
    *calls.CHECKS,
    *health.CHECKS,
    *restart.CHECKS,
    *ending.CHECKS,
)


def select(only: Sequence[str] = (), skip: Sequence[str] = ()) -> tuple[Check, ...]:
    """The checks whose ids match one of ``only`` (all when empty) and none of ``skip``; shell patterns.

    Raises ValueError for a pattern that matches nothing, and when nothing is left.
    """
    for pattern in (*only, *skip):
        if not any(fnmatchcase(check.id, pattern) for check in CATALOGUE):
            raise ValueError(
                f"no check matches {pattern}: list the checks with purser conformance device-plugin --list"
            )
    chosen = tuple(check for check in CATALOGUE if _matches(check, only or ("*",)) and not _matches(check, skip))
    if not chosen:
        raise ValueError("no checks are left after --only and --skip")
    return chosen


def _matches(check: Check, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(check.id, pattern) for pattern in patterns)
