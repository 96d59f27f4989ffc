"""Reasons of the agent's events and of the condition that it writes; those of refusals are in `refusals`."""

from purser.core.kubernetes.reasons import ExplainedReason


class AgentReason(ExplainedReason):
    """Reasons of the agent's events and conditions on its node and the node's pods."""

    GPU_UNHEALTHY = (
        "GpuUnhealthy",
        "Node",
        "A GPU failed and is closed to new pods. The message names the cause, for example an Xid, a call that the "
        "driver did not answer, or a reset that the driver requires.",
        "Do what the message says, unless the event GpuRecovered follows.",
    )
    GPU_DEGRADED = (
        "GpuDegraded",
        "Node",
        "A GPU is open to new pods but has a problem, for example with its memory.",
        "Do what the message says once no pod uses the GPU.",
    )
    GPU_RECOVERED = (
        "GpuRecovered",
        "Node",
        "A GPU that was unhealthy is open to new pods again, or a GPU is no longer degraded. The message says whether "
        "a problem remains.",
    )
    HELD_GPU_UNHEALTHY = (
        "HeldGpuUnhealthy",
        "Pod",
        "A GPU that the pod holds, in full or in part, has failed. The message names the cause, as GpuUnhealthy on "
        "the node does.",
        "Recreate the pod: the new pod gets another GPU.",
    )
    HELD_GPU_DEGRADED = (
        "HeldGpuDegraded",
        "Pod",
        "A GPU that the pod holds has a problem, for example with its memory. The pod can continue.",
        "Do what the message says once no pod uses the GPU.",
    )
    HELD_GPU_RECOVERED = (
        "HeldGpuRecovered",
        "Pod",
        "A GPU that the pod holds is open to new pods again or no longer degraded. The message says whether a problem "
        "remains.",
    )
    GPU_NODE_TAINTED = (
        "GpuNodeTainted",
        "Node",
        "The agent tainted its node because a GPU is unhealthy (option taint-nodes).",
        "Do what the event GpuUnhealthy says. The agent removes the taint once no GPU is unhealthy.",
    )
    GPU_NODE_CORDONED = (
        "GpuNodeCordoned",
        "Node",
        "The agent cordoned its node because a GPU needs a reboot (option cordon-nodes).",
        "Reboot the node. The agent uncordons the node once no GPU needs a reboot.",
    )
    GPU_NODE_RELEASED = "GpuNodeReleased", "Node", "The agent removed the taint or cordon that it had set for GPUs."
    GPU_RESET = "GpuReset", "Node", "The agent reset a GPU that needed a reset (option reset-gpus)."
    GPU_RESET_FAILED = (
        "GpuResetFailed",
        "Node",
        "A GPU that needs a reset could not be reset; the message contains the error. The agent tries again after 5 "
        "minutes.",
        "Stop any other process that has the GPU open, such as an exporter, or reboot the node.",
    )
    GPU_PROGRAM_ERROR = (
        "GpuProgramError",
        "Pod",
        "The driver reported an Xid that a program caused on a GPU that the pod holds. The GPU itself is healthy.",
        "Restart the program if it belongs to this pod. If the GPU is shared, the program may belong to another pod.",
    )
    HOLDS_WITHOUT_GRANT = (
        "HoldsWithoutGrant",
        "Pod",
        "The pod runs with GPUs, but its grant was removed, changed or revoked, or never existed.",
        "Recreate the pod so that the scheduler grants it GPUs.",
    )
    CONFIG_NOT_USABLE = (
        "DevicePluginConfigNotUsable",
        "Node",
        "The node's device plugin configuration cannot be read, or its MIG strategy does not match the node's "
        "GPUs. The message says what is in effect instead: the last valid configuration, the agent's options, or the "
        "same configuration with MIG strategy none.",
        "Correct what the message names: the file, the node's label nvidia.com/device-plugin.config, the MIG strategy, "
        "or the MIG layout.",
    )
    CONFIG_IN_PART = (
        "DevicePluginConfigInPart",
        "Node",
        "The node's device plugin configuration is in effect, except for what the message names: an entry that "
        "cannot be read, devices that the node does not have, or a setting that has no effect or works differently in "
        "Purser.",
        "Correct the entry that the message names, unless it is intended. purser agent check lists all such entries.",
    )
    MIG_EMPTY = (
        "GpuWithoutMigDevices",
        "Node",
        "A GPU has MIG enabled but no MIG devices, so the node does not list the GPU.",
        "Create MIG devices (with the node's label nvidia.com/mig.config, or nvidia-smi mig), or disable MIG.",
    )
    SRIOV_CONFIG = (
        "SriovConfigNotUsable",
        "Node",
        "The configuration file of SR-IOV pools cannot be read, so the last valid configuration stays in "
        "effect; or parts of the file are ignored: invalid pools and values are skipped, and the other pools "
        "are served.",
        "Correct what the message names. purser agent check lists every problem.",
    )
    SRIOV_ROUTES = (
        "SriovRoutesNotReadable",
        "Node",
        "The node's routes cannot be read, so the agent does not know which interface has the default route. "
        "Existing SR-IOV pools are unchanged; an agent that has just started has no pools.",
        "Allow the agent to read the host's /proc/1/net/route. The message names the cause.",
    )
    SRIOV_EMPTY = (
        "SriovPoolEmpty",
        "Node",
        "No device on the node matches the SR-IOV pool, so pods that request the pool's devices stay pending. "
        "The message names the selector that no device matches, and the values that the devices have instead.",
        "Correct the selector, or create VFs and bind them to their driver. The agent checks again every ten seconds.",
    )
    SRIOV_UNHEALTHY = (
        "SriovDevicesUnhealthy",
        "Node",
        "Devices in the SR-IOV pool accept no new pods: their port has no link, a device file or an IOMMU group is "
        "missing, or they disappeared or changed while a pod held them.",
        "Do what the message says. The devices accept pods again once the cause is fixed.",
    )
    SRIOV_UNPUBLISHED = (
        "SriovPoolsUnpublished",
        "Node",
        "The node has more SR-IOV pools with devices, or a pool spans more PCIe switches, than the node's "
        "inventory can list. The scheduler cannot pair the devices that the message names with GPUs: the node "
        "is rejected for pods that require such pairs (GpuNicPoolNotFound, GpuNicPairsNotFound); other pods get "
        "the devices as before.",
        "List the pools whose devices pods need near their GPUs first in the file, or merge several pools into one.",
    )
    NIC_APART = (
        "GpuNicPairsMissed",
        "Pod",
        "Fewer of the pod's GPUs and network devices share a PCIe switch than its event Granted says: kubelet "
        "chose other devices, or pods without GPUs hold the planned ones.",
        "Recreate the pod if it needs all of these pairs.",
    )
    MPS_UNAVAILABLE = (
        "MpsUnavailable",
        "Node",
        "A GPU is configured for sharing with MPS, but does not support MPS, or its MPS daemon does not answer. MPS "
        "does not enforce the limits of its shares.",
        "Do what the message says. The agent restarts a daemon that exited.",
    )
    MPS_CLIENTS_LOST = (
        "MpsClientsLost",
        "Pod",
        "The MPS daemon or MPS server of the pod's GPU exited, the daemon stopped answering, or the server is in state "
        "FAULT: programs that used the server fail.",
        "Recreate the pod, unless its containers have already restarted.",
    )
    ENFORCEMENT_CHANGED = (
        "EnforcementChanged",
        "Pod",
        "Enforcement on the pod's GPUs changed between the pod's binding and its start, for example because "
        "HAMi-core's library was installed or removed.",
        "Recreate the pod if its limits must be enforced as the grant says.",
    )
    GPU_MEMORY_OVERUSED = (
        "GpuMemoryOverused",
        "Pod",
        "For 30 seconds, the pod's processes have used more memory on a GPU than the pod was granted, by more than 10 "
        "percent and more than 512 MiB.",
        "Request as much memory as the program needs, or enable enforcement of limits (docs/enforcement.md).",
    )
    GPU_COMPUTE_OVERUSED = (
        "GpuComputeOverused",
        "Pod",
        "For five minutes, the pod's processes have on average used more compute on a GPU than the pod was granted.",
        "Request as many gpucores as the program needs, or enable enforcement of limits (docs/enforcement.md).",
    )
    GPU_USED_WITHOUT_GRANT = (
        "GpuUsedWithoutGrant",
        "Pod",
        "The pod's processes use a GPU that the pod was not granted.",
        "Request a GPU for the pod. docs/hardening.md describes how to keep pods off devices that they did not "
        "request.",
    )
    GPU_USED_BY_FOREIGN_PROCESS = (
        "GpuUsedByForeignProcess",
        "Node",
        "Processes that belong to no pod use memory on one of the node's GPUs. The message lists their PIDs.",
        "Stop the processes on the node, or cordon the GPU.",
    )
    GPU_USE_SETTLED = (
        "GpuUseSettled",
        "Pod, Node",
        "The cause of GpuMemoryOverused, GpuComputeOverused, GpuUsedWithoutGrant or GpuUsedByForeignProcess no "
        "longer exists.",
    )
    EVICTED_FROM_UNHEALTHY_GPU = (
        "EvictedFromUnhealthyGpu",
        "Pod",
        "The pod was evicted because a GPU that it held was unhealthy for 60 seconds and the agent runs with "
        "--evict-from-unhealthy-gpus.",
        "Nothing to do if a controller owns the pod: the replacement pod gets another GPU. Otherwise, recreate it.",
    )
    OVER_USER_EVICTED = (
        "OverUserEvicted",
        "Pod",
        "The pod was evicted because of GpuMemoryOverused, as the agent runs with --evict-over-users.",
        "Request as much memory as the program needs.",
    )
