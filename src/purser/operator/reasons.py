"""Reasons of the operator's events and conditions, of nodes that fail, and of operands on nodes."""

from purser.core.kubernetes.reasons import ExplainedReason


class OperatorReason(ExplainedReason):
    """Reasons of the operator on nodes and in a ClusterPolicy's status. For an operand whose pod fails for a reason
    that kubelet reports, such as CrashLoopBackOff, kubelet's reason is used."""

    # --- conditions of a ClusterPolicy

    NO_GPU_NODES = (
        "NoGpuNodes",
        "ClusterPolicy",
        "Ready: the cluster has no GPU nodes, or all of them are excluded or are for virtual machines.",
    )
    OPERANDS_READY = "OperandsReady", "ClusterPolicy", "Ready: all operands are ready on all GPU nodes."
    OPERANDS_NOT_READY = (
        "OperandsNotReady",
        "ClusterPolicy",
        "Not ready: operands are not ready on some GPU nodes; the message names the first node.",
        "Check status.failingNodes. Nodes that are not listed there only need more time.",
    )
    NODES_PROGRESSING = "NodesProgressing", "ClusterPolicy", "Operands are starting on nodes."
    UPDATING = (
        "Updating",
        "ClusterPolicy",
        "All operands are ready, but the latest changes to some of them are not rolled out yet.",
    )
    UPGRADING = "Upgrading", "ClusterPolicy", "Driver upgrades are in progress."
    MIG_CHANGE = (
        "MigChange",
        "ClusterPolicy, Node",
        "A MIG layout is being changed; as a node event, one step of the change.",
    )
    SETTLED = "Settled", "ClusterPolicy", "No upgrade, MIG change or rollout is in progress."
    WRITE_REFUSED = (
        "WriteRefused",
        "ClusterPolicy, Node",
        "The API server rejects the operator's writes to the cluster or to a node.",
        "Correct what the message names: the operator's RBAC permissions, an admission policy or webhook, or a quota.",
    )
    NODES_FAILING = (
        "NodesFailing",
        "ClusterPolicy",
        "Degraded: some nodes cannot become ready without manual intervention.",
        "Check status.failingNodes.",
    )
    NO_FAILURES = "NoFailures", "ClusterPolicy", "No node is failing."
    IGNORED = (
        "Ignored",
        "ClusterPolicy",
        "The policy is ignored because an older ClusterPolicy is active.",
        "Keep one ClusterPolicy and delete the others.",
    )
    LEAVING = (
        "Leaving",
        "ClusterPolicy",
        "The policy is being deleted; its finalizer remains until its objects are removed.",
    )
    INVALID_SPEC = (
        "InvalidSpec",
        "ClusterPolicy",
        "The policy's spec is invalid, so the operator changes nothing.",
        "Correct the field that the message names.",
    )
    ANOTHER_OPERATOR = (
        "AnotherOperator",
        "ClusterPolicy",
        "NVIDIA's operator manages the nodes, so Purser's operator changes nothing.",
        "Remove one of the two operators.",
    )
    ANOTHER_NAMESPACE = (
        "AnotherNamespace",
        "ClusterPolicy",
        "The policy belongs to a Purser operator in another namespace.",
        "Remove one of the two operators.",
    )

    # --- driver upgrades

    DRIVER_UPGRADE = (
        "DriverUpgrade",
        "Node",
        "A step in the node's driver upgrade; as a warning, what blocks the upgrade.",
    )
    DRIVER_UPGRADE_HALTED = (
        "DriverUpgradeHalted",
        "ClusterPolicy",
        "Too many driver upgrades failed, so no further upgrade starts.",
        "Find the cause on a failed node, then set purser.dev/resume-upgrade (docs/driver-upgrades.md).",
    )

    # --- nodes that fail

    GPUS_MISSING = (
        "GpusMissing",
        "Node",
        "The node's GPUs are no longer detected, but pods still use them.",
        "Delete the pods that the message names, or find out why the GPUs disappeared.",
    )
    DRIVER_IN_USE = (
        "DriverInUse",
        "Node",
        "The driver is to be removed, but pods still use the node's GPUs. They are not evicted to remove a driver.",
        "Delete the pods that the message names.",
    )
    NO_DRIVER = (
        "NoDriver",
        "Node",
        "The node gets no driver: spec.driver.requirements rule the driver out, or the operating system is unknown.",
        "Change spec.driver. If the operating system is unknown, do what the message says.",
    )
    DRIVER_VERSION_BLOCKED = (
        "DriverVersionBlocked",
        "Node",
        "The node keeps its driver: spec.driver.requirements rule the new driver out, or the operating system is "
        "unknown.",
        "Change spec.driver. If the operating system is unknown, do what the message says.",
    )
    UPGRADE_FAILED = (
        "UpgradeFailed",
        "Node",
        "The node's driver upgrade failed. If the old driver is no longer running, the node stays cordoned.",
        "See the message. If the new driver failed, check the log of the node's driver pod.",
    )
    NODE_NOT_READY = (
        "NodeNotReady",
        "Node",
        "The kubelet does not report the node as Ready.",
        "Check the node's kubelet.",
    )
    MIG_CHANGE_FAILED = (
        "MigChangeFailed",
        "Node",
        "Changing the node's MIG layout failed.",
        "Check the log of the node's MIG manager. To try again, remove the label nvidia.com/mig.config.state.",
    )
    MIG_UNSUPPORTED = (
        "MigUnsupported",
        "Node",
        "The node's label requests a MIG layout, but its GPUs do not support MIG or are not known to.",
        "Remove the label nvidia.com/mig.config, or set nvidia.com/mig.capable=true if the GPUs support MIG.",
    )

    WORKLOAD_UNKNOWN = (
        "WorkloadUnknown",
        "Node",
        "The node's label nvidia.com/gpu.workload.config has an unknown value, so sandboxWorkloads.defaultWorkload "
        "applies.",
        "Set the label to container, vm-passthrough or vm-vgpu, or remove it.",
    )

    # --- operands on nodes

    UNTOLERATED = (
        "Untolerated",
        "Node",
        "The operand's pod does not tolerate a taint on the node.",
        "Add a toleration to spec.daemonsets.tolerations, or remove the taint.",
    )
    NO_POD = (
        "NoPod",
        "Node",
        "The operand has no pod on the node.",
        "If the message names no cause, check the node's free resources and the DaemonSet's events.",
    )
    NOT_READY = "NotReady", "Node", "The operand's pod is not ready.", "Check the pod's log."
    MODEL_UNKNOWN = "ModelUnknown", "Node", "The driver waits until the node's GPU model is known."
    VALIDATION_OUTDATED = "ValidationOutdated", "Node", "The driver changed after the node was last validated."
    WAITING = "Waiting", "Node", "The operand waits for other operands that it needs."
    PAUSED = "Paused", "Node", "The operand is stopped for a driver upgrade or a MIG change."
