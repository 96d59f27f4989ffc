"""The operands, and which of them needs which to be ready on the same node.

CONTRIBUTING.md says what a new one takes.
"""

from enum import StrEnum
from functools import cache, lru_cache

from purser.core.names import DEPLOY_PREFIX


class Operand(StrEnum):
    """What the operator runs on nodes; the values end the labels ``nvidia.com/gpu.deploy.<operand>``."""

    DRIVER = "driver"
    TOOLKIT = "container-toolkit"
    DEVICE_PLUGIN = "device-plugin"
    """Purser's agent, or NVIDIA's plugin."""
    GFD = "gpu-feature-discovery"
    VALIDATOR = "operator-validator"
    DCGM = "dcgm"
    DCGM_EXPORTER = "dcgm-exporter"
    NODE_STATUS_EXPORTER = "node-status-exporter"
    MIG_MANAGER = "mig-manager"

    @property
    def deploy_label(self) -> str:
        """On a node: ``true`` where the operand runs."""
        return DEPLOY_PREFIX + self.value

    @property
    def section(self) -> str:
        """The attribute of `ClusterPolicySpec` that is about it: ``dcgm_exporter``."""
        return self.name.lower()


NEEDS: dict[Operand, tuple[Operand, ...]] = {
    Operand.DRIVER: (),
    Operand.TOOLKIT: (Operand.DRIVER,),
    Operand.DEVICE_PLUGIN: (Operand.TOOLKIT,),
    Operand.GFD: (Operand.TOOLKIT,),
    Operand.VALIDATOR: (Operand.DEVICE_PLUGIN,),
    Operand.DCGM: (Operand.VALIDATOR,),
    Operand.DCGM_EXPORTER: (Operand.VALIDATOR, Operand.DCGM),
    Operand.NODE_STATUS_EXPORTER: (Operand.VALIDATOR,),
    # Not after validation: a node in MIG mode without instances offers no GPU, and would never be valid.
    Operand.MIG_MANAGER: (Operand.TOOLKIT,),
}
"""In the order in which they are shown. Every operand comes after what it needs."""


@lru_cache(maxsize=1024)
def prerequisites(operand: Operand, enabled: tuple[Operand, ...]) -> frozenset[Operand]:
    """Enabled operands that must be ready on a node before it gets this one: what it needs, what that needs, and so on.

    One that is ready may stand on a driver that has crashed since: then nothing more is built on it. What a disabled
    operand would have needed is needed all the same: without a toolkit, the device plugin waits for the driver.
    The same few sets come for every node.
    """
    return frozenset(each for each in enabled if operand in dependents(each))


@cache
def dependents(operand: Operand) -> tuple[Operand, ...]:
    """Everything that needs this operand, at whatever remove, in order."""
    found: list[Operand] = []
    for other, needed in NEEDS.items():
        if operand in needed or any(each in found for each in needed):
            found.append(other)
    return tuple(found)
