"""The nouns between the edges and the kernel, in the order of a round: what is there (``snapshot``), what the round
found out about it (``standing``), and what it does (``outcome``).

All of it is plain, frozen data. Times are seconds since the epoch, handed in; nothing here reads a clock.

Not here: how any of it is found, and what people are told (``kernel``).
"""

from purser.operator.model.outcome import (
    Action,
    Adopt,
    Apply,
    Delete,
    DeletePod,
    Evict,
    Moves,
    Outcome,
    PatchNode,
    Say,
    SetFinalizer,
    WriteStatus,
)
from purser.operator.model.snapshot import (
    Budget,
    NodeView,
    ObjectKey,
    PodView,
    Raw,
    Refusal,
    Settled,
    Snapshot,
    Taint,
    Workload,
)
from purser.operator.model.standing import (
    Departure,
    Distribution,
    OperandOnNode,
    OperandState,
    Place,
    Pool,
    Presence,
    Rendered,
    Runtime,
    RuntimeKind,
    Standing,
    Template,
    Wanted,
    daemon_set_of,
)

__all__ = [
    "Action",
    "Adopt",
    "Apply",
    "Budget",
    "Delete",
    "DeletePod",
    "Departure",
    "Distribution",
    "Evict",
    "Moves",
    "NodeView",
    "ObjectKey",
    "OperandOnNode",
    "OperandState",
    "Outcome",
    "PatchNode",
    "Place",
    "PodView",
    "Pool",
    "Presence",
    "Raw",
    "Refusal",
    "Rendered",
    "Runtime",
    "RuntimeKind",
    "Say",
    "SetFinalizer",
    "Settled",
    "Snapshot",
    "Standing",
    "Taint",
    "Template",
    "Wanted",
    "Workload",
    "WriteStatus",
    "daemon_set_of",
]
