"""What holds shares of each GPU to their limits: what the administrator wants, as far as the node can do it. Pure."""

import msgspec

from purser.agent.settings import EnforcementChoice
from purser.core.model import DeviceMode, Enforcement


class Enforcers(msgspec.Struct, frozen=True):
    """What is there to hold shares, at this moment."""

    library: bool = False
    """HAMi-core's, on the node."""
    mps: frozenset[str] = frozenset()
    """uuids of GPUs whose MPS daemon answers."""


def enforcement_of_device(
    wanted: EnforcementChoice, uuid: str, slots: int, mode: DeviceMode, enforcers: Enforcers
) -> Enforcement:
    """What holds shares of a device; of one in mode ``mps`` nothing as long as its daemon does not answer."""
    if mode is DeviceMode.MIG:
        return Enforcement.MIG
    if mode is DeviceMode.MPS:
        return Enforcement.MPS if uuid in enforcers.mps else Enforcement.TIME_SLICING
    if enforcers.library and wanted in (EnforcementChoice.AUTO, EnforcementChoice.MPS, EnforcementChoice.HAMI_CORE):
        return Enforcement.HAMI_CORE
    if slots == 1:
        return Enforcement.WHOLE_DEVICE
    return Enforcement.NONE if wanted is EnforcementChoice.NONE else Enforcement.TIME_SLICING
