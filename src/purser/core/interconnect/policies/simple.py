"""simple: the required GPUs, then those with the lowest indexes."""

from purser.core.interconnect.ask import NO_SET, Ask, GpuSet
from purser.core.interconnect.topology import Topology


def simple(topology: Topology, ask: Ask) -> GpuSet:
    """The required GPUs as they are given, then the available ones by NVML's index."""
    if not ask.possible:
        return NO_SET
    rest = sorted(set(ask.available).difference(ask.required), key=lambda place: (topology.indexes[place], place))
    return GpuSet((*ask.required, *rest)[: ask.size])
