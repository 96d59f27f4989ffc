"""The ClusterPolicy, whole: its status and its spec."""

from typing import Literal

import msgspec

from purser.kube.objects import ObjectMeta
from purser.kube.resources import Resource
from purser.operator.names import GROUP, KIND, PLURAL, VERSION
from purser.operator.order import Operand
from purser.operator.policy.driver import DriverSpec
from purser.operator.policy.fields import Section, Sidecar
from purser.operator.policy.sections import (
    Cdi,
    DaemonSets,
    DcgmExporterSpec,
    DcgmSpec,
    DevicePluginSpec,
    Discovery,
    GfdSpec,
    HostPaths,
    MigManagerSpec,
    MigSection,
    NodeStatusExporterSpec,
    OperatorSection,
    SandboxWorkloads,
    ToolkitSpec,
    ValidatorSpec,
)

# --- status


State = Literal["", "ready", "notReady", "ignored"]
MAX_FAILING_NODES = 100
"""Failing nodes that status names at most; the counts are of all."""
MAX_UPCOMING_UPGRADES = 50
"""Nodes to be upgraded that status names at most; the count is of all."""


class Condition(Section, frozen=True, kw_only=True):
    """A condition, as Kubernetes writes them."""

    type: str
    """Ready, Progressing or Degraded."""
    status: Literal["True", "False", "Unknown"]
    """Whether the condition holds."""
    reason: str
    """Reason, in one word."""
    message: str = ""
    """Cause, in one sentence."""
    last_transition_time: str = ""
    """When the status last changed; RFC 3339."""
    observed_generation: int = 0
    """Generation of the policy that the condition is about."""


class OperandStatus(Section, frozen=True, kw_only=True):
    """State of one operand."""

    name: str
    """Name of the operand."""
    state: Literal["disabled", "waiting", "progressing", "ready", "failing"]
    """State; waiting: no node has what the operand needs yet."""
    desired: int = 0
    """Nodes on which it should run."""
    ready: int = 0
    """Nodes on which it is ready."""
    updated: int = 0
    """Nodes on which its pod has the newest template."""
    waiting: int = 0
    """Nodes that do not have what it needs yet."""
    reason: str = ""
    """Reason of what blocks it on the first node, in one word."""
    message: str = ""
    """What blocks it, in one sentence."""


class FailingNode(Section, frozen=True, kw_only=True):
    """A node that cannot become ready by itself."""

    name: str
    """Name of the node."""
    operand: str = ""
    """Operand that fails; empty: the node itself."""
    reason: str = ""
    """Reason, in one word."""
    message: str = ""
    """Cause, in one sentence."""


class NodeCounts(Section, frozen=True, kw_only=True):
    """GPU nodes by state."""

    total: int = 0
    """All GPU nodes."""
    ready: int = 0
    """Nodes on which all operands are ready."""
    progressing: int = 0
    """Nodes that are being set up."""
    failing: int = 0
    """Nodes that cannot become ready by themselves."""
    excluded: int = 0
    """Nodes that get no operand: their label nvidia.com/gpu.deploy.operands excludes them, or their GPUs are for
    virtual machines."""


class PoolStatus(Section, frozen=True, kw_only=True):
    """A pool of nodes with the same OS, kernel and driver."""

    name: str
    """Name of the pool."""
    os: str = ""
    """Operating system and version."""
    kernel: str = ""
    """Kernel version."""
    driver: str = ""
    """Driver version."""
    nodes: int = 0
    """Number of nodes in the pool."""


class UpcomingUpgrade(Section, frozen=True, kw_only=True):
    """A node whose driver upgrade has not begun."""

    name: str
    """Name of the node."""
    driver: str = ""
    """Version of the driver that it gets."""
    restart_only: bool = False
    """The driver stays the same: its pod is restarted, and no other pod has to leave."""


