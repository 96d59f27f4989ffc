"""Conditions of a policy, with the time of their last change kept."""

from collections.abc import Iterable

from purser.core.times import spelled
from purser.operator.policy.status import ClusterPolicyStatus, Condition

READY = "Ready"
PROGRESSING = "Progressing"
DEGRADED = "Degraded"


def condition(
    kind: str, holds: bool, reason: str, message: str, *, old: ClusterPolicyStatus, generation: int, now: float
) -> Condition:
    """A condition; its time is that of the old one, if its status is the same."""
    status = "True" if holds else "False"
    before = find(old.conditions, kind)
    since = before.last_transition_time if before is not None and before.status == status else spelled(now)
    return Condition(
        type=kind,
        status="True" if holds else "False",
        reason=reason,
        message=message,
        last_transition_time=since,
        observed_generation=generation,
    )


def find(conditions: Iterable[Condition], kind: str) -> Condition | None:
    """The condition of a type."""
    return next((each for each in conditions if each.type == kind), None)
