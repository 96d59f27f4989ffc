"""What an agent can be told. One frozen value, made by whoever starts the agent (command line, lab, test)."""

from dataclasses import dataclass, field
from pathlib import Path

from purser.agent.allocation import DeviceList
from purser.agent.nvml.xids import XidPolicy
from purser.core.device.ids import MAX_SLOTS
from purser.core.model import DeviceMode
from purser.core.names import DEFAULT_NAMESPACE


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """Settings of one agent, which serves one node."""

    node_name: str
    """The node's name in Kubernetes (downward API: spec.nodeName)."""

    namespace: str = DEFAULT_NAMESPACE
    """Where the scheduler keeps the ConfigMap with its public keys."""

    mode: DeviceMode = DeviceMode.SHARED
    """``shared``: each card is `slots` of kubelet's devices; ``whole``: each card is one."""

    slots: int = 10
    """How many containers may share a card. Ten as in HAMi's chart: enough for small services, and each slot more makes
    kubelet's lists longer."""

    device_plugin_dir: Path = Path("/var/lib/kubelet/device-plugins")
    """kubelet's folder with kubelet.sock; the plugin's own socket goes there too."""

    pod_resources_socket: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    """kubelet's PodResources API."""

    kubelet_dir: Path = Path("/var/lib/kubelet")
    """kubelet's root folder, where its managers keep their state files. Only read."""

    kubelet_config: Path | None = None
    """kubelet's configuration file; None: config.yaml in `kubelet_dir`, where kubeadm puts it."""

    sysfs_root: Path = Path("/sys")
    """Where sysfs is mounted: CPUs, NUMA nodes and memory as kubelet finds them."""

    state_dir: Path = Path("/var/lib/purser")
    """The agent's checkpoint. Not `device_plugin_dir`: kubelet 1.20 deletes every file in it when it starts."""

    host_root: Path = Path("/")
    """Where the host's file system is mounted in the agent's container."""

    hami_core_dir: Path = Path("/usr/local/vgpu")
    """On the host: HAMi-core's libvgpu.so and ld.so.preload. Shares are enforced only where both files are."""

    hami_lock_dir: Path = Path("/tmp/vgpulock")
    """On the host: HAMi-core's node-wide lock folder, mounted into every container that it limits."""

    pass_device_specs: bool = False
    """Name /dev/nvidia* to kubelet as well. Needed where the NVIDIA container runtime does not add them, and against
    containers that lose their GPUs on ``systemctl daemon-reload``."""

    device_list: DeviceList = DeviceList.VARIABLE
    """How it is told which devices a container gets. All but ``envvar`` are out of pods' reach, and want a node that is
    set up for them: NVIDIA's container toolkit for ``volume-mounts``, its CDI specification for the two of CDI."""

    xid_policy: XidPolicy = field(default_factory=XidPolicy)
    """Which Xid errors make a card unhealthy."""

    probe_interval_s: float = 10.0
    """Between two probes of every card. Recovery takes three good ones, so half a minute."""

    probe_timeout_s: float = 20.0
    """A card that has not answered for so long is unhealthy; the driver's own calls may block for many seconds."""

    reopen_interval_s: float = 30.0
    """Between two looks for cards that came back, or for a driver where there is none: a look costs a driver restart
    of the binding, so it happens only while something is missing."""

    resolve_timeout_s: float = 3.0
    """How long one call of kubelet may wait for kubelet's list and the API server to agree on whose it is. kubelet
    itself waits without a limit, and admits nothing else meanwhile."""

    stream_timeout_s: float = 15.0
    """Without a ListAndWatch stream for so long, the agent registers again. kubelet's own dial takes up to 10 s."""

    in_flight_s: float = 2.0
    """How long an agent that was told to stop still answers kubelet, after the scheduler has been told to send no more:
    pods that are bound already reach kubelet meanwhile."""

    retry_initial_s: float = 0.5
    """First pause after a failed registration; doubles up to `retry_cap_s`."""

    retry_cap_s: float = 30.0
    """Longest pause between two tries to register."""

    metrics_host: str = "0.0.0.0"
    """Where /metrics, /healthz and /readyz listen."""

    metrics_port: int = 9440
    """0 picks a free port."""

    def __post_init__(self) -> None:
        """Refuse what could only fail later. Raises ValueError."""
        if not self.node_name:
            raise ValueError("node_name is empty: set it to the node's name (downward API field spec.nodeName)")
        if self.mode not in (DeviceMode.SHARED, DeviceMode.WHOLE):
            raise ValueError(
                f"mode is {self.mode}: the agent can hand cards out as {DeviceMode.SHARED} or {DeviceMode.WHOLE}"
            )
        if not 1 <= self.slots <= MAX_SLOTS:
            raise ValueError(f"slots is {self.slots}: give a number from 1 to {MAX_SLOTS}")

    @property
    def kubelet_socket(self) -> Path:
        """Where plugins register."""
        return self.device_plugin_dir / "kubelet.sock"

    @property
    def plugin_socket(self) -> Path:
        """Where this agent's plugin listens."""
        return self.device_plugin_dir / "purser-nvidia-gpu.sock"

    @property
    def checkpoint(self) -> Path:
        """The agent's own book."""
        return self.state_dir / "agent-book.json"
