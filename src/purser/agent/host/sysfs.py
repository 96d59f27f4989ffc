"""What the kernel says about a PCI device: its vendor and NUMA node. And how it lists CPUs.

Read from ``<root>/bus/pci/devices/<address>/``; the root is a parameter because the lab's nodes bring their own tree.
"""

import os
import re
from pathlib import Path

from purser.core.model import PcieSwitches

SYSFS_ROOT = Path("/sys")

NVIDIA_VENDOR = "0x10de"
"""In the attribute ``vendor`` of NVIDIA's devices."""

_MAX_BRIDGES = 8
"""Above a device: of deeper ones only those next to the root port."""

_BUS_ID = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE)


def pci_address(bus_id: str) -> str:
    """NVML's spelling of a PCI address (``00000000:07:00.0``) as sysfs spells it (``0000:07:00.0``).

    Raises:
        ValueError: it is not a PCI address.
    """
    match = _BUS_ID.fullmatch(bus_id.strip())
    if match is None:
        raise ValueError(
            f"{bus_id!r} is not a PCI address: must be <domain>:<bus>:<device>.<function>, all hexadecimal"
        )
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


def pcie_switches(link: Path) -> PcieSwitches:
    """What is above a PCI device, by its link in ``bus/pci/devices``. Empty: no switch is, or that cannot be seen.

    The link leads through the bridges: ``../../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:01.0/...``, a
    root port, then of each switch its upstream port and one of its downstream ports. The last one is the device's own.
    """
    try:
        parts = os.readlink(link).split("/")[:-1]  # noqa: PTH115  a rescan reads hundreds
    except OSError:
        return ()
    above: list[str] = []
    for part in parts:
        above = [*above, part] if _BUS_ID.fullmatch(part) else []  # some root complexes are below a device
    return tuple(above[:-1][:_MAX_BRIDGES])


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
