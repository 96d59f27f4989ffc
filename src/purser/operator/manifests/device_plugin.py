"""What kubelet gets its GPUs from: Purser's agent, or NVIDIA's device plugin."""

from purser.operator.manifests.driver_files import is_beside_some_driver
from purser.operator.manifests.mounts import (
    CDI,
    DRIVER_READY,
    HOST,
    VALIDATIONS,
    PluginConfigMount,
    configured,
    driver_root,
    driver_validation,
    host_root,
    under_host,
    until_driver,
    with_driver_variables,
)
from purser.operator.manifests.parts import (
    NODE_NAME,
    ContainerTemplate,
    DaemonSetPlacement,
    MountedVolume,
    PodTemplate,
    Raw,
    config_map,
    container,
    daemon_set,
    field_of_pod,
    host_network,
    host_path,
    per_runtime,
    runtime_class,
)
from purser.operator.manifests.toolkit import CDI_STRATEGY, KUBELET, device_list, kubelet_root, uses_cdi
from purser.operator.model import Rendered, RenderInputs, RuntimeKind
from purser.operator.names import DEPLOY, RUNTIME_LABEL
from purser.operator.order import Operand
from purser.operator.policy.fields import DEFAULTS, Image, Resources, reference, split
from purser.operator.policy.sections import DevicePluginSpec, PluginConfig
from purser.operator.policy.spec import ClusterPolicySpec
from purser.options import AGENT_METRICS_PORT

AGENT_ACCOUNT = "purser-agent"
ACCOUNT = "purser-device-plugin"
_CONFIGS = "/configs"
HAMI_CORE = "/usr/local/vgpu"
"""On the host: HAMi-core's library, and ld.so.preload that names it."""
AGENT_RESOURCES = Resources(requests={"cpu": "20m", "memory": "80Mi"}, limits={"memory": "256Mi"})
_COPY_HAMI_CORE = f"""\
new=$(ls /k8s-vgpu/lib/nvidia/libvgpu.so* | tail -n 1)
cd /hami-core
if ! cmp -s "$new" libvgpu.so; then
  cp "$new" libvgpu.so.new
  chmod 755 libvgpu.so.new
  mv libvgpu.so.new libvgpu.so
fi
echo {HAMI_CORE}/libvgpu.so > ld.so.preload.new
mv ld.so.preload.new ld.so.preload
"""
"""By renaming: containers that run keep the file that they have."""


def render(wanted: RenderInputs) -> list[Rendered]:
    """A DaemonSet per kind of runtime: kubelet's sockets are not everywhere at the same place. One more with NVIDIA's
    plugin for MPS."""
    spec = wanted.policy.spec
    section = spec.device_plugin
    build = _agent_pod if section.flavor == "purser" else _plugin_pod
    # MPS daemons end with the agent's pod, and with them all programs that are their clients: people say when.
    stays = section.flavor == "purser" and section.enforcement == "mps"
    plugins = per_runtime(wanted, lambda kind: build(wanted, kind), Operand.DEVICE_PLUGIN, on_delete=stays)
    return [*plugins, *_mps(wanted)]


def _sockets(spec: ClusterPolicySpec, kind: RuntimeKind) -> MountedVolume:
    root = kubelet_root(kind, spec.host_paths.kubelet_root_dir)
    return host_path("device-plugins", f"{root}/device-plugins", f"{KUBELET}/device-plugins", type="Directory")


def pod_resources(spec: ClusterPolicySpec, kind: RuntimeKind) -> MountedVolume:
    """kubelet's PodResources API."""
    root = kubelet_root(kind, spec.host_paths.kubelet_root_dir)
    at = f"{KUBELET}/pod-resources"
    return host_path("pod-resources", f"{root}/pod-resources", at, type="DirectoryOrCreate", read_only=True)


# --- Purser's agent: the same arguments and mounts as in the Helm chart, which installs it without an operator


def _agent_pod(wanted: RenderInputs, kind: RuntimeKind) -> PodTemplate:
    return PodTemplate(
        account=AGENT_ACCOUNT,
        init=_hami_core(wanted),
        containers=[_agent(wanted, kind)],
        more={"hostPID": True, **host_network(wanted.policy.spec.device_plugin)},
        annotations={"prometheus.io/scrape": "true", "prometheus.io/port": str(AGENT_METRICS_PORT)},
        labels={"app": "nvidia-device-plugin-daemonset", "app.kubernetes.io/component": "agent"},
    )


def _hami_core(wanted: RenderInputs) -> list[ContainerTemplate]:
    """Copies HAMi-core's library to the host, where the policy names an image that has it."""
    section = wanted.policy.spec.device_plugin
    if not section.hami_core_image:
        return []
    pulled = Image(image_pull_policy=section.image_pull_policy, image_pull_secrets=section.image_pull_secrets)
    return [
        container(
            "hami-core",
            section.hami_core_image,
            pulled,
            command=["sh", "-ec", _COPY_HAMI_CORE],
            env={"NVIDIA_VISIBLE_DEVICES": "void"},
            mounts=[host_path("hami-core", HAMI_CORE, "/hami-core", type="DirectoryOrCreate")],
            privileged=True,
            resources=AGENT_RESOURCES,
        )
    ]


