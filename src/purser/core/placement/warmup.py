"""Compiles the kernels before the first decision.

With numba that takes seconds at the first start on a machine and half a second at later ones; without it nothing.
"""

from purser.core.fleet import Fleet
from purser.core.model import (
    ContainerKind,
    ContainerRequest,
    Device,
    DeviceRequest,
    GpuPolicy,
    NodeInventory,
    NodePolicy,
    PodRequest,
)
from purser.core.placement.evaluate import Evaluator
from purser.core.placement.mix import LearnedMix
from purser.core.policy.settings import PolicySettings

_COMPILED = ((NodePolicy.PURSER, GpuPolicy.PURSER), (NodePolicy.FRAGMENTATION, GpuPolicy.FRAGMENTATION))
"""The policies that have kernels of their own; pods may name either."""


def warm_up() -> None:
    """Decide for a share and for two GPUs, on a fleet of one node."""
    fleet = Fleet()
    fleet.set_inventory(NodeInventory("node", tuple(Device(f"GPU-{i}", i, "T4", 16384, slots=10) for i in range(2))))
    for node, gpu in _COMPILED:
        evaluator = Evaluator(fleet, PolicySettings(node, (gpu,)), LearnedMix())
        for count, percent in ((1, 50), (2, 100)):
            devices = DeviceRequest(count, memory_percent=percent)
            request = PodRequest("", "", "", (ContainerRequest("", ContainerKind.APP, devices),))
            evaluator.evaluate(request, ["node"])
            evaluator.place("node", request)
