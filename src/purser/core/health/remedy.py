"""What may be done about GPUs without people: nothing, unless an administrator allowed it. Pure."""

from collections.abc import Mapping, Set

import msgspec

from purser.core.health.machine import GpuHealth
from purser.core.health.state import HealthState


class AllowedRemedies(msgspec.Struct, frozen=True):
    """What an administrator lets the agent do."""

    taint: bool = False
    """Taint the node while a GPU takes no pods: all of its GPUs lose pods by it."""
    cordon: bool = False
    """Cordon the node while a GPU needs a reboot."""
    reset: bool = False
    """Reset GPUs that need it and that no pod holds."""


class Remedies(msgspec.Struct, frozen=True):
    """What is to be done now."""

    taint: bool = False
    cordon: bool = False
    reset: frozenset[str] = frozenset()
    """uuids of the GPUs to reset."""


def remedies_for(gpus: Mapping[str, GpuHealth], held: Set[str], allowed: AllowedRemedies) -> Remedies:
    """What is to be done for a node's GPUs, by uuid, of which pods hold some.

    Only a GPU that takes no pods is reset: another one may be given to a pod meanwhile.
    """
    return Remedies(
        taint=allowed.taint and any(not health.takes_pods for health in gpus.values()),
        cordon=allowed.cordon and any(health.state is HealthState.NEEDS_REBOOT for health in gpus.values()),
        reset=frozenset(
            uuid
            for uuid, health in gpus.items()
            if allowed.reset and uuid not in held and health.state is HealthState.NEEDS_RESET
        ),
    )
