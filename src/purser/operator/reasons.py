"""Reasons of the operator's events and conditions, of nodes that fail, and of operands on nodes."""

from purser.core.kubernetes.reasons import ExplainedReason


class OperatorReason(ExplainedReason):
    """Reasons of the operator on nodes and in a ClusterPolicy's status. For an operand whose pod fails for a reason
    that kubelet reports, such as CrashLoopBackOff, kubelet's reason is used."""

    # --- conditions of a ClusterPolicy

    NO_GPU_NODES = "NoGpuNodes", "ClusterPolicy", "Ready: the cluster has no GPU nodes, or none for containers."
    OPERANDS_READY = "OperandsReady", "ClusterPolicy", "Ready: all GPU nodes have all operands."
    OPERANDS_NOT_READY = (
        "OperandsNotReady",
        "ClusterPolicy",
        "Not ready: some GPU nodes lack operands; the message names the first.",
        "Check status.failingNodes. Other nodes only need time.",
    )
    NODES_PROGRESSING = "NodesProgressing", "ClusterPolicy", "Operands are starting on nodes."
    UPDATING = "Updating", "ClusterPolicy", "Operands are ready; some are being replaced by new versions."
    UPGRADING = "Upgrading", "ClusterPolicy", "Drivers are being upgraded, node by node."
    MIG_CHANGE = "MigChange", "ClusterPolicy, Node", "A MIG layout is being changed; on a node, one step of it."
    SETTLED = "Settled", "ClusterPolicy", "No upgrade, MIG change or rollout is in progress."
    WRITE_REFUSED = (
        "WriteRefused",
        "ClusterPolicy, Node",
        "The API server refuses the operator's writes, or its writes to a node.",
        "Change the admission policy, webhook or quota that the message names.",
    )
    NODES_FAILING = (
        "NodesFailing",
        "ClusterPolicy",
        "Degraded: some nodes do not become ready without your help.",
        "Look at status.failingNodes.",
    )
    NO_FAILURES = "NoFailures", "ClusterPolicy", "No node fails."
    IGNORED = (
        "Ignored",
        "ClusterPolicy",
        "Another ClusterPolicy is older, and is the active one.",
        "Delete one of the two.",
    )
    LEAVING = "Leaving", "ClusterPolicy", "The policy is being deleted, and waits until its objects are removed."
    INVALID_SPEC = (
        "InvalidSpec",
        "ClusterPolicy",
        "The policy's spec cannot be used, and nothing changes.",
        "Correct the field that the message names.",
    )
    ANOTHER_OPERATOR = (
        "AnotherOperator",
        "ClusterPolicy",
        "NVIDIA's operator manages the nodes, and nothing is written.",
        "Remove one of the two operators.",
    )
    ANOTHER_NAMESPACE = (
        "AnotherNamespace",
        "ClusterPolicy",
        "The policy belongs to a Purser operator in another namespace.",
        "Remove one of the two operators.",
    )

    # --- driver upgrades

    DRIVER_UPGRADE = "DriverUpgrade", "Node", "A step of the node's driver upgrade; as a warning, what blocks it."
    DRIVER_UPGRADE_HALTED = (
        "DriverUpgradeHalted",
        "ClusterPolicy",
        "Too many driver upgrades failed, and no further one starts.",
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
        "The driver is to be removed, but pods use its GPUs. Purser does not evict them for that.",
        "Delete the pods that the message names.",
    )
    NO_DRIVER = (
        "NoDriver",
        "Node",
        "No driver that the policy allows fits the node, or its operating system is unknown.",
        "Change spec.driver, or the node's operating system.",
    )
    DRIVER_VERSION_BLOCKED = (
        "DriverVersionBlocked",
        "Node",
        "The node keeps its driver because no new one fits it.",
        "Change spec.driver, or the node's operating system.",
    )
    UPGRADE_FAILED = (
        "UpgradeFailed",
        "Node",
        "The node's driver upgrade failed; if the old driver was gone already, the node stays cordoned.",
        "Check the log of the node's driver pod.",
    )
    NODE_NOT_READY = "NodeNotReady", "Node", "kubelet does not report Ready.", "Look at the node's kubelet."
    MIG_CHANGE_FAILED = (
        "MigChangeFailed",
        "Node",
        "The change of the node's MIG layout failed.",
        "Check the log of the node's MIG manager, then set the label nvidia.com/mig.config again.",
    )
    MIG_UNSUPPORTED = (
        "MigUnsupported",
        "Node",
        "The node's label asks for a MIG layout, but its GPUs do not support MIG, or it is unknown whether they do.",
        "Remove the label nvidia.com/mig.config, or set nvidia.com/mig.capable=true if they do.",
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
        "A taint of the node keeps the operand's pod away.",
        "Add the taint to spec.daemonsets.tolerations, or remove it.",
    )
    NO_POD = (
        "NoPod",
        "Node",
        "The operand has no pod on the node.",
        "Check the node's free resources, and the DaemonSet's events.",
    )
    NOT_READY = "NotReady", "Node", "The operand's pod does not get ready.", "Look at the log of the pod."
    MODEL_UNKNOWN = "ModelUnknown", "Node", "The driver waits until the model of the node's GPUs is known."
    VALIDATION_OUTDATED = "ValidationOutdated", "Node", "The node's driver is newer than its validation."
    WAITING = "Waiting", "Node", "The operand waits for others that it needs."
    PAUSED = "Paused", "Node", "The operand is stopped for a driver upgrade or a MIG change."
