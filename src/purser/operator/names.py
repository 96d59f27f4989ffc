"""Labels, annotations and other names that the operator writes or reads. NVIDIA's where its ecosystem knows one."""

from purser.core.names import (
    CORDONED_BY_ANNOTATION,
    DEPLOY_PREFIX,
    GPU_PRESENT_LABEL,
    MIG_RESULT_ANNOTATION,
    MIG_STATE_LABEL,
    MIG_WANTED_ANNOTATION,
    NODE_FACTS_ANNOTATION,
    POOL_LABEL,
    UPGRADE_FAILURE_ANNOTATION,
    UPGRADE_STATE_LABEL,
)

GROUP = "purser.dev"
VERSION = "v1alpha1"
KIND = "ClusterPolicy"
PLURAL = "clusterpolicies"

FIELD_MANAGER = "purser-operator"
"""Of server-side apply, and the value of `MANAGED_BY_LABEL` on everything that the operator owns."""

LEASE = "purser-operator"
"""In the operator's namespace: who leads."""

FINALIZER = "purser.dev/operator-cleanup"
"""On a ClusterPolicy: its objects and the nodes' labels are removed before it may go."""

# --- on objects

MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
OPERAND_LABEL = "purser.dev/operand"
"""On owned objects and their pods: which operand they belong to."""

RUNTIME_LABEL = "purser.dev/runtime"
"""On a node and on DaemonSets that depend on it: value of `RuntimeKind.label`."""

TEMPLATE_LABEL = "purser.dev/template"
"""On the pods of a DaemonSet: hash of the template they come from. A pod is outdated when its DaemonSet's differs."""

DRIVER_CONFIG_LABEL = "purser.dev/driver-config"
"""On the driver's pods: digest of what the driver is loaded from."""

APPLIED_HASH_ANNOTATION = "purser.dev/applied-hash"
"""On an owned object: hash of what was applied."""

RESUME_UPGRADE_ANNOTATION = "purser.dev/resume-upgrade"
"""On a ClusterPolicy, written by people: targets whose halted upgrade goes on, as its status names them."""

# --- on nodes: what is there

DEPLOY_OPERANDS_LABEL = "nvidia.com/gpu.deploy.operands"
"""On a node, written by people: ``false`` takes all operands away."""

WORKLOAD_LABEL = "nvidia.com/gpu.workload.config"
"""On a node, written by people: whom its GPUs are for, one of `Workload` (operator/policy/fields.py)."""

NFD_PREFIX = "feature.node.kubernetes.io/"
NFD_GPU_LABELS = tuple(f"{NFD_PREFIX}pci-{which}.present" for which in ("10de", "0300_10de", "0302_10de"))
"""As node-feature-discovery is configured as a rule. Which fields they have is its administrator's choice (its
``deviceLabelFields``): the operator reads them all, but a selector of nodes has to spell them out."""
NFD_GROUP = "nfd.k8s-sigs.io"
NFD_OS_ID_LABEL = f"{NFD_PREFIX}system-os_release.ID"
NFD_OS_VERSION_LABEL = f"{NFD_PREFIX}system-os_release.VERSION_ID"
NFD_KERNEL_LABEL = f"{NFD_PREFIX}kernel-version.full"
"""The one sign that node-feature-discovery runs on a node: its other labels may come from other writers."""

GPU_PRODUCT_LABEL = "nvidia.com/gpu.product"
MIG_CAPABLE_LABEL = "nvidia.com/mig.capable"

GPU_MISSING_SINCE_ANNOTATION = "purser.dev/gpu-missing-since"
"""On a node that had a GPU: since when none is seen; RFC 3339."""

OPENED_BOOT_ANNOTATION = "purser.dev/opened-boot"
"""On a node: the boot id for which operands were let in. After a reboot its driver has to be ready again first."""

LET_IN_ANNOTATION = "purser.dev/operands-let-in"
"""On a node: when an operand was last let in; RFC 3339. One whose pod does not appear for long after that fails."""

LABEL_TRUE = "true"
PAUSED_FOR_UPGRADE = "paused-for-driver-upgrade"
PAUSED_FOR_MIG = "paused-for-mig-change"

