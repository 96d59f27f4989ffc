"""Reasons of events on objects of any kind, whichever part of Purser reads them."""

from purser.core.kubernetes.reasons import ExplainedReason


class FailureReason(ExplainedReason):
    """Why Purser goes on without an object."""

    UNREADABLE = (
        "Unreadable",
        "any object",
        "The object, or an annotation on it that Purser reads, is malformed and is ignored.",
        "Fix what the message names.",
    )
    UNTRUSTED = (
        "UntrustedGrant",
        "Pod",
        "The grant on the pod is not one that the scheduler signed for this pod and node, so Purser ignores it.",
        "Recreate the pod.",
    )
    RECORD_NOT_COUNTED = (
        "RecordNotCounted",
        "Pod",
        "HAMi's scheduler recorded an unreadable or impossible allocation on the pod, so the node's GPUs are closed to "
        "new pods.",
        "Delete the pod so that it is scheduled again, or fix the annotation that the message names.",
    )
    FAILED = (
        "HandlingFailed",
        "any object",
        "Purser could not handle this object because of a bug. Other objects are not affected.",
        "Report the bug with the log line, and describe what is unusual about the object.",
    )
