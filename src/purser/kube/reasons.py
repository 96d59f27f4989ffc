"""Reasons of events on objects of any kind, whichever part of Purser reads them."""

from purser.core.kubernetes.reasons import ExplainedReason


class FailureReason(ExplainedReason):
    """Why Purser goes on without an object."""

    UNREADABLE = (
        "Unreadable",
        "any object",
        "The object or one of Purser's annotations on it is malformed and is left out.",
        "Correct what the message names.",
    )
    UNTRUSTED = (
        "UntrustedGrant",
        "Pod",
        "The grant on the pod was not written by the scheduler, or was changed; it gives the pod nothing.",
        "Create the pod again.",
    )
    RECORD_NOT_COUNTED = (
        "RecordNotCounted",
        "Pod",
        "HAMi's scheduler recorded something unreadable or impossible on the pod: its node's GPUs take no new pods.",
        "Delete the pod, so that it is placed anew, or correct the annotation that the message names.",
    )
    FAILED = (
        "HandlingFailed",
        "any object",
        "Purser failed on this object, which is a bug, and continues with the others.",
        "Report the bug with the log line, and say what is unusual about the object.",
    )
