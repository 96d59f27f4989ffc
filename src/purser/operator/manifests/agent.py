"""Purser's agent, with the same arguments and mounts as in the Helm chart, which installs it without an operator."""

from collections.abc import Mapping

from purser.operator.manifests.driver_files import has_driver_sidecar
from purser.operator.manifests.mounts import (
    DRIVER_READY,
    HOST,
    host_mount_path,
)
from purser.operator.manifests.parts import (
    NODE_NAME,
    ContainerTemplate,
    PodTemplate,
    config_map,
    container,
    field_of_pod,
    host_network,
    host_path,
)
from purser.operator.manifests.toolkit import (
    cdi_hook,
    device_list,
    kubelet_root,
    plugin_sockets,
    pod_resources,
    uses_cdi,
)
from purser.operator.model import RenderInputs, RuntimeKind
from purser.operator.order import Operand
from purser.operator.policy.fields import Image, Resources, reference, split
from purser.operator.policy.sections import DevicePluginSpec, PluginConfig, Sriov
from purser.operator.policy.spec import ClusterPolicySpec
from purser.options import AGENT_METRICS_PORT

ACCOUNT = "purser-agent"
_CONFIGS, _SRIOV = "/configs", "/sriov"
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


def pod_of_agent(wanted: RenderInputs, kind: RuntimeKind) -> PodTemplate:
    """On nodes of this kind."""
    return PodTemplate(
        account=ACCOUNT,
        init=_hami_core(wanted),
        containers=[_agent(wanted, kind)],
        other_fields={"hostPID": True, **host_network(wanted.policy.spec.device_plugin)},
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
            plugin_sockets(spec, kind),
            pod_resources(spec, kind),
            host_path("state", "/var/lib/purser", type="DirectoryOrCreate"),
            host_path("host", spec.host_paths.root_fs, HOST, type="Directory", propagation="HostToContainer"),
            *([config_map("configs", section.config.name, _CONFIGS)] if section.config.name else []),
            *([config_map("sriov", section.sriov.config, _SRIOV, optional=True)] if section.sriov.config else []),
        ],
        privileged=True,
        resources=_agent_resources(section),
        other_fields={
            "ports": [{"name": "metrics", "containerPort": AGENT_METRICS_PORT}],
            "livenessProbe": health,
            "readinessProbe": {"httpGet": {"path": "/readyz", "port": "metrics"}, "periodSeconds": 5},
        },
    )


def _agent_arguments(wanted: RenderInputs, kind: RuntimeKind) -> list[str]:
    spec = wanted.policy.spec
    kubelet = kubelet_root(kind, spec.host_paths.kubelet_root_dir)
    named = device_list(spec, kind) if Operand.TOOLKIT in spec.enabled else ("envvar",)
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
        f"--kubelet-dir={host_mount_path(kubelet)}",
        f"--device-list-strategy={','.join(sorted(named))}",
        *([f"--nvidia-cdi-hook-path={cdi_hook(spec)}"] if uses_cdi(spec, kind) else []),
        f"--mig-strategy={spec.mig.strategy}",
        *_config_arguments(spec.device_plugin.config),
        *(f"--managed-resource={name}" for name in spec.device_plugin.managed_resources),
        *_sriov_arguments(spec.device_plugin.sriov),
        *(["--gdrcopy-enabled"] if has_driver_sidecar(spec, "gdrcopy") else []),
        *(["--gds-enabled", "--mofed-enabled"] if has_driver_sidecar(spec, "gds") else []),
        f"--hami-core-dir={HAMI_CORE}",
        f"--metrics-port={AGENT_METRICS_PORT}",
        *_feature_and_remedy_arguments(spec.device_plugin),
    ]


def _enforcement_arguments(section: DevicePluginSpec) -> list[str]:
    wanted = [] if section.enforcement == "auto" else [f"--enforcement={section.enforcement}"]
    return [*wanted, *(["--mps-exclusive"] if section.mps.exclusive else [])]


def _feature_and_remedy_arguments(section: DevicePluginSpec) -> list[str]:
    labels = [] if section.feature_labels == "off" else [f"--feature-labels={section.feature_labels}"]
    evictions = {
        "--evict-over-users": section.evict_over_users,
        "--evict-from-unhealthy-gpus": section.evict_from_unhealthy_gpus,
    }
    switches = {
        "--taint-nodes": section.taint_nodes,
        "--cordon-nodes": section.cordon_nodes,
        "--reset-gpus": section.reset_gpus,
    }
    return [*_enabled_flags(evictions), *labels, *_enabled_flags(switches)]


def _enabled_flags(switches: Mapping[str, bool]) -> list[str]:
    return [name for name, is_on in switches.items() if is_on]


def _config_arguments(config: PluginConfig) -> list[str]:
    if not config.name:
        return []
    return [f"--config-dir={_CONFIGS}", *([f"--default-config={config.default}"] if config.default else [])]


def _sriov_arguments(sriov: Sriov) -> list[str]:
    if not sriov.config:
        return []
    prefix = f"--sriov-resource-prefix={sriov.resource_prefix}"
    return [f"--sriov-config={_SRIOV}", prefix, *(["--sriov-use-cdi"] if sriov.use_cdi else [])]


def driver_arguments(spec: ClusterPolicySpec) -> list[str]:
    """How Purser's own operands find the driver: in the file that NVIDIA's validator wrote on the node; until then by
    search. They use the node's root: a mount of the driver's folder would become stale with a new driver."""
    return [
        f"--driver-root-file={host_mount_path(DRIVER_READY)}",
        f"--driver-root={HOST}",
        f"--driver-root={host_mount_path(spec.host_paths.driver_install_dir)}",
    ]
