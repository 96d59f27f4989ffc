"""The other sections of a ClusterPolicy, under the names that users of nvidia.com/v1 know."""

from typing import Literal

import msgspec

from purser.operator.policy.fields import (
    EnvVar,
    OperandSection,
    Percent,
    PodSecurityContext,
    Seconds,
    Section,
    ServiceMonitor,
    Toleration,
)


class OperatorMetricsSection(Section, frozen=True, kw_only=True):
    """The operator's own metrics."""

    service_monitor: ServiceMonitor = ServiceMonitor()
    """How Prometheus finds them."""
    prometheus_rules: bool = False
    """Whether alerts are installed; they need the Prometheus operator's CRDs."""


class OperatorSection(Section, frozen=True, kw_only=True):
    """What concerns all operands, and the operator itself."""

    runtime_class: str = "nvidia"
    """Name of the RuntimeClass with the GPU runtime."""
    labels: dict[str, str] = {}
    """On every object that the operator makes."""
    annotations: dict[str, str] = {}
    """On every object that the operator makes."""
    metrics: OperatorMetricsSection = OperatorMetricsSection()
    """The operator's own metrics."""


class RollingUpdate(Section, frozen=True, kw_only=True):
    """Bounds of a rolling update."""

    max_unavailable: int | Percent = 1
    """How many nodes at a time."""


