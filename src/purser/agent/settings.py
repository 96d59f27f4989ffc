"""Settings of an agent: one frozen value, made by the code that starts it (command line, lab, test).

The options are described in `purser.options`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar

from purser.core.device.ids import MAX_SLOTS
from purser.core.device.resources import is_gpu_resource
from purser.core.health.policy import DISABLE_VARIABLE, ENABLE_VARIABLE, IGNORE_VARIABLE, XidPolicy
from purser.core.model import DeviceMode
from purser.core.names import DEFAULT_NAMESPACE
from purser.core.sharing import PLUGIN_VARIABLES, ConfigFallback, MigStrategy, PluginFile, plugin_settings
from purser.core.sharing.file import PREFIX
from purser.core.sriov.names import DEFAULT_PREFIX, socket_name
from purser.options import (
    AGENT_METRICS_PORT,
    DRIVER_LIBRARY,
    DRIVER_ROOT_FILE,
    DRIVER_ROOTS,
    HOST_ROOT,
    MANAGED_RESOURCES,
    MEMORY_UNITS,
    METRICS_ADDRESS,
    METRICS_PORT,
    NODE_NAME,
    SYSFS_ROOT,
    Option,
    OptionGroup,
    Variables,
    settings_of,
)


class FeatureOutlet(StrEnum):
    """Where labels of the node's GPUs go."""

    OFF = "off"
    FILE = "file"
    """A file that node-feature-discovery's worker reads on this node: it takes no permissions in the cluster."""
    NODE_FEATURE = "node-feature"
    """A NodeFeature object, for node-feature-discovery's master."""
    NODE_LABELS = "node-labels"
    """The node itself, where there is no node-feature-discovery."""


class EnforcementChoice(StrEnum):
    """What is to hold shares."""

    AUTO = "auto"
    """Whatever is there without starting anything: HAMi-core's library, else the driver's time-slicing."""
    MPS = "mps"
    """An MPS daemon for each GPU that can have one; on others as ``auto``."""
    HAMI_CORE = "hami-core"
    TIME_SLICING = "time-slicing"
    NONE = "none"


class MetricNames(StrEnum):
    """Exporters whose metric names are exported beside Purser's."""

    DCGM = "dcgm"
    HAMI = "hami"
    HAMI_LEGACY = "hami-legacy"


@dataclass(frozen=True, kw_only=True)
class FeatureSettings:
    """How the agent publishes labels of its node's GPUs. The defaults are NVIDIA's, except for the outlet."""

    outlet: Annotated[
        FeatureOutlet,
        Option(
            "Where the agent publishes the labels that describe the node's GPUs: in a file or a NodeFeature "
            "object for node-feature-discovery, on the node itself, or nowhere.",
            name="feature-labels",
            value="agent.featureLabels",
        ),
    ] = FeatureOutlet.OFF

    file: Annotated[Path, Option("File on the host that node-feature-discovery reads.", name="feature-file")] = Path(
        "/etc/kubernetes/node-feature-discovery/features.d/gfd"
    )

    keeps_file: Annotated[
        bool,
        Option(
            "Keep the feature file when the agent stops so that the node keeps its labels.", name="keep-feature-file"
        ),
    ] = False

    has_timestamp: Annotated[
        bool, Option("Also label the node with the time at which its labels last changed.", name="feature-timestamp")
    ] = True

    machine_file: Annotated[
        Path | None,
        Option(
            "File on the host that holds the machine type. Default: the product name in sysfs.",
            name="machine-type-file",
        ),
    ] = None

    pod_name: Annotated[
        str,
        Option("Name of the agent's pod, whose DaemonSet owns the NodeFeature object.", environment="POD_NAME"),
    ] = ""


def _parse_fallbacks(text: str) -> tuple[ConfigFallback, ...]:
    """Raises ValueError."""
    return tuple(ConfigFallback(word.strip()) for word in text.split(",") if word.strip())


