"""How a node's GPUs are connected, and which set of them to hand out together.

`topology` turns devices into a score for each pair; an `Ask` says which positions are available, how many are wanted,
which must be among them; a policy answers with a `GpuSet`. `partitions` is the search behind `best_effort`, over the
values of `memo` (up to 8 GPUs) or `table` (up to 16, numpy); `greedy` is for more.

Not here: whether a device suits a request, which device is preferred for its load (placement), NUMA affinity as kubelet
enforces it (kubelet), and how links are found out (the agent's NVML).
"""

from purser.core.interconnect.ask import NO_SET, Ask, GpuSet, Policy
from purser.core.interconnect.policies.aligned import aligned
from purser.core.interconnect.policies.best_effort import best_effort
from purser.core.interconnect.policies.dgx1_pascal import dgx1_pascal
from purser.core.interconnect.policies.dgx1_volta import dgx1_volta
from purser.core.interconnect.policies.dgx2 import dgx2
from purser.core.interconnect.policies.simple import simple
from purser.core.interconnect.topology import (
    Connection,
    Scores,
    Topology,
    connection,
    matrix,
    numa_level,
    pair_score,
    topology,
)

POLICIES: dict[str, Policy] = {
    "simple": simple,
    "best-effort": best_effort,
    "aligned": aligned,
    "static-dgx1-pascal": dgx1_pascal,
    "static-dgx1-volta": dgx1_volta,
    "static-dgx2": dgx2,
}
"""By the names that go-gpuallocator's users know, and Purser's own, which is the one that placement uses."""

__all__ = [
    "NO_SET",
    "POLICIES",
    "Ask",
    "Connection",
    "GpuSet",
    "Policy",
    "Scores",
    "Topology",
    "aligned",
    "best_effort",
    "connection",
    "dgx1_pascal",
    "dgx1_volta",
    "dgx2",
    "matrix",
    "numa_level",
    "pair_score",
    "simple",
    "topology",
]
