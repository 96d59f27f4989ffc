"""What is set of placement for a whole cluster: the policies of pods that name none, and how much say these have.

Not here: what a policy does (`purser.core.placement.policies`), nor how it is named (`purser.core.policy.words`).
"""

from enum import StrEnum

import msgspec

from purser.core.model import GpuPolicy, NodePolicy, PodRequest

DEFAULT_NODES_TO_SCORE = 100
"""What kube-scheduler samples at least by itself, however many nodes there are (minFeasibleNodesToFind)."""


class Authority(StrEnum):
    """How much say kube-scheduler's own scores keep."""

    SHARED = "shared"
    """Nodes are spread over the extender's whole 0..10 range by rank; other scores weigh in."""
    EXCLUSIVE = "exclusive"
    """Only the best node scores, so that the policy is followed exactly (as far as the extender's weight carries)."""


class PolicySettings(msgspec.Struct, frozen=True):
    """The administrator's choices, as opposed to one pod's."""

    node: str = NodePolicy.PURSER
    """As `purser.core.policy.words.canonical_node_policy` writes it."""
    gpu: tuple[GpuPolicy, ...] = (GpuPolicy.PURSER,)
    authority: Authority = Authority.SHARED
    nodes_to_score: int = DEFAULT_NODES_TO_SCORE
    """How many of the nodes where a pod fits are returned to kube-scheduler at most, the best ones; 0: all."""

    def node_policy(self, request: PodRequest) -> str:
        """The pod's own, else the default."""
        return request.node_policy or self.node

    def gpu_policy(self, request: PodRequest) -> tuple[GpuPolicy, ...]:
        """The pod's own chain, else the default."""
        return request.gpu_policy or self.gpu


DEFAULT_POLICIES = PolicySettings()