def _agent_resources(section: DevicePluginSpec) -> Resources:
    """MPS servers are in the agent's container: a limit of its own would be theirs, too."""
    if section.resources != Resources():
        return section.resources
    return Resources(requests=AGENT_RESOURCES.requests) if section.enforcement == "mps" else AGENT_RESOURCES


def _agent(wanted: RenderInputs, kind: RuntimeKind) -> ContainerTemplate:
    spec = wanted.policy.spec
    section = spec.device_plugin
    health = {"httpGet": {"path": "/healthz", "port": "metrics"}, "periodSeconds": 10, "failureThreshold": 6}
    return container(
        "agent",
        reference(split(wanted.purser_image), section),
        section,
        args=_agent_arguments(wanted, kind),
        env={
            "NODE_NAME": NODE_NAME,
            **({"POD_NAME": field_of_pod("metadata.name")} if section.feature_labels == "node-feature" else {}),
            "NVIDIA_VISIBLE_DEVICES": "all",
            "NVIDIA_DRIVER_CAPABILITIES": "utility",
        },
        mounts=[
            _sockets(spec, kind),
            pod_resources(spec, kind),
            host_path("state", "/var/lib/purser", type="DirectoryOrCreate"),
            host_path("host", spec.host_paths.root_fs, HOST, type="Directory", propagation="HostToContainer"),
            *([config_map("configs", section.config.name, _CONFIGS)] if section.config.name else []),
        ],
        privileged=True,
        resources=_agent_resources(section),
        more={
            "ports": [{"name": "metrics", "containerPort": AGENT_METRICS_PORT}],
            "livenessProbe": health,
            "readinessProbe": {"httpGet": {"path": "/readyz", "port": "metrics"}, "periodSeconds": 5},
        },
    )


def _agent_arguments(wanted: RenderInputs, kind: RuntimeKind) -> list[str]:
    spec = wanted.policy.spec
    kubelet = kubelet_root(kind, spec.host_paths.kubelet_root_dir)
    by_mounts = Operand.TOOLKIT in spec.enabled and "volume-mounts" in device_list(spec, kind)
    return [
        "agent",
        "run",
        "--node-name=$(NODE_NAME)",
        f"--namespace={wanted.namespace}",
        f"--mode={spec.device_plugin.mode}",
        f"--slots={spec.device_plugin.slots}",
        *_enforcement_arguments(spec.device_plugin),
        "--host-root=/host",
        *driver_arguments(spec),
        f"--kubelet-dir={under_host(kubelet)}",
        f"--device-list-strategy={'volume-mounts' if by_mounts else 'envvar'}",
        f"--mig-strategy={spec.mig.strategy}",
        *_config_arguments(spec.device_plugin.config),
        *(["--gdrcopy-enabled"] if is_beside_some_driver(spec, "gdrcopy") else []),
        *(["--gds-enabled", "--mofed-enabled"] if is_beside_some_driver(spec, "gds") else []),
        f"--hami-core-dir={HAMI_CORE}",
        f"--metrics-port={AGENT_METRICS_PORT}",
        *_labels_and_repairs(spec.device_plugin),
    ]


def _enforcement_arguments(section: DevicePluginSpec) -> list[str]:
    wanted = [] if section.enforcement == "auto" else [f"--enforcement={section.enforcement}"]
    return [*wanted, *(["--mps-exclusive"] if section.mps.exclusive else [])]


def _labels_and_repairs(section: DevicePluginSpec) -> list[str]:
    labels = [] if section.feature_labels == "off" else [f"--feature-labels={section.feature_labels}"]
    switches = {
        "--taint-nodes": section.taint_nodes,
        "--cordon-nodes": section.cordon_nodes,
        "--reset-gpus": section.reset_gpus,
    }
    evicting = ["--evict-over-users"] if section.evict_over_users else []
    return [*evicting, *labels, *(name for name, is_on in switches.items() if is_on)]


def _config_arguments(config: PluginConfig) -> list[str]:
    if not config.name:
        return []
    return [f"--config-dir={_CONFIGS}", *([f"--default-config={config.default}"] if config.default else [])]


def driver_arguments(spec: ClusterPolicySpec) -> list[str]:
    """How Purser's own are told where the driver is: by what NVIDIA's validator found on that very node; until then by
    looking. They look through the node's root: a mount of the driver's would stay an old one when a new one comes."""
    return [
        f"--driver-root-file={under_host(DRIVER_READY)}",
        f"--driver-root={HOST}",
        f"--driver-root={under_host(spec.host_paths.driver_install_dir)}",
    ]


# --- NVIDIA's device plugin


def _plugin_pod(wanted: RenderInputs, kind: RuntimeKind) -> PodTemplate:
    spec = wanted.policy.spec
    found = configured(spec, "nvidia-device-plugin")
    return PodTemplate(
        account=ACCOUNT,
        init=[driver_validation(spec, anew=False), *found.init],
        containers=[_plugin(spec, kind, found), *found.beside],
        more={**runtime_class(wanted, kind), **host_network(spec.device_plugin), **found.pod},
        labels={"app": "nvidia-device-plugin-daemonset"},
    )


