"""Work on one node that others have to make room for: what driver upgrades and MIG changes share.

Both take a node through a few steps, each one write (``steps``); both have pods leave by eviction before they touch a
GPU, by the same rules and disruption budgets (``evictions``); both mark the cordons that they set (``cordons``); and
both keep to one bound of unavailable nodes (`NodeWork`).

Not here: the machines (``upgrade``, ``mig``), which import nothing of one another, and writing of any kind.
"""

from purser.operator.maintenance.cordons import (
    Cordoner,
    claim,
    clear_stale_cordon_mark,
    is_cordoned_by,
    is_cordoned_by_purser,
    lift,
)
from purser.operator.maintenance.evictions import (
    UNKNOWN_PODS,
    DisruptionLedger,
    EvictionRequest,
    Rules,
    ask_again,
    drained_pods,
    evictable_gpu_pods,
    gpu_pods,
    jobs,
    request_evictions,
)
from purser.operator.maintenance.steps import (
    NodeStep,
    NodeTexts,
    NodeWork,
    deadline,
    event,
    is_over,
    is_to_come,
    patch,
    planned_changes_of,
    to,
    waits_of,
)

__all__ = [
    "UNKNOWN_PODS",
    "Cordoner",
    "DisruptionLedger",
    "EvictionRequest",
    "NodeStep",
    "NodeTexts",
    "NodeWork",
    "Rules",
    "ask_again",
    "claim",
    "clear_stale_cordon_mark",
    "deadline",
    "drained_pods",
    "event",
    "evictable_gpu_pods",
    "gpu_pods",
    "is_cordoned_by",
    "is_cordoned_by_purser",
    "is_over",
    "is_to_come",
    "jobs",
    "lift",
    "patch",
    "planned_changes_of",
    "request_evictions",
    "to",
    "waits_of",
]
