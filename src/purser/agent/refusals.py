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
        "The pod has no grant that counts, or it did not arrive within three seconds. A pod that missed the webhook "
        "stays Pending, with CreateContainerConfigError, and a controller's is recreated once the scheduler is back.",
        "Do what the message says: as a rule, create the pod again while the webhook can be reached.",
    )
    GONE = "PodGone", "Pod", "The pod was deleted before kubelet took it."
    AMBIGUOUS = (
        "AmbiguousPod",
        "Pod",
        "kubelet asks for devices for one of several pods, and it is unknown for which.",
        "Delete those of the pods that kubelet has rejected.",
    )
    MISMATCH = (
        "DevicesDifferFromGrant",
        "Pod",
        "kubelet chose device ids of other GPUs than those granted.",
        "Create the pod again; with a static CPU or topology manager policy see docs/kubelet.md.",
    )
    OVERCOMMIT = (
        "DeviceOvercommitted",
        "Pod",
        "Other pods hold so much of the GPU that the grant does not fit any more.",
        "Create the pod again; end the pods that the message names if they are stuck.",
    )
    STRANGER = (
        "DeviceHeldByOtherPod",
        "Pod",
        "A pod without a grant holds the GPU.",
        "End the pod that the message names.",
    )
    UNHEALTHY = (
        "DeviceUnhealthy",
        "Pod",
        "The GPU failed after it was granted.",
        "Create the pod again; the failed GPU gets no new pods.",
    )
    SRIOV_GONE = (
        "SriovDeviceGone",
        "Pod",
        "The network device left its pool after kubelet chose it.",
        "Create the pod again.",
    )
    NIC_APART = (
        "GpuNicPairsLost",
        "Pod",
        "The pod requires its GPUs and network devices below the same PCIe switches, and kubelet took others than its "
        "grant was made for.",
        "Create the pod again.",
    )
    SRIOV_FILES = (
        "SriovFilesNotWritten",
        "Pod",
        "The device information that CNI plugins read of the network device cannot be written.",
        "Free space on the node, or correct what the message names; then create the pod again.",
    )
    UNENFORCED = (
        "EnforcementLost",
        "Pod",
        "The pod requires enforcement, and what held shares of its GPUs is gone since it was bound.",
        "Create the pod again: it is placed where its share is enforced.",
    )
    TOO_MANY_REPLICAS = (
        "TooManyReplicas",
        "Pod",
        "The pod asks for several replicas of GPUs, and the node's configuration sets failRequestsGreaterThanOne.",
        "Ask for one: a second replica is no more of a GPU.",
    )
    INSTANCE = (
        "MigInstanceRefused",
        "Pod",
        "The GPU instance that the pod was granted cannot be created: something else is in its place, or NVML refused.",
        "Do what the message says; the pod's controller creates it again, and it is placed again.",
    )
    MALFORMED = (
        "MalformedRequest",
        "metric",
        "The device plugin got a call that no kubelet makes.",
        "Find out which process calls the plugin's socket.",
    )
    KUBELET = (
        "KubeletUnavailable",
        "metric",
        "kubelet's PodResources API does not answer.",
        "Check kubelet, and the agent's option --pod-resources-socket.",
    )
    HOST = (
        "HostNotWritable",
        "Pod",
        "A folder that the container needs cannot be created on the node.",
        "Make the folder that the message names writable.",
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
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.pods = tuple(pods)
        """Keys of the pods that this is about: they get an event."""
        self.dispute = dispute
        """What the scheduler has to hear, where it granted what is not there."""
        self.may_wait = may_wait
        """Whether the pod is admitted all the same, and its containers are refused instead, each time that they are to
        start. kubelet fails a pod that it does not admit, and a controller makes the next one at once."""
