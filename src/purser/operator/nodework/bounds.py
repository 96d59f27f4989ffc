"""How many nodes may be unavailable at a time."""

import math

from purser.operator.policy.driver import UpgradePolicy


def unavailable_bound(policy: UpgradePolicy, nodes: int) -> int:
    """How many of so many GPU nodes may be unavailable; a percentage is rounded up."""
    bound = policy.max_unavailable
    return bound if isinstance(bound, int) else math.ceil(nodes * int(bound.removesuffix("%")) / 100)
