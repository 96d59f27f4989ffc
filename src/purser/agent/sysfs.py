"""What the kernel says about a PCI device: its vendor and NUMA node. And how it lists CPUs.

Read from ``<root>/bus/pci/devices/<address>/``; the root is a parameter because the lab's nodes bring their own tree.
"""

import re
from pathlib import Path

SYSFS_ROOT = Path("/sys")

NVIDIA_VENDOR = "0x10de"
"""In the attribute ``vendor`` of NVIDIA's devices."""

_BUS_ID = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE)


def pci_address(bus_id: str) -> str:
    """NVML's spelling of a PCI address (``00000000:07:00.0``) as sysfs spells it (``0000:07:00.0``).

    Raises:
        ValueError: it is no PCI address.
    """
    match = _BUS_ID.fullmatch(bus_id.strip())
    if match is None:
        raise ValueError(f"{bus_id!r} is no PCI address: expected <domain>:<bus>:<device>.<function>, all hexadecimal")
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{device}.{function}".lower()


def numa_node(bus_id: str, root: Path = SYSFS_ROOT) -> int | None:
    """The NUMA node of a PCI device; None where the kernel knows none (it then says -1) or no such device."""
    text = _attribute(bus_id, "numa_node", root)
    try:
        node = int(text)
    except ValueError:
        return None
    return node if node >= 0 else None


def parse_cpu_list(text: str) -> frozenset[int]:
    """The kernel's list format: ``0-3,8,10-11``.

    Raises:
        ValueError: the text is not such a list.
    """
    cpus: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, dash, last = part.partition("-")
        cpus.update(range(int(first), int(last if dash else first) + 1))
    return frozenset(cpus)


def _attribute(bus_id: str, name: str, root: Path) -> str:
    """The attribute's text; empty where it cannot be read, which is how the kernel's absence looks to us."""
    try:
        return (root / "bus/pci/devices" / pci_address(bus_id) / name).read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""
