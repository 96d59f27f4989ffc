"""The scheduler's state as one document: what `GET /v1/state` answers, and what `purser top` shows.

- ``documents``: its types, which are versioned.
- ``building``: its parts, made of fleet and ledger.
- ``rollout``: a document of its own, on what the operator rolls out.
"""

from purser.core.state.building import state_grant, state_node
from purser.core.state.documents import (
    STATE_VERSION,
    ClusterState,
    StateContainer,
    StateGpu,
    StateGpuHealth,
    StateGrant,
    StateNode,
    StateReason,
    StateReplica,
    StateShare,
    StateWaiting,
)
from purser.core.state.rollout import (
    ROLLOUT_VERSION,
    Rollout,
    RolloutCondition,
    RolloutCounts,
    RolloutFailure,
    RolloutNode,
    RolloutOperand,
    RolloutPolicy,
    RolloutPool,
    RolloutUpgrade,
    rollout,
    rollout_node,
)

__all__ = [
    "ROLLOUT_VERSION",
    "STATE_VERSION",
    "ClusterState",
    "Rollout",
    "RolloutCondition",
    "RolloutCounts",
    "RolloutFailure",
    "RolloutNode",
    "RolloutOperand",
    "RolloutPolicy",
    "RolloutPool",
    "RolloutUpgrade",
    "StateContainer",
    "StateGpu",
    "StateGpuHealth",
    "StateGrant",
    "StateNode",
    "StateReason",
    "StateReplica",
    "StateShare",
    "StateWaiting",
    "rollout",
    "rollout_node",
    "state_grant",
    "state_node",
]
