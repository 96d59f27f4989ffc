"""Reasons of the agent's events and of the condition that it writes; those of refusals are in `refusals`."""

from purser.core.kubernetes.reasons import ExplainedReason


class AgentReason(ExplainedReason):
    """What the agent tells on its node and on the node's pods."""

    GPU_UNHEALTHY = (
        "GpuUnhealthy",
        "Node",
        "A GPU failed: the driver reported the Xid, or did not answer the call, that the message names.",
        "Reset the GPU or restart the node, unless GpuRecovered follows.",
    )
    GPU_RECOVERED = "GpuRecovered", "Node", "A GPU that had failed is healthy again and takes pods."
    BOOKS_DISAGREE = (
        "BooksDisagree",
        "Node",
        "Condition PurserGpuDisputed: records differ on who holds the GPUs that the message names.",
        "End the pods that the message names.",
    )
    HOLDS_WITHOUT_GRANT = (
        "HoldsWithoutGrant",
        "Pod",
        "The pod runs with GPUs, and its grant was removed, changed or revoked, or never existed.",
        "Create the pod again, so that the scheduler grants it GPUs.",
    )
    ENFORCEMENT_CHANGED = (
        "EnforcementChanged",
        "Pod",
        "HAMi-core's library was installed on the node or removed from it between binding and start.",
        "Create the pod again if its limits have to be enforced as the grant says.",
    )
