"""What kubelet gets its GPUs from: Purser's agent, or NVIDIA's device plugin."""

from purser.operator.manifests.agent import pod_of_agent
from purser.operator.manifests.driver_files import has_driver_sidecar
from purser.operator.manifests.mounts import (
    CDI,
    VALIDATIONS,
    PluginConfigMount,
    configured,
    driver_root,
    driver_validation,
    host_root,
    wait_for_driver,
    with_driver_variables,
)
from purser.operator.manifests.parts import (
    NODE_NAME,
    ContainerTemplate,
    DaemonSetPlacement,
    MountedVolume,
    PodTemplate,
    Raw,
    container,
    daemon_set,
    daemon_sets_per_runtime,
    host_network,
    host_path,
    runtime_class,
)
from purser.operator.manifests.toolkit import (
    CDI_STRATEGY,
    cdi_hook,
    plugin_sockets,
    uses_cdi,
)
from purser.operator.model import RenderedManifest, RenderInputs, RuntimeKind
from purser.operator.names import LABEL_TRUE, RUNTIME_LABEL
from purser.operator.order import Operand
from purser.operator.policy.fields import DEFAULTS, Image, reference
from purser.operator.policy.spec import ClusterPolicySpec

ACCOUNT = "purser-device-plugin"


def render(wanted: RenderInputs) -> list[RenderedManifest]:
    """A DaemonSet per kind of runtime: kubelet's sockets are not everywhere at the same place. One more with NVIDIA's
    plugin for MPS."""
    spec = wanted.policy.spec
    section = spec.device_plugin
    build = pod_of_agent if section.flavor == "purser" else _plugin_pod
    # MPS daemons end with the agent's pod, and with them all programs that are their clients: people say when.
    stays = section.flavor == "purser" and section.enforcement == "mps"
    plugins = daemon_sets_per_runtime(wanted, lambda kind: build(wanted, kind), Operand.DEVICE_PLUGIN, on_delete=stays)
    return [*plugins, *_mps(wanted)]


# --- NVIDIA's device plugin


def _plugin_pod(wanted: RenderInputs, kind: RuntimeKind) -> PodTemplate:
    spec = wanted.policy.spec
    found = configured(spec, "nvidia-device-plugin")
    return PodTemplate(
        account=ACCOUNT,
        init=[driver_validation(spec, anew=False), *found.init],
        containers=[_plugin(spec, kind, found), *found.beside],
        other_fields={**runtime_class(wanted, kind), **host_network(spec.device_plugin), **found.pod},
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
            plugin_sockets(spec, kind),
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
    hook = {"NVIDIA_CDI_HOOK_PATH": cdi_hook(spec)}
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
        **({"GDRCOPY_ENABLED": "true"} if has_driver_sidecar(spec, "gdrcopy") else {}),
        **({"GDS_ENABLED": "true", "MOFED_ENABLED": "true"} if has_driver_sidecar(spec, "gds") else {}),
        **(cdi if uses_cdi(spec, kind) else {}),
    }


# --- MPS


NAME = "mps-control-daemon"
MPS_CAPABLE_LABEL = "nvidia.com/mps.capable"
"""On a node, by feature discovery."""


def _mps(wanted: RenderInputs) -> list[RenderedManifest]:
    """A DaemonSet per kind of runtime: its pods have the RuntimeClass, or Docker's default."""
    plugin = wanted.policy.spec.device_plugin
    if plugin.flavor != "nvidia" or not plugin.config.name:
        return []
    return [
        daemon_set(wanted, NAME, f"purser-{NAME}-{kind.label}", _pod(wanted, kind), _mps_placement(kind))
        for kind in wanted.runtimes
    ]


def _mps_placement(kind: RuntimeKind) -> DaemonSetPlacement:
    nodes = {Operand.DEVICE_PLUGIN.deploy_label: LABEL_TRUE, MPS_CAPABLE_LABEL: "true"}
    return DaemonSetPlacement(label=(RUNTIME_LABEL, kind.label), nodes=nodes)


def _mps_folder(spec: ClusterPolicySpec, propagation: str = "") -> MountedVolume:
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
        mounts=[_mps_folder(spec, "Bidirectional")],
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
            _mps_folder(spec),
            host_path("mps-shm", f"{root}/shm", "/dev/shm", type="DirectoryOrCreate"),
            *found.mounts,
        ],
        privileged=True,
    )
    # It sees the node's processes, so that nothing has to be shared for its configuration.
    return PodTemplate(
        account=ACCOUNT,
        init=[wait_for_driver(spec), mounts, *found.init],
        containers=[main, *found.beside],
        other_fields={"hostPID": True, **runtime_class(wanted, kind)},
        labels={"app": "nvidia-device-plugin-mps-control-daemon"},
    )
