"""Why a pod that is on a node does not run there, or failed: kubelet's own words (pkg/kubelet of Kubernetes 1.37)."""

from purser.core.kubernetes.reasons import ExplainedReason


class StartReason(ExplainedReason):
    """Reasons in the states of containers and of failed pods, and Purser's own where kubelet says nothing."""

    NODE_GONE = (
        "NodeGone",
        "Pod",
        "The pod's node no longer exists.",
        "Delete the pod, and recreate it unless a controller does.",
    )
    KUBELET_NOT_READY = (
        "KubeletNotReady",
        "Node",
        "kubelet reports that its node cannot run pods.",
        "Check the container runtime and the network plugin on the node.",
    )
    NODE_UNKNOWN = (
        "NodeStatusUnknown",
        "Node",
        "kubelet has stopped reporting the state of its node.",
        "Check the node, its network and kubelet.",
    )
    NOT_ADMITTED = (
        "NotAdmittedYet",
        "Pod",
        "kubelet has not acknowledged the pod yet.",
        "Wait a few seconds. If this persists, check kubelet's log on the node.",
    )
    CREATING = (
        "ContainerCreating",
        "Pod",
        "kubelet is preparing the container: volumes, network, image and devices.",
        "Wait. If this persists, see the pod's events.",
    )
    IMAGE_BACK_OFF = (
        "ImagePullBackOff",
        "Pod",
        "The image could not be pulled, and kubelet is waiting before it tries again.",
        "Check the image's name and tag, imagePullSecrets, and whether the node can reach the registry.",
    )
    IMAGE_PULL = (
        "ErrImagePull",
        "Pod",
        "The image cannot be pulled.",
        "Check the image's name and tag, imagePullSecrets, and whether the node can reach the registry.",
    )
    IMAGE_NAME = "InvalidImageName", "Pod", "The image name is invalid.", "Correct the image name."
    IMAGE_NEVER = (
        "ErrImageNeverPull",
        "Pod",
        "The image is not on the node, and imagePullPolicy is Never.",
        "Load the image on the node, or change imagePullPolicy.",
    )
    IMAGE_INSPECT = (
        "ImageInspectError",
        "Pod",
        "The container runtime cannot read the image on the node.",
        "Check the container runtime and its disk on the node.",
    )
    CONTAINER_CONFIG = (
        "CreateContainerConfigError",
        "Pod",
        "The container cannot be configured, for example because a ConfigMap, Secret or key is missing, or because a "
        "device plugin's PreStartContainer call failed.",
        "Fix the problem that the message describes. If it is about GPUs, see the pod's events.",
    )
    CONTAINER_CREATE = (
        "CreateContainerError",
        "Pod",
        "The container runtime cannot create the container.",
        "Fix the problem that the message describes. If it is about a CDI device, run purser agent check on the node.",
    )
    CONTAINER_RUN = (
        "RunContainerError",
        "Pod",
        "The container runtime cannot start the container.",
        "Fix the problem that the message describes. Check the container's command and mounted devices.",
    )
    CRASH_LOOP = (
        "CrashLoopBackOff",
        "Pod",
        "The container keeps exiting, and kubelet is waiting before it restarts the container.",
        "Check the log of the last run: kubectl logs --previous.",
    )
    START = (
        "StartError",
        "Pod",
        "The container runtime could not start the container.",
        "Fix the problem that the message describes. Check the container's command and mounted devices.",
    )
    OUT_OF_MEMORY = (
        "OOMKilled",
        "Pod",
        "The kernel killed a process of the container because the container exceeded its memory limit, which does not "
        "cover GPU memory, or because the node was out of memory.",
        "Raise the container's memory limit. If the node was out of memory, raise the container's memory request.",
    )
    ERROR = (
        "Error",
        "Pod",
        "The container exited with a non-zero exit code.",
        "Check the container's log: kubectl logs.",
    )
    ADMISSION = (
        "UnexpectedAdmissionError",
        "Pod",
        "kubelet rejected the pod while allocating its devices, CPUs or memory, usually because a device plugin "
        "refused or the devices were no longer available.",
        "See the pod's events, then recreate the pod. Controllers recreate their pods automatically.",
    )
    TOPOLOGY = (
        "TopologyAffinityError",
        "Pod",
        "kubelet's topology manager could not align the pod's resources with NUMA nodes as its policy requires.",
        "Request fewer CPUs or GPUs. docs/kubelet.md describes on which nodes Purser predicts this.",
    )
    SMT = (
        "SMTAlignmentError",
        "Pod",
        "The node's CPU manager allocates only full cores, but the pod requests part of a core, or too few full cores "
        "are free.",
        "Request a multiple of the threads per core. If too few cores are free, recreate the pod once others have "
        "ended.",
    )
    OUT_OF = (
        "OutOf...",
        "Pod",
        "When the pod reached kubelet, the node had less of a resource left than the pod requests, for example because "
        "another pod was admitted first.",
        "Recreate the pod. Controllers recreate their pods automatically.",
    )
    EVICTED = (
        "Evicted",
        "Pod",
        "kubelet evicted the pod because the node ran short of memory, disk space or process IDs, or because the pod"
        " exceeded its storage limit.",
        "Set requests and limits for the resource that the message names, or free some of it on the node.",
    )
    DEADLINE = (
        "DeadlineExceeded",
        "Pod",
        "The pod ran longer than its activeDeadlineSeconds.",
        "Raise activeDeadlineSeconds of the pod or its Job.",
    )
    SHUT_DOWN = (
        "Terminated",
        "Pod",
        "The node was shut down, and kubelet terminated its pods.",
        "Recreate the pod. Controllers recreate their pods automatically.",
    )
    SHUTTING_DOWN = (
        "NodeShutdown",
        "Pod",
        "The node is shutting down, so its kubelet does not admit pods.",
        "Recreate the pod. Controllers recreate their pods automatically.",
    )
