"""What may be done about GPUs without people: nothing, unless an administrator allowed it. Pure.

The rules alone: no part carries them out yet, and there is no option that allows anything.
"""

from collections.abc import Mapping, Set

import msgspec

from purser.core.health.machine import GpuHealth, Sign
from purser.core.health.state import HealthState


class AllowedRemedies(msgspec.Struct, frozen=True):
    """What an administrator lets the agent do."""

    taint: bool = False
    """Taint the node while a GPU takes no pods: all of its GPUs lose pods by it."""
    cordon: bool = False
    """Cordon the node while a GPU needs its reboot."""
    reset: bool = False
    """Reset GPUs that need it and that no pod holds."""


class Remedies(msgspec.Struct, frozen=True):
    """What is to be done now."""

    taint: bool = False
    cordon: bool = False
    reset: frozenset[str] = frozenset()
    """uuids of the GPUs to reset."""


def remedies_for(gpus: Mapping[str, GpuHealth], held: Set[str], allowed: AllowedRemedies) -> Remedies:
    """What is to be done for a node's GPUs, by uuid, of which pods hold some."""
    return Remedies(
        taint=allowed.taint and any(not health.takes_pods for health in gpus.values()),
        cordon=allowed.cordon and any(health.state is HealthState.NEEDS_REBOOT for health in gpus.values()),
        reset=frozenset(
            uuid for uuid, health in gpus.items() if allowed.reset and uuid not in held and _wants_reset(health)
        ),
    )


def _wants_reset(health: GpuHealth) -> bool:
    """Where a reset is the remedy: also for a remapping that waits for one, as nobody is disturbed."""
    if health.state is HealthState.DEGRADED:
        return any(cause.sign is Sign.REMAPPED_ROWS for cause in health.causes)
    return health.state is HealthState.NEEDS_RESET
