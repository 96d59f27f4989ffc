"""Names of CDI: of kinds, devices and files."""

VENDOR = "k8s.device-plugin.nvidia.com"
"""NVIDIA's device plugin's: a node has one of the two plugins, and one file."""


def cdi_kind(of: str) -> str:
    """Of a class of devices, such as ``gpu``."""
    return f"{VENDOR}/{of}"


def cdi_name(of: str, device: str) -> str:
    """The full name of a device."""
    return f"{cdi_kind(of)}={device}"


def file_name(of: str) -> str:
    """Of the specification of a class."""
    return f"{VENDOR}-{of}.json"
