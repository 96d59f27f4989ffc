"""Why a pod that is on a node does not run there, or failed: kubelet's own words (pkg/kubelet of Kubernetes 1.37)."""

from purser.core.kubernetes.reasons import ExplainedReason


class StartReason(ExplainedReason):
    """Reasons in the states of containers and of failed pods, and Purser's own where kubelet says nothing."""

    NODE_GONE = (
        "NodeGone",
        "Pod",
        "The node that the pod is on does not exist any more.",
        "Delete the pod. Its controller creates another.",
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
        "kubelet has not reported yet that it has seen the pod.",
        "Wait a few seconds. If it lasts, check kubelet's log on the node.",
    )
    CREATING = (
        "ContainerCreating",
        "Pod",
        "kubelet prepares the container: its volumes, network, image and devices.",
        "Wait. If it lasts, see the pod's events.",
    )
    IMAGE_BACK_OFF = (
        "ImagePullBackOff",
        "Pod",
        "The image could not be pulled, and kubelet waits before it tries again.",
        "Check the name and tag of the image, imagePullSecrets, and whether the node reaches the registry.",
    )
    IMAGE_PULL = (
        "ErrImagePull",
        "Pod",
        "The image cannot be pulled.",
        "Check the name and tag of the image, imagePullSecrets, and whether the node reaches the registry.",
    )
    IMAGE_NAME = "InvalidImageName", "Pod", "The name of the image is invalid.", "Correct the name of the image."
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
        "The container cannot be configured: a ConfigMap, Secret or key is missing, or a device plugin is not ready to"
        " start the container.",
        "Create what the message names. If it is about GPUs, see the pod's events.",
    )
    CONTAINER_CREATE = (
        "CreateContainerError",
        "Pod",
        "The container runtime cannot create the container.",
        "Follow the message. If it is about a CDI device, run purser agent check on the node.",
    )
    CONTAINER_RUN = (
        "RunContainerError",
        "Pod",
        "The container runtime cannot start the container.",
        "Follow the message. Check the container's command and the devices that it mounts.",
    )
    CRASH_LOOP = (
        "CrashLoopBackOff",
        "Pod",
        "The container exits again and again, and kubelet waits before it starts it again.",
        "Read the log of its last run: kubectl logs --previous.",
    )
    START = (
        "StartError",
        "Pod",
        "The container runtime could not start the container.",
        "Follow the message. Check the container's command and the devices that it mounts.",
    )
    OUT_OF_MEMORY = (
        "OOMKilled",
        "Pod",
        "The container used more memory than its limit, and the kernel killed it. GPU memory does not count for this.",
        "Raise the container's memory limit.",
    )
    ERROR = (
        "Error",
        "Pod",
        "The container exited with another code than 0.",
        "Read its log: kubectl logs.",
    )
    ADMISSION = (
        "UnexpectedAdmissionError",
        "Pod",
        "kubelet rejected the pod when it allocated devices or CPUs for it: as a rule, a device plugin refused, or the"
        " devices had gone meanwhile.",
        "See the pod's events, then create the pod again. A controller does so by itself.",
    )
    TOPOLOGY = (
        "TopologyAffinityError",
        "Pod",
        "kubelet's topology manager found no NUMA node with all that the pod requests.",
        "Request fewer CPUs or GPUs, or see docs/kubelet.md for nodes on which Purser predicts it.",
    )
    SMT = (
        "SMTAlignmentError",
        "Pod",
        "The node's CPU manager hands out full cores only, and the pod requests part of a core.",
        "Request a multiple of the threads per core.",
    )
    OUT_OF = (
        "OutOf...",
        "Pod",
        "The node had less of a resource left than the pod requests when kubelet admitted it: another pod came first.",
        "Create the pod again. A controller does so by itself.",
    )
    EVICTED = (
        "Evicted",
        "Pod",
        "kubelet evicted the pod: the node was short of memory, disk or process IDs, or the pod wrote more than its"
        " limit.",
        "Set requests and limits for what the message names, or free it on the node.",
    )
    DEADLINE = (
        "DeadlineExceeded",
        "Pod",
        "The pod ran for longer than its activeDeadlineSeconds.",
        "Raise activeDeadlineSeconds of the pod or its Job.",
    )
    SHUT_DOWN = (
        "Terminated",
        "Pod",
        "The node was shut down, and kubelet ended its pods.",
        "Create the pod again. A controller does so by itself.",
    )
    SHUTTING_DOWN = (
        "NodeShutdown",
        "Pod",
        "The node is being shut down, and its kubelet admits no pods.",
        "Create the pod again. A controller does so by itself.",
    )
