"""Purser's own discovery of GPUs: a small reader of sysfs, on nodes that node-feature-discovery does not label."""

from purser.operator.model import Rendered, Wanted
from purser.operator.names import NFD_KERNEL_LABEL
from purser.operator.operands.parts import (
    GPU_DISCOVERY,
    NODE_NAME,
    Placement,
    Pod,
    Raw,
    container,
    daemon_set,
    host_path,
)
from purser.operator.policy.fields import Image, Resources
from purser.operator.policy.spec import ClusterPolicySpec

ACCOUNT = "purser-gpu-discovery"
NAME = "purser-gpu-discovery"
_WITHOUT_NFD: Raw = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": NFD_KERNEL_LABEL, "operator": "DoesNotExist"}]}]
        }
    }
}
_RESOURCES = Resources(requests={"cpu": "5m", "memory": "48Mi"}, limits={"memory": "128Mi"})


def render(wanted: Wanted) -> list[Rendered]:
    """The DaemonSet."""
    if not wanted.policy.spec.discovery.enabled:
        return []
    return [daemon_set(wanted, GPU_DISCOVERY, NAME, _pod(wanted), Placement(affinity=_WITHOUT_NFD))]


def _pod(wanted: Wanted) -> Pod:
    """It only reads: root for files that others may not see, and nothing else that root can do."""
    root = wanted.policy.spec.host_paths.root_fs
    security = {
        "runAsUser": 0,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    main = container(
        "discover",
        wanted.purser_image,
        _pulled_as(wanted.policy.spec),
        args=["discover", "--node-name=$(NODE_NAME)", "--host-root=/host"],
        env={"NODE_NAME": NODE_NAME, "NVIDIA_VISIBLE_DEVICES": "void"},
        mounts=[host_path("host", root, "/host", type="Directory", propagation="HostToContainer", read_only=True)],
        resources=_RESOURCES,
        more={"securityContext": security},
    )
    return Pod(account=ACCOUNT, containers=[main])


def _pulled_as(spec: ClusterPolicySpec) -> Image:
    """As the others that run Purser's image: discovery's section has no words for it."""
    others: list[Image] = [spec.mig_manager, *([spec.device_plugin] if spec.device_plugin.flavor == "purser" else [])]
    secrets = {secret for each in others for secret in each.image_pull_secrets}
    return Image(image_pull_policy=others[-1].image_pull_policy, image_pull_secrets=tuple(sorted(secrets)))