# --- on nodes: driver upgrade (the names of k8s-operator-libs)

UPGRADE_SKIP_LABEL = "nvidia.com/gpu-driver-upgrade.skip"
UPGRADE_DRAIN_SKIP_LABEL = "nvidia.com/gpu-driver-upgrade-drain.skip"
"""On a pod: it is not drained."""

UPGRADE_INITIAL_CORDON_ANNOTATION = "nvidia.com/gpu-driver-upgrade.node-initial-state.unschedulable"
UPGRADE_WAIT_START_ANNOTATION = "nvidia.com/gpu-driver-upgrade-wait-for-pod-completion-start-time"
UPGRADE_VALIDATION_START_ANNOTATION = "nvidia.com/gpu-driver-upgrade-validation-start-time"
UPGRADE_REQUESTED_ANNOTATION = "nvidia.com/gpu-driver-upgrade-requested"

UPGRADE_STEP_START_ANNOTATION = "purser.dev/driver-upgrade-step-start"
"""On a node: when its present upgrade state began; seconds since the epoch."""

UPGRADE_TARGET_ANNOTATION = "purser.dev/driver-upgrade-target"
"""On a node: which template its upgrade leads to, or led to."""

UPGRADE_RESTART_ONLY_ANNOTATION = "purser.dev/driver-upgrade-restart-only"
"""On a node whose driver's pod is restarted under its users: the configuration that stays the same."""

UPGRADE_OLD_DRIVER_LEFT_ANNOTATION = "purser.dev/driver-upgrade-old-driver-left"
"""On a node whose driver is being replaced: the old driver's pod was deleted, and the step's deadline restarted."""

UPGRADE_AWAY_SINCE_ANNOTATION = "purser.dev/driver-upgrade-away-since"
"""On a node that went away after its old driver had gone: since when."""

# --- on nodes: MIG

MIG_STEP_ANNOTATION = "purser.dev/mig-step"
"""On a node: step, profile and start of a change that is under way; removed in the write that ends it."""

LEFTOVER_DEPLOY_LABELS = tuple(
    DEPLOY_PREFIX + each
    for each in (
        "nvsm",
        "sandbox-validator",
        "sandbox-device-plugin",
        "vgpu-device-manager",
        "dra-driver",
        "dra-validator",
        "dcgm-dra",
        "dcgm-exporter-dra",
    )
)
"""On a node: operands that Purser does not have. NVIDIA's driver manager leaves them there, without a value."""

PREINSTALLED = "pre-installed"
"""Of the driver's label: NVIDIA's driver manager found a driver on the node itself, and its pod leaves."""

OWNED_NODE_LABELS = (GPU_PRESENT_LABEL, POOL_LABEL, RUNTIME_LABEL, UPGRADE_STATE_LABEL, MIG_STATE_LABEL)
"""Besides ``nvidia.com/gpu.deploy.<operand>``: labels that uninstalling removes. `MIG_CONFIG_LABEL` is the user's."""

OWNED_NODE_ANNOTATIONS = (
    GPU_MISSING_SINCE_ANNOTATION,
    OPENED_BOOT_ANNOTATION,
    LET_IN_ANNOTATION,
    UPGRADE_INITIAL_CORDON_ANNOTATION,
    UPGRADE_REQUESTED_ANNOTATION,
    UPGRADE_WAIT_START_ANNOTATION,
    UPGRADE_VALIDATION_START_ANNOTATION,
    UPGRADE_STEP_START_ANNOTATION,
    UPGRADE_TARGET_ANNOTATION,
    UPGRADE_FAILURE_ANNOTATION,
    UPGRADE_RESTART_ONLY_ANNOTATION,
    UPGRADE_OLD_DRIVER_LEFT_ANNOTATION,
    UPGRADE_AWAY_SINCE_ANNOTATION,
    CORDONED_BY_ANNOTATION,
    MIG_STEP_ANNOTATION,
    MIG_WANTED_ANNOTATION,
    MIG_RESULT_ANNOTATION,
    NODE_FACTS_ANNOTATION,
)
"""Annotations that uninstalling removes; a cordon of Purser's is lifted with its mark."""
