"""The other sections of a ClusterPolicy, under the names that users of nvidia.com/v1 know."""

from typing import Literal

import msgspec

from purser.core.sriov.names import DEFAULT_PREFIX
from purser.operator.policy.fields import (
    EnvVar,
    OperandSection,
    Percent,
    PodSecurityContext,
    Seconds,
    Section,
    ServiceMonitor,
    Toleration,
    Workload,
)


class OperatorMetricsSection(Section, frozen=True, kw_only=True):
    """The operator's own metrics."""

    service_monitor: ServiceMonitor = ServiceMonitor()
    """ServiceMonitor for these metrics."""
    prometheus_rules: bool = False
    """Install alerts; needs the CRDs of the Prometheus operator."""


class OperatorSection(Section, frozen=True, kw_only=True):
    """Settings of all operands, and of the operator itself."""

    runtime_class: str = "nvidia"
    """Name of the RuntimeClass with the GPU runtime."""
    labels: dict[str, str] = {}
    """Labels of every object that the operator creates."""
    annotations: dict[str, str] = {}
    """Annotations of every object that the operator creates."""
    metrics: OperatorMetricsSection = OperatorMetricsSection()
    """The operator's own metrics."""


class RollingUpdate(Section, frozen=True, kw_only=True):
    """Limits of a rolling update."""

    max_unavailable: int | Percent = 1
    """Most nodes that are updated at a time."""


