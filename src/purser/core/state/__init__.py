"""The scheduler's state as one document: what `GET /v1/state` answers, and what `purser top` shows.

- ``documents``: its types, which are versioned.
- ``building``: its parts, made of fleet and ledger.
- ``node_documents``, ``node_details``: the same for the document on one node, `GET /v1/nodes/NAME`.
- ``object_documents``: those on one pod, `GET /v1/namespaces/NAMESPACE/pods/NAME`, and on events about an object.
- ``list_documents``: lists of what the state has, some at a time.
- ``why_documents``: that on why one pod waits, `GET /v1/namespaces/NAMESPACE/pods/NAME/why`.
- ``rollout``: a document of its own, on what the operator rolls out.
"""

from purser.core.state.building import device_instances, state_ask, state_grant, state_node
from purser.core.state.documents import (
    ADVICE,
    STATE_VERSION,
    ClusterState,
    StateAsk,
    StateContainer,
    StateCutGpu,
    StateGpu,
    StateGpuHealth,
    StateGrant,
    StateNode,
    StateQuota,
    StateReason,
    StateReplica,
    StateShare,
    StateWaiting,
)
from purser.core.state.list_documents import GrantList, NodeList, WaitingList
from purser.core.state.node_details import details_of_gpus, node_details
from purser.core.state.node_documents import (
    MAX_LINKED_GPUS,
    NodeDetails,
    StateKubelet,
    StateKubeletResource,
    StateLink,
    StateNodeGpu,
    StatePoolPlace,
)
from purser.core.state.object_documents import PodDetails, StateEvent, StateEvents, StateStep
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
    RolloutUpcoming,
    RolloutUpgrade,
    rollout,
    rollout_node,
)
from purser.core.state.why_documents import PodWhy, WhyReason, WhyState, WhySuggestion

__all__ = [
    "ADVICE",
    "MAX_LINKED_GPUS",
    "ROLLOUT_VERSION",
    "STATE_VERSION",
    "ClusterState",
    "GrantList",
    "NodeDetails",
    "NodeList",
    "PodDetails",
    "PodWhy",
    "Rollout",
    "RolloutCondition",
    "RolloutCounts",
    "RolloutFailure",
    "RolloutNode",
    "RolloutOperand",
    "RolloutPolicy",
    "RolloutPool",
    "RolloutUpcoming",
    "RolloutUpgrade",
    "StateAsk",
    "StateContainer",
    "StateCutGpu",
    "StateEvent",
    "StateEvents",
    "StateGpu",
    "StateGpuHealth",
    "StateGrant",
    "StateKubelet",
    "StateKubeletResource",
    "StateLink",
    "StateNode",
    "StateNodeGpu",
    "StatePoolPlace",
    "StateQuota",
    "StateReason",
    "StateReplica",
    "StateShare",
    "StateStep",
    "StateWaiting",
    "WaitingList",
    "WhyReason",
    "WhyState",
    "WhySuggestion",
    "details_of_gpus",
    "device_instances",
    "node_details",
    "rollout",
    "rollout_node",
    "state_ask",
    "state_grant",
    "state_node",
]
