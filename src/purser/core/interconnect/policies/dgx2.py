"""static-dgx2: sixteen V100s behind NVSwitches, where only PCIe distances differ."""

from purser.core.interconnect.ask import Ask, GpuSet
from purser.core.interconnect.policies.static import first_valid, runs
from purser.core.interconnect.topology import Topology

VALID_SETS = {size: runs(size, 16) for size in (1, 2, 4, 8, 16)}


def dgx2(topology: Topology, ask: Ask) -> GpuSet:
    """Consecutive pairs, quads, octets, or all."""
    return first_valid(topology, ask, VALID_SETS)
