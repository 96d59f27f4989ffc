"""The MIG worker: applies the layout that the operator asks for, on one node. Layouts come from a ConfigMap."""

from purser.operator.model import Rendered, RenderInputs
from purser.operator.operands.device_plugin import driver_arguments
from purser.operator.operands.mig_layouts import DEFAULT_LAYOUTS
from purser.operator.operands.mounts import HOST
from purser.operator.operands.parts import (
    NODE_NAME,
    PodTemplate,
    config_map,
    container,
    daemon_set,
    host_network,
    host_path,
    owned,
)
from purser.operator.order import Operand
from purser.operator.policy.images import reference, split

ACCOUNT = "purser-mig-manager"
LAYOUTS = "purser-mig-layouts"
"""The ConfigMap with Purser's own layouts."""
_FOLDER = "/etc/purser/mig"


def render(wanted: RenderInputs) -> list[Rendered]:
    """The DaemonSet, and the ConfigMap where the policy names none."""
    spec = wanted.policy.spec
    if Operand.MIG_MANAGER not in spec.enabled:
        return []
    own = [] if spec.mig_manager.config.name else [_layouts(wanted)]
    return [*own, daemon_set(wanted, Operand.MIG_MANAGER, f"purser-{Operand.MIG_MANAGER}", _pod(wanted))]


def _layouts(wanted: RenderInputs) -> Rendered:
    metadata = {"name": LAYOUTS, "namespace": wanted.namespace}
    data = {"config.yaml": DEFAULT_LAYOUTS}
    return owned(
        wanted, Operand.MIG_MANAGER, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    )


def _pod(wanted: RenderInputs) -> PodTemplate:
    spec = wanted.policy.spec
    section = spec.mig_manager
    main = container(
        "mig-worker",
        reference(split(wanted.purser_image), section),
        section,
        args=[
            "mig-worker",
            "--node-name=$(NODE_NAME)",
            f"--host-root={HOST}",
            *driver_arguments(spec),
            f"--toolkit-dir={spec.toolkit.install_dir}/toolkit",
            f"--config={_FOLDER}/config.yaml",
        ],
        env={"NODE_NAME": NODE_NAME, "NVIDIA_VISIBLE_DEVICES": "void"},
        mounts=[
            host_path("host", spec.host_paths.root_fs, HOST, type="Directory", propagation="HostToContainer"),
            config_map("layouts", section.config.name or LAYOUTS, _FOLDER),
        ],
        privileged=True,
    )
    return PodTemplate(
        account=ACCOUNT,
        containers=[main],
        more={"hostPID": True, **host_network(section)},
        labels={"app": "nvidia-mig-manager"},
    )
