"""The states of a GPU's health, and which of them NVIDIA's actions and the driver's words mean. Pure."""

from collections.abc import Mapping
from enum import StrEnum

from purser.core.health.catalogue import Action
from purser.core.health.signs import FaultKind, RecoveryAction


class HealthState(StrEnum):
    """How well a GPU is, from the best to the most severe."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    """It takes pods, and an administrator should look at it."""
    SUSPECT = "suspect"
    """It takes no new pods until it has answered its probes for a while."""
    NEEDS_RESET = "needs-reset"
    LOST = "lost"
    """Out of the driver's reach."""
    NEEDS_REBOOT = "needs-reboot"
    FAILED = "failed"
    """A case for a replacement."""

    @property
    def takes_pods(self) -> bool:
        """Whether a GPU in this state is advertised as healthy."""
        return self in (HealthState.HEALTHY, HealthState.DEGRADED)

    @property
    def severity(self) -> int:
        """For comparing: 0 is healthy."""
        return _SEVERITY[self]


_SEVERITY = {state: severity for severity, state in enumerate(HealthState)}

_STATE_BY_ACTION: Mapping[Action, HealthState] = {
    Action.IGNORE: HealthState.HEALTHY,
    Action.RESTART_APP: HealthState.HEALTHY,
    Action.WORKFLOW_XID_45: HealthState.HEALTHY,
    Action.XID_154: HealthState.HEALTHY,
    Action.RESET_GPU: HealthState.NEEDS_RESET,
    Action.WORKFLOW_XID_48: HealthState.NEEDS_RESET,
    Action.WORKFLOW_NVLINK_ERR: HealthState.NEEDS_RESET,
    Action.RESTART_VM: HealthState.NEEDS_REBOOT,
    Action.RESTART_BM: HealthState.NEEDS_REBOOT,
}

_STATE_BY_FAULT = {
    FaultKind.LOST: HealthState.LOST,
    FaultKind.GONE: HealthState.LOST,
    FaultKind.RESET_REQUIRED: HealthState.NEEDS_RESET,
}

_OF_RECOVERY_ACTION = {
    RecoveryAction.NONE: HealthState.HEALTHY,
    RecoveryAction.GPU_RESET: HealthState.NEEDS_RESET,
    RecoveryAction.DRAIN_AND_RESET: HealthState.NEEDS_RESET,
    RecoveryAction.BUS_RESET: HealthState.NEEDS_RESET,
    RecoveryAction.NODE_REBOOT: HealthState.NEEDS_REBOOT,
    RecoveryAction.SYSTEM_REBOOT: HealthState.NEEDS_REBOOT,
}


def after_action(action: Action) -> HealthState:
    """The state of a healthy GPU after an Xid with this action. An Xid that needs an administrator, or an unknown one,
    makes it suspect: it recovers if it keeps answering."""
    return _STATE_BY_ACTION.get(action, HealthState.SUSPECT)


def after_fault(kind: FaultKind) -> HealthState:
    """What a failed call says of the GPU."""
    return _STATE_BY_FAULT.get(kind, HealthState.SUSPECT)


def after_recovery_action(asked: RecoveryAction) -> HealthState:
    """What the driver's wish says of the GPU. Those that need neither reset nor reboot keep pods off too."""
    return _OF_RECOVERY_ACTION.get(asked, HealthState.SUSPECT)


ADVICE: Mapping[HealthState, str] = {
    HealthState.HEALTHY: "",
    HealthState.DEGRADED: "",
    HealthState.SUSPECT: "The GPU is opened to new pods again once it has responded for a while",
    HealthState.NEEDS_RESET: "Reset the GPU once no pod holds it, or restart the node",
    HealthState.LOST: "Restart the node if the GPU does not come back",
    HealthState.NEEDS_REBOOT: "Restart the node",
    HealthState.FAILED: "Have the GPU replaced",
}
"""What is to be done, in a sentence for people."""

PREDICATES: Mapping[HealthState, str] = {
    HealthState.HEALTHY: "is healthy",
    HealthState.DEGRADED: "is degraded",
    HealthState.SUSPECT: "is suspect",
    HealthState.NEEDS_RESET: "needs a reset",
    HealthState.LOST: "is lost",
    HealthState.NEEDS_REBOOT: "needs a node restart",
    HealthState.FAILED: "has failed",
}
"""What follows a GPU's name in a sentence."""
