"""The scheduler's state as one document: what `GET /v1/state` answers, and what `purser top` shows.

- ``documents``: its types, which are versioned.
- ``building``: its parts, made of fleet and ledger.
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

__all__ = [
    "STATE_VERSION",
    "ClusterState",
    "StateContainer",
    "StateGpu",
    "StateGpuHealth",
    "StateGrant",
    "StateNode",
    "StateReason",
    "StateReplica",
    "StateShare",
    "StateWaiting",
    "state_grant",
    "state_node",
]
