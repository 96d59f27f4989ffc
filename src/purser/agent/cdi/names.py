"""Names of CDI: of kinds, devices and files."""

from pathlib import Path

CDI_FOLDER = Path("/run/cdi")
"""On the host. NVIDIA's plugin says /var/run, which is a link that only the host itself can follow."""

MORE_CLASSES = ("gdrcopy", "gds", "mofed")
"""Of devices that are no GPUs; their settings have these names."""

VENDOR = "k8s.device-plugin.nvidia.com"
"""NVIDIA's device plugin's: a node has one of the two plugins, and one file."""


CLASSES = ("gpu", "imex-channel", *MORE_CLASSES)


def cdi_kind(of: str) -> str:
    """Of a class of devices, such as ``gpu``."""
    return f"{VENDOR}/{of}"


def cdi_name(of: str, device: str) -> str:
    """The full name of a device."""
    return f"{cdi_kind(of)}={device}"


def file_name(of: str) -> str:
    """Of the specification of a class."""
    return f"{VENDOR}-{of}.json"
