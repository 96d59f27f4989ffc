"""Times that stand on nodes, and were written by whoever led then."""

SKEW_S = 60.0
"""By so much the clocks of two operators may differ."""


def is_to_come(moment: float, now: float) -> bool:
    """It is later than clocks differ: what is counted from it would never run out."""
    return moment > now + SKEW_S


def deadline(since: float | None, timeout_s: float) -> float | None:
    """When something has taken too long; None: never (a timeout of 0 is no limit)."""
    return since + timeout_s if timeout_s and since is not None else None


def is_over(until: float | None, now: float) -> bool:
    """A deadline has passed."""
    return until is not None and now >= until
