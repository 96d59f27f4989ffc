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


class WaitForCompletion(Section, frozen=True, kw_only=True):
    """Jobs that a node's upgrade waits for."""

    pod_selector: str = ""
    """Label selector of their pods; empty: it waits for none."""
    timeout_seconds: Seconds = 0
    """How long it waits; 0: for ever."""


class PodDeletion(Section, frozen=True, kw_only=True):
    """How pods that use a GPU leave a node before its driver is replaced, or its MIG layout. Disruption budgets are
    always respected."""

    force: bool = False
    """Whether pods without a controller are evicted too; they do not come back."""
    timeout_seconds: Seconds = 300
    """How long pods may take to leave before the driver is replaced; 0: for ever. For a change of the MIG layout
    migManager.gpuPodTimeoutSeconds counts."""
    delete_empty_dir: bool = False
    """Whether pods with emptyDir volumes are evicted too; what is in them is lost."""


class Drain(Section, frozen=True, kw_only=True):
    """Eviction of all other pods as well, where that of GPU pods did not succeed."""

    enable: bool = False
    """Whether nodes are drained."""
    force: bool = False
    """Whether pods without a controller are evicted too; they do not come back."""
    pod_selector: str = ""
    """Label selector of the pods to evict; empty: all."""
    timeout_seconds: Seconds = 300
    """How long pods may take to leave; 0: for ever."""
    delete_empty_dir: bool = False
    """Whether pods with emptyDir volumes are evicted too; what is in them is lost."""


class Canary(Section, frozen=True, kw_only=True):
    """Nodes that are upgraded first. The others follow once all of these have done well for a while."""

    node_selector: dict[str, str] = {}
    """Labels of these nodes; empty: there are none."""
    soak_seconds: Seconds = 0
    """How long they must have done well."""


class UpgradePolicy(Section, frozen=True, kw_only=True):
    """How nodes go from one driver to another."""

    auto_upgrade: bool = True
    """Whether the operator does it; otherwise drivers are replaced when somebody deletes their pods."""
    max_parallel_upgrades: Count = 1
    """How many nodes at a time; 0: no limit of its own."""
    max_unavailable: int | Percent = "25%"
    """How many GPU nodes may be cordoned, NotReady, in upgrade or in a MIG change at a time; a percentage is rounded
    up. Neither an upgrade nor a MIG change makes a node unavailable beyond it."""
    wait_for_completion: WaitForCompletion = WaitForCompletion()
    """Jobs to wait for."""
    gpu_pod_deletion: PodDeletion = PodDeletion()
    """How GPU pods leave, in MIG changes as well."""
    drain: Drain = Drain()
    """Whether the rest leaves, too."""
    canary: Canary = Canary()
    """Who goes first."""
    halt_after_failures: Count = 1
    """After so many nodes whose new driver does not work no further node begins; 0: the upgrade never halts."""
    driver_timeout_seconds: Seconds = 1800
    """How long a new driver may take to be ready, whose modules may have to be built first; 0: for ever."""
    validation_timeout_seconds: Seconds = 600
    """How long a node may take from its new driver to valid; 0: for ever."""
    retry_after_seconds: Seconds = 600
    """After which time a node whose pods could not leave is tried again."""


class DriverRequirement(Section, frozen=True, kw_only=True):
    """Which driver versions some nodes can do with. A node gets no driver that a requirement rules out."""

    node_selector: dict[str, str]
    """Labels of its nodes. nvidia.com/gpu.product is compared with the card's model, which its PCI id tells before the
    first driver, or with the label as it stands."""
    minimum: str = ""
    """The oldest version that works; empty: any."""
    excluded: tuple[str, ...] = ()
    """Versions that do not work: whole ones, or beginnings such as 570.86."""
    reason: str = ""
    """Why, for people."""


class Probe(Section, frozen=True, kw_only=True):
    """Timing of a probe, in Kubernetes' words; 0: Purser's default."""

    initial_delay_seconds: Seconds = 0
    """Before the first try."""
    period_seconds: Seconds = 0
    """Between two tries."""
    timeout_seconds: Seconds = 0
    """Of one try."""
    failure_threshold: Count = 0
    """After so many failures in a row it has failed."""
    success_threshold: Count = 0
    """After so many successes in a row it has succeeded."""


class Rdma(Section, frozen=True, kw_only=True):
    """GPUDirect RDMA."""

    enabled: bool = False
    """Whether nvidia-peermem is loaded."""
    use_host_mofed: bool = False
    """Whether the MOFED driver is the host's."""


class DriverManager(Image, frozen=True, kw_only=True):
    """The init container that unloads an old driver."""

    env: tuple[EnvVar, ...] = ()
    """More variables."""


class ConfigMapRef(Section, frozen=True, kw_only=True):
    """A ConfigMap in the operator's namespace."""

    name: str = ""
    """Its name; empty: none."""


class RepoConfig(Section, frozen=True, kw_only=True):
    """Package repositories for the driver container."""

    config_map_name: str = ""
    """ConfigMap with the repository files, which come beside those in the image; empty: none."""


class Licensing(Section, frozen=True, kw_only=True):
    """Licences of vGPU guest drivers."""

    secret_name: str = ""
    """Secret with the licence; empty: none."""
    config_map_name: str = ""
    """ConfigMap with the licence, where no Secret is named; empty: none."""
    nls_enabled: bool = True
    """Whether the NVIDIA License System is used."""


