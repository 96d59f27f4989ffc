"""Reasons of the scheduler's events, of pods that wait, and of Bindings that fail."""

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
        "The pod was created while the webhook could not be reached: the default scheduler gives it no GPU.",
        "Create the pod again; pods of controllers are deleted and recreated without you.",
    )
    OTHER_SCHEDULER = (
        "OtherScheduler",
        "Pod",
        "The pod asks for GPUs and names another scheduler, which did not place it within 15 seconds.",
        "Create it again without schedulerName, or have Purser adopt that name.",
    )
    NOT_GRANTED = (
        "NotGranted",
        "Pod",
        "Another scheduler placed the pod on a node without room for it on its GPUs: kubelet rejects it.",
        "Read the message; pods of controllers are recreated. Give that scheduler nodes of its own.",
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


class BindFailure(ExplainedReason):
    """Why a pod is not bound by Purser, or was bound past it: the ``reason`` label of the metric of failed Bindings."""

    NOT_LEADING = (
        "NotLeading",
        "Pod",
        "This replica of the scheduler is not the leader, or has just become leader and has not read the cluster yet.",
        "Wait a few seconds; if it lasts, look at the lease purser-kube-scheduler.",
    )
    POD_DELETED = "PodDeleted", "Pod", "The pod was deleted, is being deleted, or has ended."
    NOT_FOR_PURSER = (
        "NotForPurser",
        "Pod",
        "The pod names another scheduler, or asks for no GPU.",
        "Compare the extender's managedResources in kube-scheduler's configuration with the chart's.",
    )
    POD_NOT_ALLOWED = (
        "PodNotAllowed",
        "Pod",
        "The pod's GPU request is invalid, or its spec breaks a rule of the webhook.",
        "Do what the pod's FailedScheduling says.",
    )
    NODE_CLOSED = (
        "NodeClosed",
        "Pod",
        "The node was cordoned or tainted after kube-scheduler had chosen it, or lost a label that the pod selects.",
    )
    NODE_LOCKED = (
        "NodeLocked",
        "Pod",
        "The node's lock, by which another vendor's device plugin serves one pod at a time, cannot be taken.",
        "If it lasts, look at the log of that device plugin; see docs/vendors.md.",
    )
    NO_INVENTORY = (
        "NoInventory",
        "Pod",
        "The node has no inventory of GPUs any more.",
        "Look at the log of the node's agent.",
    )
    NO_LONGER_FITS = (
        "NoLongerFits",
        "Pod",
        "Other pods took what was free on the node after kube-scheduler had chosen it. It tries the pod again.",
    )
    LEDGER_REFUSED = (
        "LedgerRefused",
        "Pod",
        "The ledger does not take the grant that was just decided, which is a bug.",
        "Report it with the scheduler's log line.",
    )
    ALREADY_BOUND = "AlreadyBound", "Pod", "The pod is bound to another node."
    BOUND_WITHOUT_GRANT = (
        "BoundWithoutGrant",
        "Pod",
        "The pod asks for GPUs, and something other than Purser bound it, without a grant.",
        "Find out what bound it, such as a second scheduler, and create the pod again.",
    )
    BOUND_WITH_INVALID_GRANT = (
        "BoundWithInvalidGrant",
        "Pod",
        "The pod is bound, and the grant in its annotations has no valid signature.",
        "Do as UntrustedGrant of the pod says.",
    )
    OUTCOME_UNKNOWN = (
        "OutcomeUnknown",
        "Pod",
        "The answer to a Binding of the pod was lost, and Purser asks the API server whether the pod is bound.",
    )
    API_ERROR = (
        "ApiError",
        "Pod",
        "The API server did not answer, or refused the Binding.",
        "Read the error in the scheduler's log: rights, an admission webhook, or the API server itself.",
    )
