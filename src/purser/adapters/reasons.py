"""Reasons of events that commands write."""

from purser.core.kubernetes.reasons import ExplainedReason


class PlanReason(ExplainedReason):
    """What `purser plan free --apply` says of the pods that it evicts."""

    EVICTED = (
        "EvictedByPlan",
        "Pod",
        "An administrator evicted the pod to free whole GPUs. The message says how many, and on which node.",
        "If the pod has a controller, the controller replaces it. For details, ask the administrator.",
    )
