"""The ClusterPolicy, whole."""

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
    ToolkitSpec,
    ValidatorSpec,
)
from purser.operator.policy.status import ClusterPolicyStatus


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
    creation_timestamp: str = ""
    finalizers: tuple[str, ...] = ()


class ClusterPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One ClusterPolicy of the cluster."""

    metadata: PolicyMeta = PolicyMeta()
    spec: ClusterPolicySpec = ClusterPolicySpec()
    status: ClusterPolicyStatus = ClusterPolicyStatus()


CLUSTER_POLICIES: Resource[dict[str, object]] = Resource(GROUP, VERSION, PLURAL, KIND, False, dict)
"""Read raw, and decoded one by one: a policy that cannot be read must not hide the others."""