def _plugin(spec: ClusterPolicySpec, kind: RuntimeKind, found: PluginConfigMount) -> ContainerTemplate:
    section = spec.device_plugin
    mps = section.mps.root.rstrip("/")
    return container(
        "nvidia-device-plugin",
        reference(DEFAULTS["device-plugin"], section),
        section,
        command=with_driver_variables("nvidia-device-plugin"),
        env={**_plugin_variables(spec, kind), **found.env},
        mounts=[
            _sockets(spec, kind),
            host_root(spec),
            driver_root(spec),
            VALIDATIONS,
            CDI,
            host_path("mps-root", mps, "/mps", type="DirectoryOrCreate"),
            host_path("mps-shm", f"{mps}/shm", "/dev/shm", type="DirectoryOrCreate"),
            *found.mounts,
        ],
        privileged=True,
    )


def _plugin_variables(spec: ClusterPolicySpec, kind: RuntimeKind) -> dict[str, str | Raw]:
    hook = {"NVIDIA_CDI_HOOK_PATH": f"{spec.toolkit.install_dir}/toolkit/nvidia-cdi-hook"}
    cdi = {
        "CDI_ENABLED": "true",
        "DEVICE_LIST_STRATEGY": CDI_STRATEGY,
        "CDI_ANNOTATION_PREFIX": "cdi.k8s.io/",
        **(hook if spec.toolkit.enabled else {}),
    }
    return {
        "PASS_DEVICE_SPECS": "true",
        "FAIL_ON_INIT_ERROR": "true",
        "DEVICE_LIST_STRATEGY": "envvar",
        "DEVICE_ID_STRATEGY": "uuid",
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "all",
        "NVIDIA_MIG_MONITOR_DEVICES": "all",
        "MIG_STRATEGY": spec.mig.strategy,
        "MPS_ROOT": spec.device_plugin.mps.root,
        **({"GDRCOPY_ENABLED": "true"} if is_beside_some_driver(spec, "gdrcopy") else {}),
        **({"GDS_ENABLED": "true", "MOFED_ENABLED": "true"} if is_beside_some_driver(spec, "gds") else {}),
        **(cdi if uses_cdi(spec, kind) else {}),
    }


# --- MPS


NAME = "mps-control-daemon"
CAPABLE_LABEL = "nvidia.com/mps.capable"
"""On a node, by feature discovery."""


def _mps(wanted: RenderInputs) -> list[Rendered]:
    """A DaemonSet per kind of runtime: its pods have the RuntimeClass, or Docker's default."""
    plugin = wanted.policy.spec.device_plugin
    if plugin.flavor != "nvidia" or not plugin.config.name:
        return []
    return [
        daemon_set(wanted, NAME, f"purser-{NAME}-{kind.label}", _pod(wanted, kind), _where(kind))
        for kind in wanted.runtimes
    ]


def _where(kind: RuntimeKind) -> DaemonSetPlacement:
    nodes = {Operand.DEVICE_PLUGIN.deploy_label: DEPLOY, CAPABLE_LABEL: "true"}
    return DaemonSetPlacement(label=(RUNTIME_LABEL, kind.label), nodes=nodes)


def _folder(spec: ClusterPolicySpec, propagation: str = "") -> MountedVolume:
    root = spec.device_plugin.mps.root.rstrip("/")
    return host_path("mps-root", root, "/mps", type="DirectoryOrCreate", propagation=propagation)


def _pod(wanted: RenderInputs, kind: RuntimeKind) -> PodTemplate:
    spec = wanted.policy.spec
    plugin = spec.device_plugin
    found = configured(spec, "/usr/bin/mps-control-daemon")
    image = reference(DEFAULTS["device-plugin"], plugin)
    pulled = Image(image_pull_policy=plugin.image_pull_policy, image_pull_secrets=plugin.image_pull_secrets)
    mounts = container(
        "mps-control-daemon-mounts",
        image,
        pulled,
        command=["mps-control-daemon", "mount-shm"],
        mounts=[_folder(spec, "Bidirectional")],
        privileged=True,
    )
    root = plugin.mps.root.rstrip("/")
    main = container(
        "mps-control-daemon-ctr",
        image,
        pulled,
        command=["mps-control-daemon"],
        env={
            "NODE_NAME": NODE_NAME,
            "NVIDIA_VISIBLE_DEVICES": "all",
            "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
            **found.env,
        },
        mounts=[
            _folder(spec),
            host_path("mps-shm", f"{root}/shm", "/dev/shm", type="DirectoryOrCreate"),
            *found.mounts,
        ],
        privileged=True,
    )
    # It sees the node's processes, so that nothing has to be shared for its configuration.
    return PodTemplate(
        account=ACCOUNT,
        init=[until_driver(spec), mounts, *found.init],
        containers=[main, *found.beside],
        more={"hostPID": True, **runtime_class(wanted, kind)},
        labels={"app": "nvidia-device-plugin-mps-control-daemon"},
    )