class VirtualTopology(Section, frozen=True, kw_only=True):
    """Virtual topology of vGPU guests."""

    config: str = ""
    """ConfigMap with the daemon's configuration; empty: none."""


class DriverProfile(Section, frozen=True, kw_only=True):
    """Another driver for some nodes. What it does not say the driver's own section says; a list or a section of it
    stands in place of the driver's as a whole."""

    name: Name
    """Of the profile; part of its DaemonSets' names."""
    node_selector: dict[str, str]
    """Labels of its nodes. Of several profiles that select a node the first counts. nvidia.com/gpu.product is compared
    with the card's model, which its PCI id tells before the first driver, or with the label as it stands."""
    repository: str = ""
    """Instead of the driver's."""
    image: str = ""
    """Instead of the driver's."""
    version: str = ""
    """Instead of the driver's."""
    image_pull_policy: PullPolicy = ""
    """Instead of the driver's."""
    image_pull_secrets: tuple[str, ...] | None = None
    """Instead of the driver's."""
    kernel_module_type: Literal["", "auto", "open", "proprietary"] = ""
    """Instead of the driver's."""
    use_precompiled: bool | None = None
    """Instead of the driver's."""
    resources: Resources | None = None
    """Instead of the driver's."""
    args: tuple[str, ...] | None = None
    """Instead of the driver's."""
    env: tuple[EnvVar, ...] | None = None
    """Instead of the driver's."""
    host_network: bool | None = None
    """Instead of the driver's."""
    startup_probe: Probe | None = None
    """Instead of the driver's."""
    liveness_probe: Probe | None = None
    """Instead of the driver's."""
    readiness_probe: Probe | None = None
    """Instead of the driver's."""
    rdma: Rdma | None = None
    """Instead of the driver's."""
    gds: Sidecar | None = None
    """Instead of spec.gds."""
    gdrcopy: Sidecar | None = None
    """Instead of spec.gdrcopy."""
    manager: DriverManager | None = None
    """Instead of the driver's."""
    repo_config: RepoConfig | None = None
    """Instead of the driver's."""
    cert_config: ConfigMapRef | None = None
    """Instead of the driver's."""
    licensing_config: Licensing | None = None
    """Instead of the driver's."""
    virtual_topology: VirtualTopology | None = None
    """Instead of the driver's."""
    kernel_module_config: ConfigMapRef | None = None
    """Instead of the driver's."""
    secret_env: str | None = None
    """Instead of the driver's; empty: none."""
    labels: dict[str, str] | None = None
    """Instead of the driver's."""
    annotations: dict[str, str] | None = None
    """Instead of the driver's."""
    tolerations: tuple[Toleration, ...] | None = None
    """Instead of the driver's."""
    priority_class_name: str = ""
    """Instead of the driver's."""
    pod_security_context: PodSecurityContext | None = None
    """Instead of the driver's."""

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
    """The driver container. One DaemonSet per pool of nodes with equal OS, kernel and profile."""

    enabled: bool = True
    """Where the driver is the nodes' own: false. One that is there leaves a node once nothing on it uses a GPU."""
    use_precompiled: bool = False
    """Whether images with modules for the very kernel are used."""
    kernel_module_type: KernelModuleType = "auto"
    """Which kernel modules."""
    startup_probe: Probe = Probe()
    """Of the driver container."""
    liveness_probe: Probe = Probe()
    """Of the driver container; there is one where any of its timing is set."""
    readiness_probe: Probe = Probe()
    """Of the driver container; there is one where any of its timing is set."""
    rdma: Rdma = Rdma()
    """GPUDirect RDMA."""
    manager: DriverManager = DriverManager()
    """The init container that unloads an old driver."""
    repo_config: RepoConfig = RepoConfig()
    """Package repositories."""
    cert_config: ConfigMapRef = ConfigMapRef()
    """ConfigMap with certificates for them."""
    licensing_config: Licensing = Licensing()
    """Licences of vGPU guests."""
    virtual_topology: VirtualTopology = VirtualTopology()
    """Virtual topology of vGPU guests."""
    kernel_module_config: ConfigMapRef = ConfigMapRef()
    """ConfigMap with parameters of the kernel modules."""
    secret_env: str = ""
    """Secret whose keys become variables; empty: none."""
    labels: dict[str, str] = {}
    """On its DaemonSets and pods, beside spec.daemonsets.labels."""
    annotations: dict[str, str] = {}
    """On its DaemonSets and pods, beside spec.daemonsets.annotations."""
    tolerations: tuple[Toleration, ...] = ()
    """Of its pods, beside spec.daemonsets.tolerations. A taint that only drivers tolerate keeps a node incomplete."""
    priority_class_name: str = ""
    """Of its pods; empty: spec.daemonsets.priorityClassName."""
    pod_security_context: PodSecurityContext | None = None
    """Of its pods; absent: spec.daemonsets.podSecurityContext."""
    profiles: tuple[DriverProfile, ...] = ()
    """Other drivers for some nodes."""
    requirements: tuple[DriverRequirement, ...] = ()
    """Which versions some nodes can do with."""
    upgrade_policy: UpgradePolicy = UpgradePolicy()
    """How nodes go from one driver to another."""
