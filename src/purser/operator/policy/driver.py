"""The driver's section: images, versions per pool, and how upgrades go."""

from typing import Any, Literal

import msgspec

from purser.operator.policy.fields import (
    Count,
    EnvVar,
    Image,
    Name,
    OperandSection,
    Percent,
    PodSecurityContext,
    PullPolicy,
    Resources,
    Seconds,
    Section,
    Sidecar,
    Toleration,
)

KernelModuleType = Literal["auto", "open", "proprietary"]

SIDECARS = ("gds", "gdrcopy")
"""What runs beside the driver in its pod, by the names of its sections."""


class WaitForCompletion(Section, frozen=True, kw_only=True):
    """Jobs that a node waits for before its upgrade."""

    pod_selector: str = ""
    """Label selector of the jobs' pods; empty: do not wait."""
    timeout_seconds: Seconds = 0
    """Longest wait, in seconds; 0: no limit."""


class PodDeletion(Section, frozen=True, kw_only=True):
    """How pods that use a GPU are evicted before the node's driver or MIG layout is changed. PodDisruptionBudgets are
    always respected."""

    force: bool = False
    """Also evict pods without a controller, which are not recreated."""
    timeout_seconds: Seconds = 300
    """Longest time for pods to leave before a driver is replaced, in seconds; 0: no limit. MIG changes use
    migManager.gpuPodTimeoutSeconds instead."""
    delete_empty_dir: bool = False
    """Also evict pods with emptyDir volumes, whose contents are lost."""


class Drain(Section, frozen=True, kw_only=True):
    """Eviction of all other pods, if evicting the GPU pods did not succeed."""

    enable: bool = False
    """Drain nodes."""
    force: bool = False
    """Also evict pods without a controller, which are not recreated."""
    pod_selector: str = ""
    """Label selector of the pods to evict; empty: all."""
    timeout_seconds: Seconds = 300
    """Longest time for pods to leave, in seconds; 0: no limit."""
    delete_empty_dir: bool = False
    """Also evict pods with emptyDir volumes, whose contents are lost."""


class Canary(Section, frozen=True, kw_only=True):
    """Nodes that are upgraded first. The others follow once all of these have stayed healthy for soakSeconds."""

    node_selector: dict[str, str] = {}
    """Labels of the canary nodes; empty: no canary."""
    soak_seconds: Seconds = 0
    """How long the canary nodes must stay healthy, in seconds."""


class UpgradePolicy(Section, frozen=True, kw_only=True):
    """How drivers are upgraded."""

    auto_upgrade: bool = True
    """Upgrade drivers automatically; false: a driver is replaced when somebody deletes its pod."""
    max_parallel_upgrades: Count = 1
    """Most nodes in upgrade at a time; 0: only maxUnavailable limits them."""
    max_unavailable: int | Percent = "25%"
    """Most GPU nodes that may be cordoned, NotReady, in upgrade or in a MIG change at a time; a percentage is rounded
    up. No upgrade and no MIG change makes more nodes unavailable."""
    wait_for_completion: WaitForCompletion = WaitForCompletion()
    """Jobs to wait for."""
    gpu_pod_deletion: PodDeletion = PodDeletion()
    """How GPU pods are evicted, also for MIG changes."""
    drain: Drain = Drain()
    """Eviction of all other pods."""
    canary: Canary = Canary()
    """Nodes that are upgraded first."""
    halt_after_failures: Count = 1
    """Halt the upgrade after so many nodes whose new driver does not work; 0: never."""
    driver_timeout_seconds: Seconds = 1800
    """Longest time for a new driver to become ready, in seconds, including building its modules; 0: no limit."""
    validation_timeout_seconds: Seconds = 600
    """Longest time for validation after the new driver is ready, in seconds; 0: no limit."""
    retry_after_seconds: Seconds = 600
    """When to retry a node whose pods could not leave, in seconds."""


