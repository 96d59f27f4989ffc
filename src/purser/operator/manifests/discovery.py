"""Discovery: Purser's own, which says what a node is where node-feature-discovery is absent, and NVIDIA's GPU feature
discovery, which labels nodes with what their GPUs are."""

from purser.core.names import GPU_PRESENT_LABEL
from purser.operator.manifests.mounts import configured, wait_for_driver
from purser.operator.manifests.parts import (
    GPU_DISCOVERY,
    NAMESPACE,
    NODE_NAME,
    DaemonSetPlacement,
    PodTemplate,
    Raw,
    container,
    daemon_set,
    daemon_sets_per_runtime,
    field_of_pod,
    host_network,
    host_path,
    runtime_class,
)
from purser.operator.model import RenderedManifest, RenderInputs, RuntimeKind
from purser.operator.names import NFD_GPU_LABELS, NFD_KERNEL_LABEL
from purser.operator.order import Operand
from purser.operator.policy.fields import DEFAULTS, Resources, reference, split

ACCOUNT = "purser-gpu-discovery"
NAME = "purser-gpu-discovery"
_GPU_NODE_EXPRESSIONS: list[Raw] = [
    {"key": NFD_KERNEL_LABEL, "operator": "DoesNotExist"},
    *({"key": label, "operator": "In", "values": ["true"]} for label in (*NFD_GPU_LABELS, GPU_PRESENT_LABEL)),
]
_AFFINITY: Raw = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            # One of them is enough.
            "nodeSelectorTerms": [{"matchExpressions": [each]} for each in _GPU_NODE_EXPRESSIONS]
        }
    }
}
_RESOURCES = Resources(requests={"cpu": "5m", "memory": "48Mi"}, limits={"memory": "128Mi"})


def render(wanted: RenderInputs) -> list[RenderedManifest]:
    """The DaemonSet."""
    if not wanted.policy.spec.discovery.enabled:
        return []
    return [daemon_set(wanted, GPU_DISCOVERY, NAME, _pod(wanted), DaemonSetPlacement(affinity=_AFFINITY))]


def _pod(wanted: RenderInputs) -> PodTemplate:
    """It only reads: root for files that others may not see, and nothing else that root can do."""
    section = wanted.policy.spec.discovery
    root = wanted.policy.spec.host_paths.root_fs
    security = {
        "runAsUser": 0,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    main = container(
        "discover",
        reference(split(wanted.purser_image), section),
        section,
        args=["discover", "--node-name=$(NODE_NAME)", "--host-root=/host"],
        env={"NODE_NAME": NODE_NAME, "NVIDIA_VISIBLE_DEVICES": "void"},
        mounts=[host_path("host", root, "/host", type="Directory", propagation="HostToContainer", read_only=True)],
        resources=section.resources if section.resources != Resources() else _RESOURCES,
        other_fields={"securityContext": security},
    )
    return PodTemplate(account=ACCOUNT, containers=[main], other_fields=host_network(section))


# --- NVIDIA's feature discovery


GFD_ACCOUNT = "purser-gpu-feature-discovery"
FEATURES = "/etc/kubernetes/node-feature-discovery/features.d"


def render_gfd(wanted: RenderInputs) -> list[RenderedManifest]:
    """A DaemonSet per kind of runtime."""
    return daemon_sets_per_runtime(wanted, lambda kind: _gfd_pod(wanted, kind), Operand.GFD)


def _gfd_pod(wanted: RenderInputs, kind: RuntimeKind) -> PodTemplate:
    spec = wanted.policy.spec
    found = configured(spec, "gpu-feature-discovery")
    main = container(
        "gpu-feature-discovery",
        reference(DEFAULTS["gpu-feature-discovery"], spec.gfd),
        spec.gfd,
        command=["gpu-feature-discovery"],
        env={
            "GFD_SLEEP_INTERVAL": "60s",
            "GFD_FAIL_ON_INIT_ERROR": "true",
            "USE_NODE_FEATURE_API": "true" if wanted.node_features else "false",
            "NAMESPACE": NAMESPACE,
            "POD_NAME": field_of_pod("metadata.name"),
            "NODE_NAME": NODE_NAME,
            "MIG_STRATEGY": spec.mig.nvidia_strategy,
            "NVIDIA_MIG_MONITOR_DEVICES": "all",
            "NVIDIA_VISIBLE_DEVICES": "all",
            **found.env,
        },
        mounts=[
            host_path("output-dir", FEATURES, type="DirectoryOrCreate"),
            host_path("host-sys", "/sys", type="Directory", read_only=True),
            *found.mounts,
        ],
        privileged=True,
    )
    return PodTemplate(
        account=GFD_ACCOUNT,
        init=[wait_for_driver(spec), *found.init],
        containers=[main, *found.beside],
        other_fields={**runtime_class(wanted, kind), **host_network(spec.gfd), **found.pod},
        labels={"app": "gpu-feature-discovery"},
    )
