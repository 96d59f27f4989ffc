"""Reasons of events that commands write."""

from purser.core.kubernetes.reasons import ExplainedReason


class PlanReason(ExplainedReason):
    """What `purser plan free --apply` says of the pods that it evicts."""

    EVICTED = (
        "EvictedByPlan",
        "Pod",
        "An administrator had the pod evicted to free whole GPUs of a node; the message says which.",
        "The pod's controller replaces it; ask the administrator.",
    )
