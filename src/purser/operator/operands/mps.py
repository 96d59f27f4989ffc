"""The MPS control daemon of NVIDIA's device plugin, on nodes whose configuration shares GPUs by MPS.

It belongs to the device plugin: it runs where that runs and feature discovery says that the node can, and only with a
ConfigMap of configurations, for nothing else asks for MPS. Purser's agent has limits of its own.
"""

from purser.operator.model import Rendered, RenderInputs, RuntimeKind
from purser.operator.names import DEPLOY, RUNTIME_LABEL
from purser.operator.operands.device_plugin import ACCOUNT
from purser.operator.operands.parts import (
    NODE_NAME,
    DaemonSetPlacement,
    MountedVolume,
    PodTemplate,
    container,
    daemon_set,
    host_path,
    runtime_class,
)
from purser.operator.operands.plugin_config import configured
from purser.operator.operands.waiting import until_driver
from purser.operator.order import Operand
from purser.operator.policy.fields import Image
from purser.operator.policy.images import DEFAULTS, reference
from purser.operator.policy.spec import ClusterPolicySpec

NAME = "mps-control-daemon"
CAPABLE_LABEL = "nvidia.com/mps.capable"
"""On a node, by feature discovery."""


def render(wanted: RenderInputs) -> list[Rendered]:
    """A DaemonSet per kind of runtime: its pods have the RuntimeClass, or Docker's default."""
    spec = wanted.policy.spec
    plugin = spec.device_plugin
    if Operand.DEVICE_PLUGIN not in spec.enabled or plugin.flavor != "nvidia" or not plugin.config.name:
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
