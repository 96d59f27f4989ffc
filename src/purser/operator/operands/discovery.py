"""Purser's own discovery of GPUs: a small reader of sysfs.

It runs on nodes that node-feature-discovery does not label, and on those where that sees a GPU: only a card's PCI id
tells its model before the node has its first driver. Where labels of node-feature-discovery are spelled in another way,
which the kernel understands and no selector can, it comes once the kernel said that there are GPUs.
"""

from purser.operator.model import Rendered, RenderInputs
from purser.operator.names import GPU_PRESENT_LABEL, NFD_GPU_LABELS, NFD_KERNEL_LABEL
from purser.operator.operands.parts import (
    GPU_DISCOVERY,
    NODE_NAME,
    DaemonSetPlacement,
    PodTemplate,
    Raw,
    container,
    daemon_set,
    host_network,
    host_path,
)
from purser.operator.policy.fields import Resources
from purser.operator.policy.images import reference, split

ACCOUNT = "purser-gpu-discovery"
NAME = "purser-gpu-discovery"
_EXPRESSIONS: list[Raw] = [
    {"key": NFD_KERNEL_LABEL, "operator": "DoesNotExist"},
    *({"key": label, "operator": "In", "values": ["true"]} for label in (*NFD_GPU_LABELS, GPU_PRESENT_LABEL)),
]
_AFFINITY: Raw = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [each]} for each in _EXPRESSIONS]  # one of them is enough
        }
    }
}
_RESOURCES = Resources(requests={"cpu": "5m", "memory": "48Mi"}, limits={"memory": "128Mi"})


def render(wanted: RenderInputs) -> list[Rendered]:
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
        more={"securityContext": security},
    )
    return PodTemplate(account=ACCOUNT, containers=[main], more=host_network(section))
