"""Reasons of the scheduler's events, and of pods that wait."""

from purser.core.kubernetes.reasons import ExplainedReason


class SchedulerReason(ExplainedReason):
    """Reasons of the scheduler's events on pods and nodes."""

    GRANTED = "Granted", "Pod", "The scheduler bound the pod and granted it the GPUs named in the message."
    PREEMPTING = (
        "Preempting",
        "Pod",
        "Pods of lower priority are evicted to make room for this pod on the node named in the message.",
    )
    PREEMPTED = (
        "Preempted",
        "Pod",
        "The pod is evicted to make room for a pod of higher priority.",
        "Give the pod a higher priority if it must not be evicted.",
    )
    PREEMPTION_NOT_ENOUGH = (
        "PreemptionNotEnough",
        "Pod",
        "There are pods of lower priority, and the pod would fit no node even if they all were evicted.",
        "Ask for less, add GPUs, or wait for pods of the same or higher priority to end.",
    )
    MISSED_WEBHOOK = (
        "MissedWebhook",
        "Pod",
        "The pod was created while the webhook could not be reached, so the default scheduler cannot place it.",
        "Create the pod again; pods of controllers are deleted and recreated without you.",
    )
    OTHER_SCHEDULER = (
        "OtherScheduler",
        "Pod",
        "The pod asks for GPUs and names another scheduler, which did not place it within 15 seconds.",
        "Create it again without schedulerName, or have Purser adopt that name.",
    )
    NOT_SERVED = (
        "NotServed",
        "Pod",
        "The pod asks for a resource that no node offers.",
        "Write the resource that the message names instead.",
    )
    GRANTED_TWICE = (
        "GrantedTwice",
        "Pod",
        "The pod was granted what another pod already runs with, as can happen when the leader changes.",
        "Create the pod again; pods of controllers are deleted and recreated without you.",
    )


class PendingReason(ExplainedReason):
    """Why a pod waits that no node was refused for."""

    KUBE_SCHEDULER = (
        "KubeScheduler",
        "Pod",
        "Purser has not refused the pod: kube-scheduler's own filters refuse it, or it has just come.",
        "Read the pod's FailedScheduling.",
    )
    INVALID_REQUEST = (
        "InvalidRequest",
        "Pod",
        "The pod's GPU request is invalid.",
        "Do what the pod's FailedScheduling says.",
    )