class DaemonSets(Section, frozen=True, kw_only=True):
    """Settings of all DaemonSets."""

    labels: dict[str, str] = {}
    """Labels of DaemonSets and their pods."""
    annotations: dict[str, str] = {}
    """Annotations of DaemonSets and their pods."""
    tolerations: tuple[Toleration, ...] = (Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule"),)
    """Tolerations of their pods."""
    priority_class_name: str = "system-node-critical"
    """Priority class of their pods."""
    update_strategy: Literal["RollingUpdate", "OnDelete"] = "RollingUpdate"
    """Update strategy of DaemonSets. Drivers always use OnDelete: upgradePolicy controls their upgrades."""
    rolling_update: RollingUpdate = RollingUpdate()
    """Limits of a rolling update."""
    pod_security_context: PodSecurityContext | None = None
    """Security context of their pods. A container's own security context in Purser's manifests takes precedence."""


class ToolkitSpec(OperandSection, frozen=True, kw_only=True):
    """The NVIDIA container toolkit, through which the node's container runtime gives GPUs to containers."""

    enabled: bool = True
    """Install the toolkit; false: the runtime is already configured."""
    install_dir: str = "/usr/local/nvidia"
    """Folder on the host in which it is installed."""


class PluginConfig(Section, frozen=True, kw_only=True):
    """A ConfigMap with configurations, one per key."""

    name: str = ""
    """Name of the ConfigMap in the operator's namespace; empty: none."""
    default: str = ""
    """Key for nodes that name none."""


class Sriov(Section, frozen=True, kw_only=True):
    """Network devices of SR-IOV, in pools, by the SR-IOV network device plugin's config.json."""

    config: str = ""
    """A ConfigMap of the operator's namespace with such files: each node goes by the key with its name, or else by
    config.json. Empty: no pools."""
    resource_prefix: str = DEFAULT_PREFIX
    """Resource prefix of pools that name none."""
    use_cdi: bool = False
    """Pass SR-IOV devices to the container runtime by CDI instead of device files to kubelet."""


class Mps(Section, frozen=True, kw_only=True):
    """NVIDIA MPS."""

    root: str = "/run/nvidia/mps"
    """Of NVIDIA's device plugin: folder on the host with its pipes and logs."""
    exclusive: bool = False
    """Of Purser's agent with enforcement mps: compute mode EXCLUSIVE_PROCESS, so that programs that are not clients of
    MPS cannot use the GPU. Containers with several GPUs then fail."""


class DevicePluginSpec(OperandSection, frozen=True, kw_only=True):
    """The device plugin: Purser's agent, or NVIDIA's."""

    enabled: bool = True
    """Run it."""
    flavor: Literal["purser", "nvidia"] = "purser"
    """purser: Purser's agent, which accounts for shares exactly; nvidia: NVIDIA's device plugin."""
    mode: Literal["shared", "whole"] = "shared"
    """Of Purser's agent. shared: each GPU has slots; whole: one container per GPU."""
    slots: int = 10
    """Of Purser's agent: how many containers may share a GPU."""
    enforcement: Literal["auto", "mps", "hami-core", "time-slicing", "none"] = "auto"
    """Of Purser's agent: what holds shares of GPUs to their limits. auto: HAMi-core's library where the node has it;
    mps: an MPS daemon for each GPU that can have one, for others as auto; hami-core: only the library; time-slicing,
    none: nothing. With mps an agent is replaced only when its pod is deleted, for its MPS daemons end with it."""
    hami_core_image: str = ""
    """Of Purser's agent: image that HAMi-core's library is copied from into /usr/local/vgpu on the host before the
    agent starts; one of HAMi's, or any with a shell that has it as /k8s-vgpu/lib/nvidia/libvgpu.so*. Empty: nothing is
    copied."""
    evict_over_users: bool = False
    """Of Purser's agent: evict pods that for half a minute have more of a GPU's memory than they were granted."""
    evict_from_unhealthy_gpus: bool = False
    """Of Purser's agent: evict pods from a GPU that has been unhealthy for 60 seconds, one at a time."""
    feature_labels: Literal["off", "file", "node-feature", "node-labels"] = "off"
    """Of Purser's agent: where it publishes labels of the node's GPUs: in a file or a NodeFeature object for
    node-feature-discovery, on the node itself, or nowhere (off). Needs gfd.enabled false: both have the same labels."""
    taint_nodes: bool = False
    """Of Purser's agent: taint a node with purser.dev/gpu-unhealthy:NoSchedule while any of its GPUs takes no pods. All
    DaemonSets of the policy then tolerate the taint."""
    cordon_nodes: bool = False
    """Of Purser's agent: cordon a node while a GPU needs its reboot."""
    reset_gpus: bool = False
    """Of Purser's agent: reset GPUs that need it, once no pod and no process is on them and where they have no MIG
    devices."""
    config: PluginConfig = PluginConfig()
    """Files of NVIDIA's device plugin, of which a node's label nvidia.com/device-plugin.config names one: how GPUs are
    shared and listed."""
    managed_resources: tuple[str, ...] = ()
    """Of Purser's agent: further names that nodes list GPUs under, by those files or as MIG profiles of new GPUs. Those
    that kube-scheduler asks Purser about: as in value scheduler.kubeScheduler.managedResources of Purser's chart, whose
    ClusterPolicy has them from there."""
    mps: Mps = Mps()
    """NVIDIA MPS."""
    sriov: Sriov = Sriov()
    """Of Purser's agent: pools of SR-IOV network devices that it serves beside GPUs."""

    @property
    def is_agent(self) -> bool:
        """Purser's agent runs."""
        return self.enabled and self.flavor == "purser"

    @property
    def labels_features(self) -> bool:
        """Purser's agent publishes labels of GPUs."""
        return self.is_agent and self.feature_labels != "off"


class GfdSpec(OperandSection, frozen=True, kw_only=True):
    """GPU feature discovery, which labels nodes with properties of their GPUs."""

    enabled: bool = True
    """Run it."""


class DcgmSpec(OperandSection, frozen=True, kw_only=True):
    """A standalone host engine of DCGM."""

    enabled: bool = False
    """Run it; false: the exporter embeds one. Needs Kubernetes 1.22 or later."""


class ExporterService(Section, frozen=True, kw_only=True):
    """The exporter's Service."""

    type: Literal["ClusterIP", "NodePort"] = "ClusterIP"
    """Type of the Service."""
    internal_traffic_policy: Literal["Cluster", "Local"] = "Cluster"
    """Internal traffic policy of the Service; Local needs Kubernetes 1.22 or later."""


class JobMapping(Section, frozen=True, kw_only=True):
    """Labels metrics with the jobs of a batch scheduler, from files that its prolog writes."""

    enabled: bool = False
    """Label metrics with jobs."""
    directory: str = "/var/lib/dcgm-exporter/job-mapping"
    """Folder on the host with these files."""


class DcgmExporterSpec(OperandSection, frozen=True, kw_only=True):
    """The DCGM exporter, which exports GPU metrics."""

    enabled: bool = True
    """Run it."""
    config: PluginConfig = PluginConfig()
    """ConfigMap with the metrics to export."""
    service_monitor: ServiceMonitor = ServiceMonitor()
    """ServiceMonitor for its metrics."""
    annotations: dict[str, str] = {}
    """Annotations of its pods."""
    hpc_job_mapping: JobMapping = JobMapping()
    """Labels metrics with the jobs of a batch scheduler."""
    service: ExporterService = ExporterService()
    """The exporter's Service."""
    host_pid: bool = msgspec.field(default=False, name="hostPID")
    """Use the host's PID namespace."""
    enable_pod_labels: bool = False
    """Label metrics with the labels of pods."""
    enable_pod_uid: bool = msgspec.field(default=False, name="enablePodUID")
    """Label metrics with the UIDs of pods."""
    pod_label_allowlist_regex: tuple[str, ...] = ()
    """Regular expressions of the pod labels to include."""


class NodeStatusExporterSpec(OperandSection, frozen=True, kw_only=True):
    """Metrics of the validation of each node."""

    enabled: bool = False
    """Run it."""


class MigSection(Section, frozen=True, kw_only=True):
    """How MIG devices are advertised."""

    strategy: Literal["none", "single", "mixed", "on-demand"] = "single"
    """How the device plugin lists MIG devices: not at all, as nvidia.com/gpu, or by profile; on-demand: Purser's agent
    creates the GPU instances that pods are granted. Takes precedence over the device plugin's file."""

    @property
    def nvidia_strategy(self) -> str:
        """As NVIDIA's feature discovery and validator know it: to them instances that come and go are none."""
        return "none" if self.strategy == "on-demand" else self.strategy


class MigManagerSpec(OperandSection, frozen=True, kw_only=True):
    """The MIG manager, which changes a node to the MIG layout that its label nvidia.com/mig.config names."""

    enabled: bool = True
    """Run it on nodes whose GPUs support MIG."""
    config: PluginConfig = PluginConfig()
    """ConfigMap with layouts in mig-parted's format, in its key config.yaml; empty name: Purser's own. default is the
    layout of nodes without the label; empty: their layout is not changed."""
    gpu_pod_timeout_seconds: Seconds = 300
    """Longest time for GPU pods to leave before a change fails, in seconds; 0: no limit. See also
    driver.upgradePolicy.gpuPodDeletion (how they are evicted) and maxUnavailable (how many nodes at a time)."""
    apply_timeout_seconds: Seconds = 600
    """Longest time to apply a layout, in seconds; 0: no limit."""


class CheckEnv(Section, frozen=True, kw_only=True):
    """Settings of one check."""

    env: tuple[EnvVar, ...] = ()
    """Additional environment variables."""


class ValidatorSpec(OperandSection, frozen=True, kw_only=True):
    """The validator, which checks on each node that driver, toolkit and device plugin work."""

    enabled: bool = True
    """Validate nodes; false: a node is valid once its device plugin is ready."""
    driver: CheckEnv = CheckEnv()
    """The check of the driver."""
    toolkit: CheckEnv = CheckEnv()
    """The check of the toolkit."""
    cuda: CheckEnv = CheckEnv()
    """The check with CUDA."""
    plugin: CheckEnv = CheckEnv()
    """The check of the device plugin."""


class Cdi(Section, frozen=True, kw_only=True):
    """The Container Device Interface."""

    enabled: bool = True
    """Name GPUs to container runtimes by CDI, on nodes whose runtime supports it: the device plugin writes the
    specification itself. Elsewhere, and with false, NVIDIA's runtime is the default runtime and adds them, named by
    mounts (Purser's agent) or by a variable (NVIDIA's device plugin)."""


class HostPaths(Section, frozen=True, kw_only=True):
    """Paths on the nodes."""

    root_fs: str = msgspec.field(default="/", name="rootFS")
    """Root of the host's file system."""
    driver_install_dir: str = "/run/nvidia/driver"
    """Root of a driver outside the host's root: of the driver container, or, with driver.enabled false, of a driver
    that is installed elsewhere, such as /home/kubernetes/bin/nvidia."""
    kubelet_root_dir: str = ""
    """kubelet's root folder; empty: detected per node (k0s and MicroK8s have their own), else /var/lib/kubelet."""


class SandboxWorkloads(Section, frozen=True, kw_only=True):
    """Nodes whose GPUs are for virtual machines. They get no operand."""

    default_workload: Workload = "container"
    """Whom the GPUs of a node are for that has no label nvidia.com/gpu.workload.config, or one with another value:
    containers, or virtual machines (vm-passthrough, vm-vgpu)."""


class Discovery(OperandSection, frozen=True, kw_only=True):
    """How GPU nodes are found. Images and similar fields are those of Purser's own discovery."""

    enabled: bool = True
    """Run Purser's own discovery: on nodes without labels of node-feature-discovery, and on GPU nodes for the models
    of their GPUs."""
    gone_after_seconds: Seconds = 600
    """How long a node may show no sign of a GPU before it counts as a node without GPUs, in seconds. Discovery may be
    away for a while."""