@dataclass(frozen=True, kw_only=True)
class DevicePluginFlags:
    """What NVIDIA's device plugin takes as options too: what is given here counts before its variables, and these
    before its file. None: not given."""

    mig_strategy: Annotated[
        MigStrategy | None,
        Option(
            "How MIG devices are listed. none: not listed; single: as nvidia.com/gpu; mixed: by profile, such as "
            "nvidia.com/mig-1g.5gb; on-demand: the agent creates the GPU instances that pods are granted. "
            "Default: none.",
        ),
    ] = None
    device_lists: Annotated[
        str | None,
        Option(
            "How the agent passes a container's GPUs to the container runtime; separate several strategies with "
            "commas. envvar: in an environment variable, which a pod can override. A pod cannot override the others: "
            "volume-mounts, which the container toolkit must be configured to accept; cdi-annotations and cdi-cri, "
            "which use a CDI specification that the agent writes. Default: envvar.",
            name="device-list-strategy",
            value="agent.deviceListStrategy",
            pattern="^((envvar|volume-mounts|cdi-annotations|cdi-cri)(,|$))*$",
        ),
    ] = None
    device_ids: Annotated[
        str | None,
        Option(
            "How GPUs are identified to the container runtime. Default: uuid.",
            name="device-id-strategy",
            words=("uuid", "index"),
        ),
    ] = None
    pass_device_specs: Annotated[
        bool | None,
        Option("Also pass /dev/nvidia* to kubelet, for runtimes that do not add these device files."),
    ] = None
    """Needed as well against containers that lose their GPUs on ``systemctl daemon-reload``."""
    cdi_annotation_prefix: Annotated[
        str | None, Option("Prefix of the annotations that name CDI devices. Default: cdi.k8s.io/.")
    ] = None
    cdi_hook: Annotated[
        str | None,
        Option(
            "Path on the host to nvidia-cdi-hook or nvidia-ctk, which the CDI specification runs as its hook. "
            "Default: /usr/bin/nvidia-ctk.",
            name="nvidia-cdi-hook-path",
        ),
    ] = None
    mps_root: Annotated[
        str | None,
        Option(
            "Has no effect: the pipes of the MPS daemons are in /run/purser/mps on the host. Accepted so that the "
            "options of NVIDIA's device plugin need not be changed."
        ),
    ] = None
    driver_root: Annotated[
        str | None, Option("Root folder of the driver on the host. Default: detected.", name="nvidia-driver-root")
    ] = None
    dev_root: Annotated[
        str | None,
        Option("Root folder of the device nodes on the host. Default: the driver root.", name="nvidia-dev-root"),
    ] = None
    gdrcopy: Annotated[bool | None, Option("Whether to give containers access to GDRCopy.", name="gdrcopy-enabled")] = (
        None
    )
    gds: Annotated[
        bool | None, Option("Whether to give containers access to GPUDirect Storage.", name="gds-enabled")
    ] = None
    mofed: Annotated[
        bool | None, Option("Whether to give containers access to Mellanox devices.", name="mofed-enabled")
    ] = None
    allocation_policy: Annotated[
        str | None,
        Option(
            "Which GPU to allocate a replica from first: the one with the fewest allocated replicas "
            "(distributed), or the most (packed). Default: distributed.",
            name="shared-devices-allocation-policy",
            words=("distributed", "packed"),
        ),
    ] = None
    imex_channels: Annotated[
        str | None,
        Option("IMEX channels to give to containers. Only 0 is supported. Default: none.", name="imex-channel-ids"),
    ] = None
    imex_required: Annotated[
        bool | None,
        Option("Whether containers fail to start if the node lacks the IMEX channels. By default, they start without."),
    ] = None

    def given(self) -> dict[str, str]:
        """Those that are given, by name, as text."""
        found = {each.name: getattr(self, each.path[-1]) for each in settings_of(DevicePluginFlags)}
        words = {True: "true", False: "false"}
        return {name: words.get(value, value) for name, value in found.items() if value is not None}


def _plugin_variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in PLUGIN_VARIABLES if name in environment}


