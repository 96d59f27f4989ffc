"""GPU feature discovery: what a node's GPUs are, for node-feature-discovery to make labels of: in an object of its, or
in a file where it does not look at those."""

from purser.operator.model import Rendered, RenderInputs, RuntimeKind
from purser.operator.operands.parts import (
    NAMESPACE,
    NODE_NAME,
    PodTemplate,
    container,
    field_of_pod,
    host_network,
    host_path,
    per_runtime,
    runtime_class,
)
from purser.operator.operands.plugin_config import configured
from purser.operator.operands.waiting import until_driver
from purser.operator.order import Operand
from purser.operator.policy.images import DEFAULTS, reference

ACCOUNT = "purser-gpu-feature-discovery"
FEATURES = "/etc/kubernetes/node-feature-discovery/features.d"


def render(wanted: RenderInputs) -> list[Rendered]:
    """A DaemonSet per kind of runtime."""
    if Operand.GFD not in wanted.policy.spec.enabled:
        return []
    return per_runtime(wanted, lambda kind: _pod(wanted, kind), Operand.GFD)


def _pod(wanted: RenderInputs, kind: RuntimeKind) -> PodTemplate:
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
            "MIG_STRATEGY": spec.mig.strategy,
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
        account=ACCOUNT,
        init=[until_driver(spec), *found.init],
        containers=[main, *found.beside],
        more={**runtime_class(wanted, kind), **host_network(spec.gfd), **found.pod},
        labels={"app": "gpu-feature-discovery"},
    )
