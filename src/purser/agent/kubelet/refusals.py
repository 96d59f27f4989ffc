"""Why the agent refuses, as values: reasons are shared by events, metrics and gRPC errors."""

from collections.abc import Iterable

from purser.core.grant.disputes import RefusedPod
from purser.core.kubernetes.reasons import ExplainedReason


class RefusalReason(ExplainedReason):
    """Of the event on a pod that the agent refused, and of the metric; kubelet rejects the pod.
    Where no pod is known there is the metric alone."""

    NO_GRANT = (
        "NoGrant",
        "Pod",
        "The pod has no valid grant, or the grant did not arrive within three seconds. A pod that bypassed the "
        "webhook stays Pending with CreateContainerConfigError; if a controller owns the pod, the pod is "
        "recreated once the scheduler is back.",
        "Do what the message says: usually, recreate the pod while the webhook is reachable.",
    )
    GONE = "PodGone", "metric", "The pod was deleted before kubelet admitted it."
    AMBIGUOUS = (
        "AmbiguousPod",
        "Pod",
        "kubelet asks for devices for one of several pods, and the agent cannot determine which one.",
        "Delete the pod that kubelet has rejected.",
    )
    MISMATCH = (
        "DevicesDifferFromGrant",
        "Pod",
        "kubelet chose device IDs that belong to GPUs other than the granted ones.",
        "Recreate the pod. With a static CPU or topology manager policy, see docs/kubelet.md.",
    )
    OVERCOMMIT = (
        "DeviceOvercommitted",
        "Pod",
        "Other pods hold so much of the GPU that the grant no longer fits, or the node no longer has the GPU.",
        "Recreate the pod. If the pods that the message or the node's condition PurserGpuDisputed names are stuck, "
        "delete them.",
    )
    STRANGER = (
        "DeviceHeldByOtherPod",
        "Pod",
        "A pod without a grant, or a pod that no longer exists on the API server, holds the GPU.",
        "Delete the pod that the message or the node's condition PurserGpuDisputed names. If it no longer exists, wait "
        "until kubelet has terminated it.",
    )
    IN_USE = (
        "DeviceInUse",
        "Pod",
        "Processes of a pod that no longer exists still use the GPU. The container starts once they have exited.",
        "Wait until kubelet has stopped the processes. If a process hangs, kill it on the node.",
    )
    UNHEALTHY = (
        "DeviceUnhealthy",
        "Pod",
        "The GPU failed after it was granted.",
        "Recreate the pod. The failed GPU is closed to new pods.",
    )
    SRIOV_GONE = (
        "SriovDeviceGone",
        "metric",
        "The network device was removed from its pool after kubelet chose the device.",
        "Recreate the pod.",
    )
    NIC_APART = (
        "GpuNicPairsLost",
        "Pod",
        "The pod requires its GPUs and network devices under the same PCIe switches, but kubelet chose devices "
        "other than those the grant assumes.",
        "Recreate the pod.",
    )
    SRIOV_FILES = (
        "SriovFilesNotWritten",
        "metric",
        "The agent cannot write the device information that CNI plugins read.",
        "Free up disk space on the node, or fix the problem that the message describes; then recreate the pod.",
    )
    UNENFORCED = (
        "EnforcementLost",
        "Pod",
        "The pod requires enforcement, but limits on its GPUs have stopped being enforced since the pod was bound.",
        "Recreate the pod. The scheduler places the new pod where its share is enforced.",
    )
    TOO_MANY_REPLICAS = (
        "TooManyReplicas",
        "Pod",
        "The pod requests several GPU replicas, but the node's configuration sets failRequestsGreaterThanOne.",
        "Request one replica: a second replica does not provide more of a GPU.",
    )
    INSTANCE = (
        "MigInstanceRefused",
        "Pod",
        "The GPU instance that the pod was granted cannot be provided, for example because another instance occupies "
        "its place or NVML rejected the call.",
        "Do what the message says. If kubelet has rejected the pod and a controller owns it, the pod is recreated.",
    )
    MALFORMED = (
        "MalformedRequest",
        "metric",
        "The device plugin received a call that kubelet never makes.",
        "Find out which process calls the plugin's socket.",
    )
    KUBELET = (
        "KubeletUnavailable",
        "metric",
        "kubelet's PodResources API does not answer.",
        "Check kubelet and the agent's option --pod-resources-socket.",
    )
    HOST = (
        "HostNotWritable",
        "Pod",
        "A folder that the container needs cannot be created on the node.",
        "Make the folder named in the message writable.",
    )


class AllocationRefused(Exception):
    """kubelet's call is refused; the message says why and what to do."""

    def __init__(
        self,
        reason: RefusalReason,
        message: str,
        pods: Iterable[str] = (),
        dispute: RefusedPod | None = None,
        *,
        may_wait: bool = False,
        in_the_way: Iterable[str] = (),
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.pods = tuple(pods)
        """Keys of the pods that this is about: they get an event."""
        self.dispute = dispute
        """What the scheduler has to hear, where it granted what is not there."""
        self.in_the_way = tuple(in_the_way)
        """Keys of the pods that hold what the pod was granted: for the log. The message is read by the pod's owner, and
        names none of other namespaces."""
        self.may_wait = may_wait
        """Whether the pod is admitted all the same, and its containers are refused instead, each time that they are to
        start. kubelet fails a pod that it does not admit, and a controller makes the next one at once."""
