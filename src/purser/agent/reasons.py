"""Reasons of the agent's events and of the condition that it writes; those of refusals are in `refusals`."""

from purser.core.kubernetes.reasons import ExplainedReason


class AgentReason(ExplainedReason):
    """Reasons of the agent's events and conditions on its node and the node's pods."""

    GPU_UNHEALTHY = (
        "GpuUnhealthy",
        "Node",
        "A GPU failed and takes no new pods. The message names the cause: an Xid, a call that the driver did not "
        "answer, or a reset that the driver asks for.",
        "Follow the message, unless GpuRecovered comes next.",
    )
    GPU_DEGRADED = (
        "GpuDegraded",
        "Node",
        "A GPU takes pods, but something is wrong with it, such as its memory.",
        "Follow the message once no pod uses the GPU.",
    )
    GPU_RECOVERED = "GpuRecovered", "Node", "A GPU that had failed or was degraded is healthy again."
    HELD_GPU_UNHEALTHY = (
        "HeldGpuUnhealthy",
        "Pod",
        "A GPU that the pod holds, in full or in part, has failed. The message names the cause, as GpuUnhealthy on the "
        "node does.",
        "Recreate the pod: it gets another GPU.",
    )
    HELD_GPU_DEGRADED = (
        "HeldGpuDegraded",
        "Pod",
        "Something is wrong with a GPU that the pod holds, such as its memory. The pod can continue.",
        "Follow the message once no pod uses the GPU.",
    )
    HELD_GPU_RECOVERED = "HeldGpuRecovered", "Pod", "A GPU that the pod holds is healthy again."
    GPU_NODE_TAINTED = (
        "GpuNodeTainted",
        "Node",
        "The agent tainted its node because a GPU takes no pods (option taint-nodes).",
        "Follow the event GpuUnhealthy. The agent removes the taint once all GPUs take pods.",
    )
    GPU_NODE_CORDONED = (
        "GpuNodeCordoned",
        "Node",
        "The agent cordoned its node because a GPU needs a reboot (option cordon-nodes).",
        "Restart the node. The agent uncordons it once no GPU needs a reboot.",
    )
    GPU_NODE_RELEASED = "GpuNodeReleased", "Node", "The agent removed the taint or cordon that it had set for GPUs."
    GPU_RESET = "GpuReset", "Node", "The agent reset a GPU that needed it (option reset-gpus)."
    GPU_RESET_FAILED = (
        "GpuResetFailed",
        "Node",
        "A GPU that needs a reset could not be reset; the message contains nvidia-smi's error. The agent tries again "
        "after 5 minutes.",
        "Stop whatever else has the GPU open, such as an exporter, or restart the node.",
    )
    GPU_PROGRAM_ERROR = (
        "GpuProgramError",
        "Pod",
        "The driver reported an Xid that a program caused on a GPU which the pod holds. The GPU itself is healthy.",
        "Restart the program if it belongs to this pod. If the GPU is shared, it may belong to another pod.",
    )
    HOLDS_WITHOUT_GRANT = (
        "HoldsWithoutGrant",
        "Pod",
        "The pod runs with GPUs, and its grant was removed, changed or revoked, or never existed.",
        "Recreate the pod, so that the scheduler grants it GPUs.",
    )
    CONFIG_NOT_USABLE = (
        "DevicePluginConfigNotUsable",
        "Node",
        "The device plugin's configuration of the node cannot be read, or its MIG strategy does not match the node's "
        "GPUs. The message says what applies instead: the last valid one or, if there was none, the agent's options.",
        "Correct what the message names: the file, label nvidia.com/device-plugin.config of the node, or MIG layout.",
    )
    CONFIG_IN_PART = (
        "DevicePluginConfigInPart",
        "Node",
        "The device plugin's configuration of the node is in use but for what the message names: an entry that cannot "
        "be read, devices that the node does not have, or something that has another effect than elsewhere.",
        "Correct the entry that the message names, unless it is intended. purser agent check lists all of them.",
    )
    MIG_EMPTY = (
        "GpuWithoutMigDevices",
        "Node",
        "A GPU has MIG enabled but no MIG devices, and the MIG strategy is mixed, so the node does not list the GPU.",
        "Create MIG devices (label nvidia.com/mig.config of the node, or nvidia-smi mig), or disable MIG.",
    )
    SRIOV_CONFIG = (
        "SriovConfigNotUsable",
        "Node",
        "The configuration file of SR-IOV pools cannot be read, and the last one that could stays; or something in it "
        "is not followed: a pool with a mistake is left out, a value that means nothing passed over, the rest served.",
        "Correct what the message names. purser agent check lists every problem.",
    )
    SRIOV_ROUTES = (
        "SriovRoutesNotReadable",
        "Node",
        "The node's routes cannot be read, so that the agent cannot know which interface has the default route. "
        "Existing SR-IOV pools are unchanged; an agent that just started has none.",
        "Let the agent read the host's /proc/1/net/route. The message names the cause.",
    )
    SRIOV_EMPTY = (
        "SriovPoolEmpty",
        "Node",
        "No device of the node belongs to the SR-IOV pool: its pods stay pending. The message says which selector "
        "leaves none, and what the devices have instead.",
        "Correct the selector, or create VFs and bind their driver. The agent checks again every ten seconds.",
    )
    SRIOV_UNHEALTHY = (
        "SriovDevicesUnhealthy",
        "Node",
        "Devices of the SR-IOV pool take no new pods: their port has no link, or they are gone or changed while a pod "
        "holds them.",
        "Follow the message. The devices take pods again once the cause is repaired.",
    )
    SRIOV_UNPUBLISHED = (
        "SriovPoolsUnpublished",
        "Node",
        "The node has more SR-IOV pools with devices, or a pool below more PCIe switches, than its inventory has room "
        "for. The scheduler knows no pairs for devices that the message names: pods that require pairs with these "
        "are refused there (GpuNicPoolNotFound, GpuNicPairsNotFound), others get them as before.",
        "Put the pools whose devices pods want near their GPUs first in the file, or several pools' selectors in one.",
    )
    NIC_APART = (
        "GpuNicPairsMissed",
        "Pod",
        "The pod has fewer of its GPUs and network devices below the same PCIe switches than its event Granted says: "
        "kubelet took other devices, or pods without GPUs hold them.",
        "Recreate the pod if it needs them.",
    )
    MPS_UNAVAILABLE = (
        "MpsUnavailable",
        "Node",
        "A GPU is configured for sharing by MPS, but its MPS daemon does not answer, so shares of it are not enforced.",
        "Follow the message. A daemon that ended is restarted.",
    )
    MPS_CLIENTS_LOST = (
        "MpsClientsLost",
        "Pod",
        "The MPS daemon of the pod's GPU ended, or its server ended or is in state FAULT: programs that used it fail.",
        "Restart the pod, unless its containers have restarted by themselves.",
    )
    ENFORCEMENT_CHANGED = (
        "EnforcementChanged",
        "Pod",
        "The enforcement on the pod's GPUs changed between binding and start, for example because HAMi-core's "
        "library was installed or removed.",
        "Recreate the pod if its limits must be enforced as the grant says.",
    )
    GPU_MEMORY_OVERUSED = (
        "GpuMemoryOverused",
        "Pod",
        "For 30 seconds the pod's processes have used more memory of a GPU than it was granted.",
        "Ask for as much memory as the program needs, or have limits enforced (docs/enforcement.md).",
    )
    GPU_COMPUTE_OVERUSED = (
        "GpuComputeOverused",
        "Pod",
        "For five minutes the pod's processes have used more compute of a GPU, on average, than it was granted.",
        "Ask for as many gpucores as the program needs, or have limits enforced (docs/enforcement.md).",
    )
    GPU_USED_WITHOUT_GRANT = (
        "GpuUsedWithoutGrant",
        "Pod",
        "The pod's processes use a GPU that it was not granted.",
        "Make the pod ask for a GPU. docs/hardening.md says how to keep pods off devices that they did not ask for.",
    )
    GPU_USED_BY_FOREIGN_PROCESS = (
        "GpuUsedByForeignProcess",
        "Node",
        "Processes that belong to no pod use a GPU that is granted to pods. The message has their pids.",
        "Stop them on the node, or cordon that GPU.",
    )
    GPU_USE_SETTLED = (
        "GpuUseSettled",
        "Pod, Node",
        "The cause of GpuMemoryOverused, GpuComputeOverused, GpuUsedWithoutGrant or GpuUsedByForeignProcess is gone.",
    )
    EVICTED_FROM_UNHEALTHY_GPU = (
        "EvictedFromUnhealthyGpu",
        "Pod",
        "The pod was evicted because a GPU that it held was unhealthy for 60 seconds: the agent runs with "
        "--evict-from-unhealthy-gpus.",
        "Nothing to do if a controller owns the pod: the next one gets another GPU.",
    )
    OVER_USER_EVICTED = (
        "OverUserEvicted",
        "Pod",
        "The pod was evicted because of GpuMemoryOverused: the agent runs with --evict-over-users.",
        "Ask for as much memory as the program needs.",
    )