class DriverRequirement(Section, frozen=True, kw_only=True):
    """Driver versions that work on some nodes. A node gets no driver that a requirement excludes."""

    node_selector: dict[str, str]
    """Labels of the nodes. nvidia.com/gpu.product matches the GPU's model, known from its PCI id before the first
    driver, or the label's value."""
    minimum: str = ""
    """Oldest version that works; empty: any."""
    excluded: tuple[str, ...] = ()
    """Versions that do not work: full versions, or prefixes such as 570.86."""
    reason: str = ""
    """Why, shown to people."""


class Probe(Section, frozen=True, kw_only=True):
    """Timing of a probe, with Kubernetes' field names; 0: Purser's default."""

    initial_delay_seconds: Seconds = 0
    """Delay before the first probe, in seconds."""
    period_seconds: Seconds = 0
    """Time between probes, in seconds."""
    timeout_seconds: Seconds = 0
    """Timeout of one probe, in seconds."""
    failure_threshold: Count = 0
    """Consecutive failures after which the probe fails."""
    success_threshold: Count = 0
    """Consecutive successes after which the probe succeeds."""


class Rdma(Section, frozen=True, kw_only=True):
    """GPUDirect RDMA."""

    enabled: bool = False
    """Load nvidia-peermem."""
    use_host_mofed: bool = False
    """Use the host's MOFED driver."""


class DriverManager(Image, frozen=True, kw_only=True):
    """The init container that unloads an old driver."""

    env: tuple[EnvVar, ...] = ()
    """Additional environment variables."""


class ConfigMapRef(Section, frozen=True, kw_only=True):
    """A ConfigMap in the operator's namespace."""

    name: str = ""
    """Name of the ConfigMap; empty: none."""


class RepoConfig(Section, frozen=True, kw_only=True):
    """Package repositories for the driver container."""

    config_map_name: str = ""
    """ConfigMap with repository files, which are added to those of the image; empty: none."""


class Licensing(Section, frozen=True, kw_only=True):
    """Licences of vGPU guest drivers."""

    secret_name: str = ""
    """Secret with the licence; empty: none."""
    config_map_name: str = ""
    """ConfigMap with the licence, used if secretName is empty; empty: none."""
    nls_enabled: bool = True
    """Use the NVIDIA License System."""


class VirtualTopology(Section, frozen=True, kw_only=True):
    """Virtual topology of vGPU guests."""

    config: str = ""
    """ConfigMap with the daemon's configuration; empty: none."""


class DriverProfile(Section, frozen=True, kw_only=True):
    """Another driver for some nodes. Fields that it omits come from spec.driver; a list or section of the profile
    replaces that of spec.driver as a whole."""

    name: Name
    """Name of the profile; part of the names of its DaemonSets."""
    node_selector: dict[str, str]
    """Labels of the nodes. If several profiles select a node, the first is used. nvidia.com/gpu.product matches the
    GPU's model, known from its PCI id before the first driver, or the label's value."""
    repository: str = ""
    """Overrides spec.driver."""
    image: str = ""
    """Overrides spec.driver."""
    version: str = ""
    """Overrides spec.driver."""
    image_pull_policy: PullPolicy = ""
    """Overrides spec.driver."""
    image_pull_secrets: tuple[str, ...] | None = None
    """Overrides spec.driver."""
    kernel_module_type: Literal["", "auto", "open", "proprietary"] = ""
    """Overrides spec.driver."""
    use_precompiled: bool | None = None
    """Overrides spec.driver."""
    resources: Resources | None = None
    """Overrides spec.driver."""
    args: tuple[str, ...] | None = None
    """Overrides spec.driver."""
    env: tuple[EnvVar, ...] | None = None
    """Overrides spec.driver."""
    host_network: bool | None = None
    """Overrides spec.driver."""
    startup_probe: Probe | None = None
    """Overrides spec.driver."""
    liveness_probe: Probe | None = None
    """Overrides spec.driver."""
    readiness_probe: Probe | None = None
    """Overrides spec.driver."""
    rdma: Rdma | None = None
    """Overrides spec.driver."""
    gds: Sidecar | None = None
    """Overrides spec.gds."""
    gdrcopy: Sidecar | None = None
    """Overrides spec.gdrcopy."""
    manager: DriverManager | None = None
    """Overrides spec.driver."""
    repo_config: RepoConfig | None = None
    """Overrides spec.driver."""
    cert_config: ConfigMapRef | None = None
    """Overrides spec.driver."""
    licensing_config: Licensing | None = None
    """Overrides spec.driver."""
    virtual_topology: VirtualTopology | None = None
    """Overrides spec.driver."""
    kernel_module_config: ConfigMapRef | None = None
    """Overrides spec.driver."""
    secret_env: str | None = None
    """Overrides spec.driver; empty: none."""
    labels: dict[str, str] | None = None
    """Overrides spec.driver."""
    annotations: dict[str, str] | None = None
    """Overrides spec.driver."""
    tolerations: tuple[Toleration, ...] | None = None
    """Overrides spec.driver."""
    priority_class_name: str = ""
    """Overrides spec.driver."""
    pod_security_context: PodSecurityContext | None = None
    """Overrides spec.driver."""

    def said(self) -> dict[str, Any]:
        """What it says of its driver, by field; without name, nodes, and the parts of its image."""
        apart = ("name", "node_selector", "repository", "image", "version")
        named = {field.name: getattr(self, field.name) for field in msgspec.structs.fields(self)}
        # An empty text means that nothing is said, but where it takes a Secret away.
        return {
            name: value
            for name, value in named.items()
            if name not in apart and value is not None and (value != "" or name == "secret_env")
        }