@dataclass(frozen=True, kw_only=True)
class SharingSettings:
    """How a node's GPUs are shared and listed, in the words of NVIDIA's device plugin."""

    file: Annotated[
        Path | None,
        Option(
            "Configuration file of NVIDIA's device plugin.",
            name="config-file",
            environment="CONFIG_FILE",
            skips_empty=True,
        ),
    ] = None

    folder: Annotated[
        Path | None,
        Option(
            "Folder with configuration files. The node's label nvidia.com/device-plugin.config names the one to use.",
            name="config-dir",
            environment="CONFIG_FILE_SRCDIR",
            skips_empty=True,
        ),
    ] = None

    default: Annotated[
        str,
        Option(
            "Name of the configuration file for nodes without the label.",
            name="default-config",
            environment="DEFAULT_CONFIG",
            value="agent.config.default",
        ),
    ] = ""

    fallbacks: Annotated[
        tuple[ConfigFallback, ...],
        Option(
            "Fallback order for nodes without a label if no default is set: named (the file called default), "
            "single (the only file), empty (no file).",
            name="fallback-strategies",
            environment="FALLBACK_STRATEGIES",
            read=_parse_fallbacks,
            form="one or more of named, single and empty, separated by commas",
        ),
    ] = (ConfigFallback.NAMED, ConfigFallback.SINGLE, ConfigFallback.EMPTY)

    flags: Annotated[DevicePluginFlags, OptionGroup()] = field(default_factory=DevicePluginFlags)

    variables: Annotated[
        Mapping[str, str],
        Variables(
            "Environment variables of NVIDIA's device plugin. They take precedence over the configuration file, and "
            "the agent's options take precedence over them.",
            PLUGIN_VARIABLES,
            _plugin_variables,
        ),
    ] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what no file could mend. Raises ValueError."""
        plugin_settings(PluginFile(), self.flags.given(), self.variables)


@dataclass(frozen=True, kw_only=True)
class SriovSettings:
    """Network devices and accelerators in pools, in the words of the SR-IOV network device plugin."""

    config: Annotated[
        Path | None,
        Option(
            "The SR-IOV network device plugin's config.json, or a folder with such files: the file named after "
            "the node, or else config.json. The agent then also serves the file's pools of network devices.",
            name="sriov-config",
            skips_empty=True,
        ),
    ] = None

    resource_prefix: Annotated[
        str,
        Option(
            "Resource prefix for pools that do not set a prefix.",
            name="sriov-resource-prefix",
            value="agent.sriov.resourcePrefix",
        ),
    ] = DEFAULT_PREFIX

    uses_cdi: Annotated[
        bool,
        Option(
            "Pass SR-IOV devices to the container runtime through CDI instead of passing device files to kubelet.",
            name="sriov-use-cdi",
            value="agent.sriov.useCdi",
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """Settings of one agent, which serves one node."""

    node_name: Annotated[str, NODE_NAME]
    """By the downward API: spec.nodeName."""

    _is_named: ClassVar[bool] = True
    """Whether the name is needed."""

    namespace: Annotated[str, Option("Namespace in which the scheduler publishes its public keys.")] = DEFAULT_NAMESPACE

    mode: Annotated[
        DeviceMode,
        Option(
            "shared: several containers can share a GPU; whole: one container per GPU.",
            value="agent.mode",
            words=(DeviceMode.SHARED, DeviceMode.WHOLE),
        ),
    ] = DeviceMode.SHARED
    """``shared``: each GPU is `slots` of kubelet's devices; ``whole``: each GPU is one."""

    slots: Annotated[
        int,
        Option(
            "How many containers may share a GPU in mode shared, unless the device plugin's configuration sets "
            "replicas.",
            value="agent.slots",
            minimum=1,
            maximum=MAX_SLOTS,
            type_checks=True,
        ),
    ] = 10
    """Ten as in HAMi's chart: enough for small services, and each slot more makes kubelet's lists longer."""

    enforcement: Annotated[
        EnforcementChoice,
        Option(
            "How limits of GPU shares are enforced. auto: by HAMi-core's library if the node has it, and by MPS for "
            "the replicas of sharing.mps in the device plugin's configuration; mps: by an MPS daemon that the agent "
            "starts on each GPU that supports MPS, and on other GPUs as with auto; hami-core: only by the library, if "
            "the node has it; time-slicing and none: limits are not enforced.",
            value="agent.enforcement",
        ),
    ] = EnforcementChoice.AUTO

    mps_exclusive: Annotated[
        bool,
        Option(
            "With MPS, set compute mode EXCLUSIVE_PROCESS, which keeps programs that are not MPS clients off the "
            "GPU. Containers with several GPUs then fail.",
            value="agent.mpsExclusive",
        ),
    ] = False

    device_plugin_dir: Annotated[
        Path, Option("kubelet's device plugin folder, in which plugins register at kubelet.sock.")
    ] = Path("/var/lib/kubelet/device-plugins")
    """The plugin's own socket goes there too."""

    pod_resources_socket: Annotated[Path, Option("Socket of kubelet's PodResources API.")] = Path(
        "/var/lib/kubelet/pod-resources/kubelet.sock"
    )

    kubelet_dir: Annotated[
        Path,
        Option("kubelet's root folder (--root-dir), which contains kubelet's state files.", value="agent.kubeletDir"),
    ] = Path("/var/lib/kubelet")
    """Only read."""

    kubelet_config: Annotated[
        Path | None,
        Option(
            "kubelet's configuration file. Default: config.yaml in kubelet's root folder, where kubeadm puts it.",
            value="agent.kubeletConfig",
        ),
    ] = None

    state_dir: Annotated[Path, Option("Folder for what the agent keeps across restarts, such as its checkpoint.")] = (
        Path("/var/lib/purser")
    )
    """Not `device_plugin_dir`: kubelet 1.20 deletes every file in it when it starts."""

    host_root: Annotated[Path, HOST_ROOT] = Path("/")

    driver_library: Annotated[Path | None, DRIVER_LIBRARY] = None

    driver_roots: Annotated[tuple[Path, ...], DRIVER_ROOTS] = ()

    driver_root_file: Annotated[Path | None, DRIVER_ROOT_FILE] = None

    sysfs_root: Annotated[Path, SYSFS_ROOT] = Path("/sys")
    """CPUs, NUMA nodes and memory as kubelet finds them."""

    hami_core_dir: Annotated[
        Path,
        Option(
            "Folder on the host with HAMi-core's libvgpu.so and ld.so.preload. Without these files, limits are "
            "advisory unless MPS enforces them.",
            value="agent.hamiCoreDir",
        ),
    ] = Path("/usr/local/vgpu")

    hami_lock_dir: Path = Path("/tmp/vgpulock")
    """On the host: HAMi-core's node-wide lock folder, mounted into every container that it limits."""

    sharing: Annotated[SharingSettings, OptionGroup()] = field(default_factory=SharingSettings)

    sriov: Annotated[SriovSettings, OptionGroup()] = field(default_factory=SriovSettings)

    metrics_address: Annotated[str, METRICS_ADDRESS] = "0.0.0.0"

    metrics_port: Annotated[int, replace(METRICS_PORT, value="agent.metricsPort")] = AGENT_METRICS_PORT

    metrics_also_as: Annotated[
        tuple[MetricNames, ...],
        Option(
            "Also export GPU metrics under the names of another exporter, which must not run on the same node: "
            "dcgm (NVIDIA's DCGM exporter), hami (HAMi's monitor), hami-legacy (older names of HAMi's monitor).",
            value="agent.metricsAlsoAs",
            read=MetricNames,
            form=" or ".join(MetricNames),
            repeated=True,
        ),
    ] = ()
    """None of them: who runs such an exporter, as the operator does, would have every GPU twice."""

    memory_units: Annotated[tuple[tuple[str, int], ...], MEMORY_UNITS] = ()

    managed_resources: Annotated[tuple[str, ...], MANAGED_RESOURCES] = ()

    evict_over_users: Annotated[
        bool,
        Option(
            "Evict pods that for 30 seconds have exceeded their granted GPU memory by more than 10 percent and more "
            "than 512 MiB.",
            value="agent.evictOverUsers",
        ),
    ] = False

    evict_from_unhealthy_gpus: Annotated[
        bool,
        Option(
            "Evict pods from a GPU that has been unhealthy for 60 seconds, one at a time.",
            value="agent.evictFromUnhealthyGpus",
        ),
    ] = False

    taint_nodes: Annotated[
        bool,
        Option(
            "Taint the node with purser.dev/gpu-unhealthy:NoSchedule while any of its GPUs is unhealthy.",
            value="agent.taintNodes",
        ),
    ] = False

    cordon_nodes: Annotated[
        bool,
        Option("Cordon the node while a GPU needs a reboot.", value="agent.cordonNodes"),
    ] = False

    reset_gpus: Annotated[
        bool,
        Option(
            "Reset GPUs that need a reset once no pod or process uses them, unless they are in MIG mode.",
            value="agent.resetGpus",
        ),
    ] = False

    xid_policy: Annotated[
        XidPolicy,
        Variables(
            "Which Xid errors make a GPU unhealthy, if not those in NVIDIA's catalogue. As in NVIDIA's device "
            "plugin, the first variable disables Xids and the second enables Xids; each is a comma-separated list, or "
            "all for the Xids that neither variable lists. If both name the same Xids, the second takes precedence. "
            "The third variable, from NVIDIA's DRA driver, also disables Xids (a comma-separated list).",
            (DISABLE_VARIABLE, ENABLE_VARIABLE, IGNORE_VARIABLE),
            XidPolicy.from_environment,
        ),
    ] = field(default_factory=XidPolicy)
    """In the words of NVIDIA's device plugin and DRA driver."""

    features: Annotated[FeatureSettings, OptionGroup()] = field(default_factory=FeatureSettings)

    probe_interval_s: float = 10.0
    """Between two probes of every GPU."""

    recovery_s: float = 20.0
    """For how long a GPU's probes must show nothing wrong before it takes pods again: longer than a failing GPU answers
    between two of its fits. At the regular probe interval that takes three good probes, so half a minute."""

    probe_timeout_s: float = 20.0
    """A GPU that has not answered for so long is unhealthy; the driver's own calls may block for many seconds."""

    telemetry_interval_s: float = 10.0
    """Between two measurements of every GPU: not longer than Prometheus' usual interval of 15 s."""

    telemetry_max_age_s: float = 30.0
    """Older measurements are not exported."""

    reopen_interval_s: float = 30.0
    """Between two looks for GPUs that came back, or for a driver where there is none: a look costs a driver restart
    of the binding, so it happens only while something is missing."""

    resolve_timeout_s: float = 3.0
    """How long one call of kubelet may wait for kubelet's list and the API server to agree on whose it is. kubelet
    itself waits without a limit, and admits nothing else meanwhile."""

    stream_timeout_s: float = 15.0
    """Without a ListAndWatch stream for so long, the agent registers again. kubelet's own dial takes up to 10 s."""

    in_flight_s: float = 2.0
    """How long a stopping agent still answers kubelet after it has published that no GPUs are available: pods that are
    bound already reach kubelet meanwhile."""

    retry_initial_s: float = 0.5
    """First pause after a failed registration; doubles up to `retry_cap_s`."""

    retry_cap_s: float = 30.0
    """Longest pause between two tries to register."""

    def __post_init__(self) -> None:
        """Refuse what could only fail later. Raises ValueError."""
        if self._is_named and not self.node_name:
            raise ValueError("node_name is empty: must be the node's name (downward API field spec.nodeName)")
        if self.mode not in (DeviceMode.SHARED, DeviceMode.WHOLE):
            raise ValueError(f"invalid value {self.mode} for mode: must be {DeviceMode.SHARED} or {DeviceMode.WHOLE}")
        if not 1 <= self.slots <= MAX_SLOTS:
            raise ValueError(f"invalid value {self.slots} for slots: must be a number from 1 to {MAX_SLOTS}")

    @property
    def kubelet_socket(self) -> Path:
        """Where plugins register."""
        return self.device_plugin_dir / "kubelet.sock"

    def plugin_socket(self, resource: str) -> Path:
        """Where this agent's plugin for a resource listens."""
        if not is_gpu_resource(resource):
            folder = self.plugin_registry_dir if self.is_watched(resource) else self.device_plugin_dir
            return folder / socket_name(resource)
        return self.device_plugin_dir / f"purser-nvidia-{resource.removeprefix(PREFIX)}.sock"

    @property
    def plugin_registry_dir(self) -> Path:
        """Where kubelet looks for plugins."""
        return self.kubelet_dir / "plugins_registry"

    def is_watched(self, resource: str) -> bool:
        """Whether kubelet finds the resource's plugin itself, as the SR-IOV network device plugin leaves it to kubelet
        where that has the folder."""
        return not is_gpu_resource(resource) and self.plugin_registry_dir.is_dir()

    @property
    def sriov_file(self) -> Path:
        """What was last seen of SR-IOV devices."""
        return self.state_dir / "sriov-devices.json"

    @property
    def plugin_config(self) -> Path:
        """The last of the device plugin's files that was good."""
        return self.state_dir / "device-plugin-config.json"

    @property
    def health_file(self) -> Path:
        """What of GPUs' health outlives the agent."""
        return self.state_dir / "gpu-health.json"

    @property
    def known_gpus_file(self) -> Path:
        """The GPUs that the driver listed last."""
        return self.state_dir / "known-gpus.json"

    @property
    def checkpoint(self) -> Path:
        """The agent's own book."""
        return self.state_dir / "agent-checkpoint.json"


@dataclass(frozen=True, kw_only=True)
class CheckSettings(AgentSettings):
    """Those of `purser agent check`, which takes whatever node it is on."""

    _is_named: ClassVar[bool] = False

    node_name: Annotated[str, NODE_NAME] = ""
    """Empty: the agent's checkpoint may be any node's."""
