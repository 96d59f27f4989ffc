"""Which node and which of its GPUs is best: one small file per policy, over the fleet as arrays.

A policy for nodes and one for GPUs make a pair (`pair`); several policies for nodes can be weighed against one another
(`weighted`). `ArrayNodePolicy.score` states the contract of a score: it depends only on its node and the pod, so that
`purser.core.placement.table` rescores only what changed.

Not here: whether a pod fits (`purser.core.placement.shape`), and the tie between equally good nodes, which falls to the
first in the fleet's order.
"""

from purser.core.placement.policies.pair import NodeAndGpuPolicy
from purser.core.placement.policies.protocol import ArrayGpuPolicy, ArrayNodePolicy, ArrayPolicy
from purser.core.placement.policies.registry import (
    GPU_POLICIES,
    NODE_POLICIES,
    Setting,
    named_policy,
    parse_policy,
    policy,
)

__all__ = [
    "GPU_POLICIES",
    "NODE_POLICIES",
    "ArrayGpuPolicy",
    "ArrayNodePolicy",
    "ArrayPolicy",
    "NodeAndGpuPolicy",
    "Setting",
    "named_policy",
    "parse_policy",
    "policy",
]