class DriverSpec(OperandSection, frozen=True, kw_only=True):
    """The driver container: one DaemonSet per pool of nodes with the same OS, kernel and profile."""

    enabled: bool = True
    """Install the driver; false: the nodes have their own. A driver that was installed leaves a node once nothing
    there uses a GPU."""
    use_precompiled: bool = False
    """Use images with modules that are precompiled for the node's kernel."""
    kernel_module_type: KernelModuleType = "auto"
    """Flavor of the kernel modules."""
    startup_probe: Probe = Probe()
    """Startup probe of the driver container."""
    liveness_probe: Probe = Probe()
    """Liveness probe of the driver container, if any of its fields is set."""
    readiness_probe: Probe = Probe()
    """Readiness probe of the driver container, if any of its fields is set."""
    rdma: Rdma = Rdma()
    """GPUDirect RDMA."""
    manager: DriverManager = DriverManager()
    """The init container that unloads an old driver."""
    repo_config: RepoConfig = RepoConfig()
    """Package repositories."""
    cert_config: ConfigMapRef = ConfigMapRef()
    """ConfigMap with certificates for the package repositories."""
    licensing_config: Licensing = Licensing()
    """Licences of vGPU guests."""
    virtual_topology: VirtualTopology = VirtualTopology()
    """Virtual topology of vGPU guests."""
    kernel_module_config: ConfigMapRef = ConfigMapRef()
    """ConfigMap with parameters of the kernel modules."""
    secret_env: str = ""
    """Secret whose keys become environment variables; empty: none."""
    labels: dict[str, str] = {}
    """Labels of its DaemonSets and pods, in addition to spec.daemonsets.labels."""
    annotations: dict[str, str] = {}
    """Annotations of its DaemonSets and pods, in addition to spec.daemonsets.annotations."""
    tolerations: tuple[Toleration, ...] = ()
    """Tolerations of its pods, in addition to spec.daemonsets.tolerations. A node with a taint that only drivers
    tolerate does not become ready."""
    priority_class_name: str = ""
    """Priority class of its pods; empty: spec.daemonsets.priorityClassName."""
    pod_security_context: PodSecurityContext | None = None
    """Security context of its pods; absent: spec.daemonsets.podSecurityContext."""
    profiles: tuple[DriverProfile, ...] = ()
    """Other drivers for some nodes."""
    requirements: tuple[DriverRequirement, ...] = ()
    """Driver versions that work on some nodes."""
    upgrade_policy: UpgradePolicy = UpgradePolicy()
    """How drivers are upgraded."""
