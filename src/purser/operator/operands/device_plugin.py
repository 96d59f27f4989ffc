"""What kubelet gets its GPUs from: Purser's agent, or NVIDIA's device plugin."""

from purser.operator.model import Rendered, RenderInputs, RuntimeKind
from purser.operator.operands.driver_profiles import is_beside_some_driver
from purser.operator.operands.mounts import (
    CDI,
    DRIVER_READY,
    HOST,
    VALIDATIONS,
    driver_root,
    host_root,
    under_host,
)
from purser.operator.operands.parts import (
    NODE_NAME,
    ContainerTemplate,
    MountedVolume,
    PodTemplate,
    Raw,
    container,
    host_network,
    host_path,
    per_runtime,
    runtime_class,
)
from purser.operator.operands.paths import KUBELET, kubelet_root
from purser.operator.operands.plugin_config import PluginConfigMount, configured
from purser.operator.operands.runtimes import CDI_STRATEGY, device_list, uses_cdi
from purser.operator.operands.waiting import driver_validation, told_of_driver
from purser.operator.order import Operand
from purser.operator.policy.fields import Resources
from purser.operator.policy.images import DEFAULTS, reference, split
from purser.operator.policy.spec import ClusterPolicySpec

AGENT_ACCOUNT = "purser-agent"
ACCOUNT = "purser-device-plugin"
METRICS_PORT = 9440
"""Of the agent."""
AGENT_RESOURCES = Resources(requests={"cpu": "20m", "memory": "80Mi"}, limits={"memory": "256Mi"})


def render(wanted: RenderInputs) -> list[Rendered]:
    """A DaemonSet per kind of runtime: kubelet's sockets are not everywhere at the same place."""
    spec = wanted.policy.spec
    if Operand.DEVICE_PLUGIN not in spec.enabled:
        return []
    build = _agent_pod if spec.device_plugin.flavor == "purser" else _plugin_pod
    return per_runtime(wanted, lambda kind: build(wanted, kind), Operand.DEVICE_PLUGIN)


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
        containers=[_agent(wanted, kind)],
        more=host_network(wanted.policy.spec.device_plugin),
        annotations={"prometheus.io/scrape": "true", "prometheus.io/port": str(METRICS_PORT)},
        labels={"app": "nvidia-device-plugin-daemonset", "app.kubernetes.io/component": "agent"},
    )


def _agent(wanted: RenderInputs, kind: RuntimeKind) -> ContainerTemplate:
    spec = wanted.policy.spec
    section = spec.device_plugin
    health = {"httpGet": {"path": "/healthz", "port": "metrics"}, "periodSeconds": 10, "failureThreshold": 6}
    return container(
        "agent",
        reference(split(wanted.purser_image), section),
        section,
        args=_agent_arguments(wanted, kind),
        env={"NODE_NAME": NODE_NAME, "NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "utility"},
        mounts=[
            _sockets(spec, kind),
            pod_resources(spec, kind),
            host_path("state", "/var/lib/purser", type="DirectoryOrCreate"),
            host_path("host", spec.host_paths.root_fs, HOST, type="Directory", propagation="HostToContainer"),
        ],
        privileged=True,
        resources=section.resources if section.resources != Resources() else AGENT_RESOURCES,
        more={
            "ports": [{"name": "metrics", "containerPort": METRICS_PORT}],
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
        "--node-name=$(NODE_NAME)",
        f"--namespace={wanted.namespace}",
        f"--mode={spec.device_plugin.mode}",
        f"--slots={spec.device_plugin.slots}",
        "--host-root=/host",
        *driver_arguments(spec),
        f"--kubelet-dir={under_host(kubelet)}",
        f"--device-list-strategy={'volume-mounts' if by_mounts else 'envvar'}",
        "--hami-core-dir=/usr/local/vgpu",
        f"--metrics-port={METRICS_PORT}",
    ]


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
        command=told_of_driver("nvidia-device-plugin"),
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