class DaemonSets(Section, frozen=True, kw_only=True):
    """What all DaemonSets have in common."""

    labels: dict[str, str] = {}
    """On DaemonSets and their pods."""
    annotations: dict[str, str] = {}
    """On DaemonSets and their pods."""
    tolerations: tuple[Toleration, ...] = (Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule"),)
    """Of their pods."""
    priority_class_name: str = "system-node-critical"
    """Of their pods."""
    update_strategy: Literal["RollingUpdate", "OnDelete"] = "RollingUpdate"
    """How pods of a new template come; the driver's is always OnDelete, its upgrades have rules of their own."""
    rolling_update: RollingUpdate = RollingUpdate()
    """Bounds of a rolling update."""
    pod_security_context: PodSecurityContext | None = None
    """Of their pods. What a container of Purser's manifests says for itself wins."""


class ToolkitSpec(OperandSection, frozen=True, kw_only=True):
    """The NVIDIA container toolkit: makes the node's container runtime hand GPUs to containers."""

    enabled: bool = True
    """Where the runtime is prepared already: false."""
    install_dir: str = "/usr/local/nvidia"
    """On the host: where it is installed."""


class PluginConfig(Section, frozen=True, kw_only=True):
    """A ConfigMap with configurations, one per key."""

    name: str = ""
    """Of the ConfigMap in the operator's namespace; empty: none."""
    default: str = ""
    """Key for nodes that do not name one."""


class Mps(Section, frozen=True, kw_only=True):
    """NVIDIA MPS."""

    root: str = "/run/nvidia/mps"
    """On the host: where its pipes and logs are."""


class DevicePluginSpec(OperandSection, frozen=True, kw_only=True):
    """What kubelet gets its GPUs from."""

    enabled: bool = True
    """Whether it runs."""
    flavor: Literal["purser", "nvidia"] = "purser"
    """Purser's agent, which books shares exactly, or NVIDIA's device plugin."""
    mode: Literal["shared", "whole"] = "shared"
    """Of Purser's agent: cards have slots, or belong to one container."""
    slots: int = 10
    """Of Purser's agent: how many containers may share a card."""
    config: PluginConfig = PluginConfig()
    """Of NVIDIA's plugin: its configurations."""
    mps: Mps = Mps()
    """Of NVIDIA's plugin: MPS."""


class GfdSpec(OperandSection, frozen=True, kw_only=True):
    """GPU feature discovery: labels nodes with what their GPUs are."""

    enabled: bool = True
    """Whether it runs."""


class DcgmSpec(OperandSection, frozen=True, kw_only=True):
    """A host engine of its own for DCGM."""

    enabled: bool = False
    """Whether it runs; otherwise the exporter has its own. It needs Kubernetes 1.22 or later."""


class ExporterService(Section, frozen=True, kw_only=True):
    """The exporter's Service."""

    type: Literal["ClusterIP", "NodePort"] = "ClusterIP"
    """Of which type."""
    internal_traffic_policy: Literal["Cluster", "Local"] = "Cluster"
    """Whether it stays on the node; Local needs Kubernetes 1.22 or later."""


class JobMapping(Section, frozen=True, kw_only=True):
    """Which jobs of a batch scheduler use which GPU, from files that its prolog writes."""

    enabled: bool = False
    """Whether metrics carry them."""
    directory: str = "/var/lib/dcgm-exporter/job-mapping"
    """On the host: where these files are."""


class DcgmExporterSpec(OperandSection, frozen=True, kw_only=True):
    """The DCGM exporter: metrics of GPUs."""

    enabled: bool = True
    """Whether it runs."""
    config: PluginConfig = PluginConfig()
    """ConfigMap with the metrics to export."""
    service_monitor: ServiceMonitor = ServiceMonitor()
    """How Prometheus finds it."""
    annotations: dict[str, str] = {}
    """On its pods."""
    hpc_job_mapping: JobMapping = JobMapping()
    """Jobs of a batch scheduler."""
    service: ExporterService = ExporterService()
    """Its Service."""
    host_pid: bool = msgspec.field(default=False, name="hostPID")
    """Whether it sees the node's processes."""
    enable_pod_labels: bool = False
    """Whether metrics carry the labels of pods."""
    enable_pod_uid: bool = msgspec.field(default=False, name="enablePodUID")
    """Whether metrics carry the uids of pods."""
    pod_label_allowlist_regex: tuple[str, ...] = ()
    """Which labels of pods."""


class NodeStatusExporterSpec(OperandSection, frozen=True, kw_only=True):
    """Metrics of what was validated on each node."""

    enabled: bool = False
    """Whether it runs."""


class MigSection(Section, frozen=True, kw_only=True):
    """How MIG devices are offered."""

    strategy: Literal["none", "single", "mixed"] = "single"
    """As in NVIDIA's device plugin."""


class MigManagerSpec(OperandSection, frozen=True, kw_only=True):
    """Changes the MIG layout of nodes to what their label nvidia.com/mig.config names."""

    enabled: bool = True
    """Whether it runs, on nodes whose GPUs can MIG."""
    config: PluginConfig = PluginConfig()
    """ConfigMap with layouts in mig-parted's form, in its key config.yaml; empty name: Purser's own. The default is
    what nodes without the label get; empty: they are left alone."""
    gpu_pod_timeout_seconds: Seconds = 300
    """How long GPU pods may take to leave before a change is given up; 0: for ever. How they leave says
    driver.upgradePolicy.gpuPodDeletion; how many nodes at a time may change, driver.upgradePolicy.maxUnavailable."""
    apply_timeout_seconds: Seconds = 600
    """How long applying a layout may take; 0: for ever."""


class Env(Section, frozen=True, kw_only=True):
    """Settings of one check."""

    env: tuple[EnvVar, ...] = ()
    """More variables."""


class ValidatorSpec(OperandSection, frozen=True, kw_only=True):
    """Checks on each node that driver, toolkit and device plugin work."""

    enabled: bool = True
    """Whether nodes are validated; otherwise a ready device plugin counts."""
    driver: Env = Env()
    """The check of the driver."""
    toolkit: Env = Env()
    """The check of the toolkit."""
    cuda: Env = Env()
    """The check with CUDA."""
    plugin: Env = Env()
    """The check of the device plugin."""


class Cdi(Section, frozen=True, kw_only=True):
    """The Container Device Interface."""

    enabled: bool = True
    """Whether devices are handed over by CDI: with NVIDIA's device plugin, which writes their specification itself, on
    nodes whose runtime can do it. It changes nothing with Purser's agent: that names GPUs in a variable, for NVIDIA's
    runtime, which is the default one of its nodes."""


class HostPaths(Section, frozen=True, kw_only=True):
    """Where things are on the nodes."""

    root_fs: str = msgspec.field(default="/", name="rootFS")
    """The nodes' root."""
    driver_install_dir: str = "/run/nvidia/driver"
    """Root of a driver that is not in the nodes' own: of the driver's container, or, with driver.enabled false, of one
    that somebody installed elsewhere, such as /home/kubernetes/bin/nvidia."""
    kubelet_root_dir: str = ""
    """kubelet's root; empty: found per node (k0s and MicroK8s have their own), /var/lib/kubelet otherwise."""


class Discovery(OperandSection, frozen=True, kw_only=True):
    """How GPU nodes are found. Images and the like are those of Purser's own discovery."""

    enabled: bool = True
    """Whether Purser's own discovery runs: on nodes without labels of node-feature-discovery, and on GPU nodes for the
    models of their cards."""
    gone_after_seconds: Seconds = 600
    """After which time without any sign of a GPU a node counts as one without: discovery may be away for a while."""
