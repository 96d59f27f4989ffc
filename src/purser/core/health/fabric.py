"""GPUs that are left out of the NVLink domain which their neighbours have joined. Pure."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from purser.core.device.gpus import FabricIds


class FabricState(StrEnum):
    """How far a GPU's registration with the fabric manager is: nvmlGpuFabricState_t by its numbers from 0 on, and what
    went wrong with it."""

    NOT_SUPPORTED = "not-supported"
    NOT_STARTED = "not-started"
    IN_PROGRESS = "in-progress"
    COMPLETED = "completed"
    FAILED = "failed"
    """It is complete, with an error."""


class FabricRegistration(msgspec.Struct, frozen=True):
    """One GPU's."""

    state: FabricState
    ids: FabricIds | None = None
    """The domain that it has joined; None once completed: that of its machine alone."""
    error: str = ""
    """Of one that failed."""


FABRIC_ADVICE = (
    "Programs that use NVLink fail on this GPU: check the fabric manager's log (nvidia-fabricmanager on the node, or "
    "the NVLink switches' log), and compare the Fabric section of nvidia-smi -q with the other GPUs"
)


def missing_domain(own: FabricRegistration | None, neighbours: Iterable[FabricRegistration]) -> str:
    """Why a GPU is in no NVLink domain although others of its model and node are; empty: there is nothing amiss, or
    nothing known. None: the driver does not report it."""
    joined = [each for each in neighbours if each.state is FabricState.COMPLETED]
    if own is None or not joined:
        return ""
    if own.state is FabricState.COMPLETED and (own.ids is not None or all(each.ids is None for each in joined)):
        return ""
    words = f"its registration failed ({own.error})" if own.state is FabricState.FAILED else _WORDS[own.state]
    return f"not in an NVLink domain, although other GPUs on the node are: {words}"


_WORDS = {
    FabricState.NOT_SUPPORTED: "the driver does not support an NVLink domain for this GPU",
    FabricState.NOT_STARTED: "its registration has not started",
    FabricState.IN_PROGRESS: "its registration is in progress",
    FabricState.COMPLETED: "it is registered without a cluster UUID",
}
