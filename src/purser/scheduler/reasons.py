"""Reasons of the scheduler's events, of pods that wait, and of Bindings that fail."""

from purser.core.kubernetes.reasons import ExplainedReason


class SchedulerReason(ExplainedReason):
    """Reasons of the scheduler's events on pods and nodes."""

    GRANTED = "Granted", "Pod", "The scheduler bound the pod and granted it the GPUs named in the message."
    FITS_IF_CHANGED = (
        "FitsIfChanged",
        "Pod",
        "The pod is pending, but the scheduler found that it would fit now with the changes in the message.",
        "Recreate the pod with those changes, or wait for capacity. `purser why` also lists other kinds of changes.",
    )
    PREEMPTING = (
        "Preempting",
        "Pod",
        "Lower-priority pods are being evicted to make room for this pod on the node named in the message.",
    )
    PREEMPTED = (
        "Preempted",
        "Pod",
        "The pod was evicted to make room for a higher-priority pod.",
        "Give the pod a higher priority if it must not be evicted.",
    )
    PREEMPTION_NOT_ENOUGH = (
        "PreemptionNotEnough",
        "Pod",
        "The pod would not fit on any node even if all lower-priority pods were evicted.",
        "Request less, add GPUs, or wait for pods of the same or higher priority to finish.",
    )
    MISSED_WEBHOOK = (
        "MissedWebhook",
        "Pod",
        "The API server did not call Purser's webhook for the pod, or the webhook did not serve the pod's resource "
        "yet, so Purser does not place the pod.",
        "Recreate the pod. If it requests NVIDIA GPUs and has a controller, Purser deletes it, and the controller "
        "recreates it.",
    )
    OTHER_SCHEDULER = (
        "OtherScheduler",
        "Pod",
        "The pod requests GPUs but names another scheduler, so Purser grants it none. It has not started within 15 "
        "seconds.",
        "Recreate the pod without schedulerName, or make Purser adopt that scheduler name.",
    )
    NOT_GRANTED = (
        "NotGranted",
        "Pod",
        "Another scheduler placed the pod on a node where Purser cannot grant it GPUs, so kubelet rejects it.",
        "The message names the cause. If the node's GPUs have no room, use separate nodes for that scheduler.",
    )
    NOT_SERVED = (
        "NotServed",
        "Pod",
        "The pod requests a resource that no node offers, selects a GPU product that no node is labelled with, or has "
        "an annotation that Purser ignores.",
        "Follow the advice in the message, such as to request another resource.",
    )
    GRANTED_TWICE = (
        "GrantedTwice",
        "Pod",
        "The pod was granted devices that another pod already uses, which can happen when the leader changes.",
        "Recreate the pod. Pods that have a controller are deleted and recreated automatically.",
    )


class PendingReason(ExplainedReason):
    """Why a pod waits that no node was refused for."""

    KUBE_SCHEDULER = (
        "KubeScheduler",
        "Pod",
        "Purser has not rejected the pod: kube-scheduler's own filters reject it, or the pod is new.",
        "See the pod's FailedScheduling event.",
    )
    SCHEDULING_GATED = (
        "SchedulingGated",
        "Pod",
        "The pod has scheduling gates, so kube-scheduler does not try to schedule it.",
        "Wait for whoever set the gates to remove them.",
    )
    INVALID_REQUEST = (
        "InvalidRequest",
        "Pod",
        "The pod's GPU request is invalid, or its spec violates a webhook rule.",
        "See the pod's FailedScheduling event.",
    )


class BindFailure(ExplainedReason):
    """Why a pod is not bound by Purser, or was bound past it: the ``reason`` label of the metric of failed Bindings."""

    NOT_LEADING = (
        "NotLeading",
        "Pod",
        "This replica of the scheduler is not the leader, or has just become leader and has not read the cluster yet.",
        "Wait a few seconds. If the error persists, check the lease purser-kube-scheduler.",
    )
    POD_DELETED = "PodDeleted", "Pod", "The pod was deleted, is being deleted, or has finished."
    NOT_FOR_PURSER = (
        "NotForPurser",
        "Pod",
        "The pod names another scheduler or does not request a GPU.",
        "Compare the extender's managedResources in kube-scheduler's configuration with the chart's.",
    )
    POD_NOT_ALLOWED = (
        "PodNotAllowed",
        "Pod",
        "The pod's GPU request is invalid, or its spec violates a webhook rule.",
        "See the pod's FailedScheduling event.",
    )
    NODE_CLOSED = (
        "NodeClosed",
        "Pod",
        "The node was cordoned or tainted after kube-scheduler had chosen it, or lost a label that the pod selects.",
    )
    NODE_LOCKED = (
        "NodeLocked",
        "Pod",
        "The node lock, which makes HAMi's or another vendor's device plugin serve one pod at a time, cannot be "
        "acquired.",
        "If the error persists, check that device plugin's log; see docs/vendors.md.",
    )
    NO_INVENTORY = (
        "NoInventory",
        "Pod",
        "The node no longer has a GPU inventory, or no longer lists the devices that were chosen for the pod.",
        "Check the log of Purser's agent on the node, or of the device plugin that serves the devices.",
    )
    NO_LONGER_FITS = (
        "NoLongerFits",
        "Pod",
        "The pod no longer fits on the node that kube-scheduler chose, usually because other pods took the free GPUs. "
        "kube-scheduler retries the pod.",
    )
    LEDGER_REFUSED = (
        "LedgerRefused",
        "Pod",
        "The ledger rejected the grant that Purser had just decided on. This is a bug.",
        "Report it with the scheduler's log line.",
    )
    ALREADY_BOUND = "AlreadyBound", "Pod", "The pod is bound to another node."
    BOUND_WITHOUT_GRANT = (
        "BoundWithoutGrant",
        "Pod",
        "The pod requests GPUs but was bound without a grant by something other than Purser.",
        "Find out what bound it, such as a second scheduler, and recreate the pod.",
    )
    BOUND_WITH_INVALID_GRANT = (
        "BoundWithInvalidGrant",
        "Pod",
        "The pod is bound, but the grant in its annotations is invalid, or was changed or removed.",
        "See the pod's UntrustedGrant event.",
    )
    OUTCOME_UNKNOWN = (
        "OutcomeUnknown",
        "Pod",
        "The response to the pod's Binding was lost, so Purser is asking the API server whether the pod is bound.",
    )
    API_ERROR = (
        "ApiError",
        "Pod",
        "A request to the API server failed: reading the pod or the node, or creating the Binding.",
        "See the error in the scheduler's log. If a request was refused, check RBAC and the admission webhooks, "
        "otherwise whether the API server can be reached.",
    )
