"""A history replayed with several policies: allocation, waiting time, and how few nodes would have done."""

from collections.abc import Callable, Sequence

import msgspec

from purser.backtest.reconstruction import Course, Reconstruction, ReconstructionError
from purser.core.wording import counted

Tick = Callable[[str], None]
"""Called now and then with what is being replayed."""


class PolicyCourse(msgspec.Struct, frozen=True):
    """What came of one policy."""

    policy: str
    course: Course
    nodes_needed: int | None
    """The fewest nodes on which pods wait no longer; None: they do on all of them, or it was not asked."""


class Backtest(msgspec.Struct, frozen=True):
    """What came of a history."""

    source: Course
    replayed: Course
    """With the policy that was in force."""
    error: ReconstructionError
    policies: tuple[PolicyCourse, ...]
    removed_first: tuple[str, ...]
    """Nodes in the order in which they are done without."""


def backtest(
    reconstruction: Reconstruction,
    recorded_policy: str,
    policies: Sequence[str],
    with_nodes: bool = True,
    tick: Tick = lambda _: None,
) -> Backtest:
    """Replay the policy that was in force, then each of the others. Raises ValueError for one that there is none of."""
    replayed = reconstruction.replay(recorded_policy, tick=lambda: tick(f"{recorded_policy}, as recorded"))
    removed_first = reconstruction.nodes_by_use()
    found = []
    for policy in policies:
        course = replayed if policy == recorded_policy else reconstruction.replay(policy, tick=lambda: tick(policy))  # noqa: B023
        needed = _nodes_needed(reconstruction, policy, course, replayed, removed_first, tick) if with_nodes else None
        found.append(PolicyCourse(policy, course, needed))
    return Backtest(
        reconstruction.source, replayed, reconstruction.error_of(recorded_policy, replayed), tuple(found), removed_first
    )


def _nodes_needed(
    reconstruction: Reconstruction, policy: str, on_all: Course, limit: Course, removed_first: Sequence[str], tick: Tick
) -> int | None:
    """By bisection, as if fewer nodes never let pods wait less; what it returns was replayed."""
    if not _is_wait_no_longer(on_all, limit):
        return None
    fewest_kept, most_failing = len(removed_first), 0
    while fewest_kept - most_failing > 1:
        kept = (fewest_kept + most_failing) // 2
        without = frozenset(removed_first[: len(removed_first) - kept])
        course = reconstruction.replay(policy, without, tick=lambda: tick(f"{policy}, {counted(kept, 'node')}"))  # noqa: B023
        if _is_wait_no_longer(course, limit):
            fewest_kept = kept
        else:
            most_failing = kept
    return fewest_kept


def _is_wait_no_longer(course: Course, limit: Course) -> bool:
    slack_s = 1e-6
    return (
        course.waited_mean_s <= limit.waited_mean_s + slack_s
        and course.waited_p95_s <= limit.waited_p95_s + slack_s
        and course.unplaced <= limit.unplaced
    )
