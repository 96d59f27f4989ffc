"""How much of what pods hold of each GPU they use now."""

import msgspec

from purser.usage.prometheus import Prometheus
from purser.usage.report import is_amount, selected

_USED_QUERY = (
    "max by (node, uuid) (purser_device_memory_used_bytes{selector})"
    " / on (node, uuid) (max by (node, uuid) (purser_device_granted_memory_bytes{selector}) > 0)"
)


class UsedNow(msgspec.Struct, frozen=True, array_like=True):
    """A GPU or MIG device that pods hold."""

    node: str
    uuid: str
    percent: int
    """Of the memory that they hold, what is in use: 100 at most."""


async def read_used_now(prometheus: Prometheus, at_s: float, selector: str = "") -> tuple[UsedNow, ...]:
    """Of all that are held. ``selector``: as `read_usage` has it. Raises `PrometheusError`."""
    found = await prometheus.ask(selected(_USED_QUERY, selector), at_s)
    return tuple(
        UsedNow(labels.get("node", ""), labels.get("uuid", ""), round(100 * min(value, 1.0)))
        for labels, value in found
        if is_amount(value)
    )
