"""Reasons of events that commands write."""

from purser.core.kubernetes.reasons import ExplainedReason


class PlanReason(ExplainedReason):
    """What `purser plan free --apply` says of the pods that it evicts."""

    EVICTED = (
        "EvictedByPlan",
        "Pod",
        "An administrator evicted the pod to free whole GPUs on a node. The message names the GPUs.",
        "The pod's controller replaces the pod. For details, ask the administrator.",
    )