class UpgradeStatus(Section, frozen=True, kw_only=True):
    """Progress of the driver upgrade."""

    pending: int = 0
    """Nodes that wait for their upgrade."""
    in_progress: int = 0
    """Nodes in upgrade."""
    done: int = 0
    """Nodes whose driver is up to date."""
    failed: int = 0
    """Nodes whose upgrade failed."""
    skipped: int = 0
    """Nodes that are skipped for now: NotReady, labelled to be skipped, or with a taint that is not tolerated."""
    progress: str = ""
    """Nodes that have the driver that they should have, as 12/40; empty if all do."""
    halted: bool = False
    """No further node begins, because too many failed."""
    halt_reason: str = ""
    """Why the upgrade is halted, in one sentence; empty: it is not."""
    target: str = ""
    """Target of the upgrade, comma-separated for several pools. The annotation purser.dev/resume-upgrade with this
    value, or a part of it, resumes a halted upgrade."""
    message: str = ""
    """What blocks it, in one sentence."""
    upcoming: tuple[UpcomingUpgrade, ...] = ()
    """The first fifty nodes that wait for their upgrade, in the order in which they begin; also while automatic
    upgrades are off or halted."""


class ClusterPolicyStatus(Section, frozen=True, kw_only=True):
    """State of the GPU stack."""

    state: State = ""
    """State in one word; ignored: an older policy is active."""
    namespace: str = ""
    """Namespace of the operands."""
    observed_generation: int = 0
    """Generation of the policy that this status is about."""
    conditions: tuple[Condition, ...] = ()
    """Ready, Progressing and Degraded."""
    nodes: NodeCounts = NodeCounts()
    """GPU nodes by state."""
    operands: tuple[OperandStatus, ...] = ()
    """State of each operand."""
    failing_nodes: tuple[FailingNode, ...] = ()
    """The first hundred nodes that cannot become ready by themselves."""
    pools: tuple[PoolStatus, ...] = ()
    """Pools of nodes."""
    upgrade: UpgradeStatus = UpgradeStatus()
    """Progress of the driver upgrade."""


# --- spec


class ClusterPolicySpec(Section, frozen=True, kw_only=True):
    """The GPU stack of a cluster. Every field has a default: an empty spec is a whole stack."""

    operator: OperatorSection = OperatorSection()
    """Settings of all operands."""
    daemonsets: DaemonSets = DaemonSets()
    """Settings of all DaemonSets."""
    discovery: Discovery = Discovery()
    """How GPU nodes are found."""
    driver: DriverSpec = DriverSpec()
    """The driver."""
    toolkit: ToolkitSpec = ToolkitSpec()
    """The container toolkit."""
    device_plugin: DevicePluginSpec = DevicePluginSpec()
    """Purser's agent, or NVIDIA's device plugin."""
    gfd: GfdSpec = GfdSpec()
    """GPU feature discovery."""
    validator: ValidatorSpec = ValidatorSpec()
    """Validation of each node."""
    dcgm: DcgmSpec = DcgmSpec()
    """A standalone host engine of DCGM."""
    dcgm_exporter: DcgmExporterSpec = DcgmExporterSpec()
    """GPU metrics."""
    node_status_exporter: NodeStatusExporterSpec = NodeStatusExporterSpec()
    """Metrics of validation."""
    mig: MigSection = MigSection()
    """How MIG devices are advertised."""
    mig_manager: MigManagerSpec = MigManagerSpec()
    """The MIG manager."""
    gds: Sidecar = Sidecar()
    """GPUDirect Storage, beside the driver."""
    gdrcopy: Sidecar = Sidecar()
    """GDRCopy, beside the driver."""
    sandbox_workloads: SandboxWorkloads = SandboxWorkloads()
    """Nodes whose GPUs are for virtual machines."""
    cdi: Cdi = Cdi()
    """The Container Device Interface."""
    host_paths: HostPaths = HostPaths()
    """Paths on the nodes."""

    @property
    def enabled(self) -> tuple[Operand, ...]:
        """The operands that are wanted, in order."""
        return tuple(operand for operand, section in _SECTIONS if getattr(self, section).enabled)


_SECTIONS = tuple((operand, operand.section) for operand in Operand)


class PolicyMeta(ObjectMeta, frozen=True, gc=False, rename="camel"):
    """Metadata of a ClusterPolicy: more of it than others need."""

    generation: int = 0
    finalizers: tuple[str, ...] = ()


class ClusterPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One ClusterPolicy of the cluster."""

    metadata: PolicyMeta = PolicyMeta()
    spec: ClusterPolicySpec = ClusterPolicySpec()
    status: ClusterPolicyStatus = ClusterPolicyStatus()


CLUSTER_POLICIES: Resource[dict[str, object]] = Resource(GROUP, VERSION, PLURAL, KIND, False, dict)
"""Read raw, and decoded one by one: a policy that cannot be read must not hide the others."""
