"""Names of CDI: of kinds, devices and files."""

from pathlib import Path

CDI_FOLDER = Path("/run/cdi")
"""On the host. NVIDIA's plugin says /var/run, which is a link that only the host itself can follow."""

NON_GPU_CLASSES = ("gdrcopy", "gds", "mofed")
"""Of devices that are not GPUs; their settings have these names."""

VENDOR = "k8s.device-plugin.nvidia.com"
"""NVIDIA's device plugin's: a node has one of the two plugins, and one file."""


CLASSES = ("gpu", "imex-channel", *NON_GPU_CLASSES)


def cdi_kind(of: str) -> str:
    """CDI's kind of a class of devices, such as ``k8s.device-plugin.nvidia.com/gpu`` of ``gpu``."""
    return f"{VENDOR}/{of}"


def cdi_name(of: str, device: str) -> str:
    """CDI's full name of a device, as ``k8s.device-plugin.nvidia.com/gpu=GPU-...``."""
    return f"{cdi_kind(of)}={device}"


def file_name(of: str) -> str:
    """The name of the file with the specification of a class, in `CDI_FOLDER`."""
    return f"{VENDOR}-{of}.json"
