"""Times that stand on nodes, and were written by whoever led then."""

SKEW_S = 60.0
"""By so much the clocks of two operators may differ."""


def is_to_come(moment: float, now: float) -> bool:
    """It is later than clocks differ: what is counted from it would never run out."""
    return moment > now + SKEW_S
