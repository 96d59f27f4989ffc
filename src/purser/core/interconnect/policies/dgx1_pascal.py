"""static-dgx1-pascal: a DGX-1 with P100s, where each half is a clique of single NVLinks and pairs share a switch."""

from purser.core.interconnect.ask import Ask, GpuSet
from purser.core.interconnect.policies.static import first_valid, runs
from purser.core.interconnect.topology import Topology

VALID_SETS = {
    1: runs(1, 8),
    2: ((0, 2), (1, 3), (4, 6), (5, 7)),
    4: runs(4, 8),
    8: runs(8, 8),
}


def dgx1_pascal(topology: Topology, ask: Ask) -> GpuSet:
    """Pairs on one PCIe switch, halves, or all."""
    return first_valid(topology, ask, VALID_SETS)
