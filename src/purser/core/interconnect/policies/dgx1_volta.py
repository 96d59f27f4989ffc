"""static-dgx1-volta: a DGX-1 with V100s, where some pairs have two NVLinks and others one."""

from purser.core.interconnect.ask import Ask, GpuSet
from purser.core.interconnect.policies.static import first_valid, runs
from purser.core.interconnect.topology import Topology

VALID_SETS = {
    1: runs(1, 8),
    2: ((0, 3), (1, 2), (4, 7), (5, 6)),
    4: runs(4, 8),
    8: runs(8, 8),
}


def dgx1_volta(topology: Topology, ask: Ask) -> GpuSet:
    """Pairs with two NVLinks, halves, or all."""
    return first_valid(topology, ask, VALID_SETS)
