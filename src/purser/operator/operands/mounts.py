"""Folders of the host that several operands share, and where containers see them."""

from purser.operator.operands.parts import Mount, Raw, host_path
from purser.operator.order import Operand
from purser.operator.policy.spec import ClusterPolicySpec

HOST = "/host"
"""Where containers see the node's root."""
DRIVER_ROOT = "/driver-root"
"""Where NVIDIA's containers see the driver's root."""
CDI_ROOT = "/var/run/cdi"

RUN_NVIDIA = host_path("run-nvidia", "/run/nvidia", type="DirectoryOrCreate", propagation="HostToContainer")
VALIDATIONS = host_path(
    "run-nvidia-validations", "/run/nvidia/validations", type="DirectoryOrCreate", propagation="Bidirectional"
)
"""What NVIDIA's validator found; the node status exporter reads it."""
CDI = host_path("cdi-root", CDI_ROOT, type="DirectoryOrCreate")


def host_root(spec: ClusterPolicySpec) -> Mount:
    """The node's root, to look at."""
    return host_path("host-root", spec.host_paths.root_fs, HOST, propagation="HostToContainer", read_only=True)


def driver_dir(spec: ClusterPolicySpec) -> str:
    """The driver's root on the host: the driver container's, or the node's own."""
    return spec.host_paths.driver_install_dir if Operand.DRIVER in spec.enabled else spec.host_paths.root_fs


def driver_root(spec: ClusterPolicySpec) -> Mount:
    """The driver's root."""
    return host_path("driver-root", driver_dir(spec), DRIVER_ROOT, propagation="HostToContainer")


def driver_variables(spec: ClusterPolicySpec) -> dict[str, str | Raw]:
    """How NVIDIA's toolkit and plugin are told where the driver is: on the host, and in their own container."""
    root = driver_dir(spec)
    return {
        "NVIDIA_DRIVER_ROOT": root,
        "DRIVER_ROOT_CTR_PATH": DRIVER_ROOT,
        "NVIDIA_DEV_ROOT": root,
        "DEV_ROOT_CTR_PATH": DRIVER_ROOT,
    }


def under_host(path: str) -> str:
    """A path of the host as containers see it that mount its root: ``/host`` for ``/``."""
    return HOST + path.rstrip("/")
