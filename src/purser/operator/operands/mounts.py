"""Folders of the host that several operands share, and where containers see them."""

from purser.operator.operands.parts import MountedVolume, host_path
from purser.operator.policy.spec import ClusterPolicySpec

HOST = "/host"
"""Where containers see the node's root."""
DRIVER_ROOT = "/driver-root"
"""Where containers see the root of a driver that is not the node's own. Both paths are NVIDIA's: the validator writes
one of them into `DRIVER_READY`."""
CDI_ROOT = "/var/run/cdi"
VALIDATIONS_DIR = "/run/nvidia/validations"
DRIVER_READY = f"{VALIDATIONS_DIR}/driver-ready"
"""Written on each node by NVIDIA's validator once a driver works there, with where it is: the node's own or a
container's, for in one cluster there may be both."""

RUN_NVIDIA = host_path("run-nvidia", "/run/nvidia", type="DirectoryOrCreate", propagation="HostToContainer")
VALIDATIONS = host_path(
    "run-nvidia-validations", VALIDATIONS_DIR, type="DirectoryOrCreate", propagation="Bidirectional"
)
"""What NVIDIA's validator found; the node status exporter reads it."""
CDI = host_path("cdi-root", CDI_ROOT, type="DirectoryOrCreate")


def host_root(spec: ClusterPolicySpec) -> MountedVolume:
    """The node's root, to look at."""
    return host_path("host-root", spec.host_paths.root_fs, HOST, propagation="HostToContainer", read_only=True)


def driver_root(spec: ClusterPolicySpec, at: str = DRIVER_ROOT) -> MountedVolume:
    """The root of a driver that is not the node's own."""
    folder = spec.host_paths.driver_install_dir
    return host_path("driver-install-dir", folder, at, type="DirectoryOrCreate", propagation="HostToContainer")


def under_host(path: str) -> str:
    """A path of the host as containers see it that mount its root: ``/host`` for ``/``."""
    return HOST + path.rstrip("/")
