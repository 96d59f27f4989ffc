"""What of GPUs' health outlives an agent: what only a reset or a reboot ends, within one boot of the node. Pure.

Drivers since R570 report the recovery that a GPU requires for as long as it does. Older ones report an Xid once, and an
agent that starts afterwards would hear nothing of it.
"""

from collections.abc import Iterable, Mapping

import msgspec

from purser.core.health.machine import GpuHealth, HealthCause, Sign
from purser.core.health.state import HealthState


class RememberedXid(msgspec.Struct, frozen=True):
    """An Xid after which a GPU has been neither reset nor rebooted; the fields are those of its `HealthCause`."""

    uuid: str
    state: HealthState
    words: str
    advice: str = ""


class RememberedHealth(msgspec.Struct, frozen=True):
    """Of a node's GPUs."""

    boot_id: str
    """Of the kernel: what was so before another boot is over."""
    xids: tuple[RememberedXid, ...] = ()
    """By uuid, at most one each."""


def remembered_xids(gpus: Mapping[str, GpuHealth]) -> tuple[RememberedXid, ...]:
    """What is to be kept of these GPUs, by uuid."""
    return tuple(
        RememberedXid(uuid, cause.state, cause.words, cause.advice)
        for uuid, health in sorted(gpus.items())
        for cause in health.causes
        if cause.until_reset and not cause.reset_seen
    )


def restore_health(xids: Iterable[RememberedXid]) -> dict[str, GpuHealth]:
    """The health that GPUs start with, by uuid."""
    return {
        each.uuid: GpuHealth((HealthCause(Sign.XID, each.state, each.words, each.advice, until_reset=True),))
        for each in xids
        if not each.state.takes_pods
    }
