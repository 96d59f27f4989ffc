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
        "The pod has no valid grant, or the grant did not arrive within three seconds. A pod that missed the webhook "
        "stays Pending with CreateContainerConfigError; if a controller owns it, it is recreated once the scheduler "
        "is back.",
        "Follow the message. As a rule, recreate the pod while the webhook is reachable.",
    )
    GONE = "PodGone", "Pod", "The pod was deleted before kubelet admitted it."
    AMBIGUOUS = (
        "AmbiguousPod",
        "Pod",
        "kubelet asks for devices for one of several pods, and the agent cannot tell which.",
        "Delete the pods among them that kubelet has rejected.",
    )
    MISMATCH = (
        "DevicesDifferFromGrant",
        "Pod",
        "kubelet chose device ids of other GPUs than were granted.",
        "Recreate the pod. With a static CPU or topology manager policy, see docs/kubelet.md.",
    )
    OVERCOMMIT = (
        "DeviceOvercommitted",
        "Pod",
        "Other pods hold so much of the GPU that the grant no longer fits.",
        "Recreate the pod. If the pods that the message names are stuck, delete them.",
    )
    STRANGER = (
        "DeviceHeldByOtherPod",
        "Pod",
        "A pod without a grant holds the GPU.",
        "Delete the pod that the message names.",
    )
    IN_USE = (
        "DeviceInUse",
        "Pod",
        "Processes of a pod that no longer exists still run on the GPU. The container waits for them.",
        "Wait until kubelet has ended them. If they hang, end them on the node that the pod is on.",
    )
    UNHEALTHY = (
        "DeviceUnhealthy",
        "Pod",
        "The GPU failed after it was granted.",
        "Recreate the pod. The failed GPU takes no new pods.",
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
        "The agent cannot write the device information that CNI plugins read.",
        "Free space on the node, or correct what the message names; then recreate the pod.",
    )
    UNENFORCED = (
        "EnforcementLost",
        "Pod",
        "The pod requires enforcement, and its GPUs have lost it since the pod was bound.",
        "Recreate the pod. The scheduler places it where its share is enforced.",
    )
    TOO_MANY_REPLICAS = (
        "TooManyReplicas",
        "Pod",
        "The pod asks for several replicas of GPUs, and the node's configuration sets failRequestsGreaterThanOne.",
        "Ask for one: a second replica gives no more of a GPU.",
    )
    INSTANCE = (
        "MigInstanceRefused",
        "Pod",
        "The GPU instance that the pod was granted cannot be created: something else is in its place, or NVML refused.",
        "Follow the message. The pod's controller recreates the pod, and the scheduler places it again.",
    )
    MALFORMED = (
        "MalformedRequest",
        "metric",
        "The device plugin got a call that kubelet never makes.",
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
        "Make the folder writable that the message names.",
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
