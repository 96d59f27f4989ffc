"""Data-centre GPUs by their PCI device id: what NVIDIA calls them, and whether they can MIG.

Node labels with a GPU's model come from NVIDIA's feature discovery, which needs a driver. What is to be decided before
a node has its first driver is decided by this table. Sources: the lists of supported GPUs in the README of NVIDIA's
open kernel modules (release 595) and, for GPUs older than those, of its Linux driver; NVIDIA's MIG user guide.
"""

import re
from functools import lru_cache

_PRODUCTS = {
    "15f7": "Tesla P100-PCIE-12GB",
    "15f8": "Tesla P100-PCIE-16GB",
    "15f9": "Tesla P100-SXM2-16GB",
    "1b38": "Tesla P40",
    "1bb3": "Tesla P4",
    "1db1": "Tesla V100-SXM2-16GB",
    "1db4": "Tesla V100-PCIE-16GB",
    "1db5": "Tesla V100-SXM2-32GB",
    "1db6": "Tesla V100-PCIE-32GB",
    "1db8": "Tesla V100-SXM3-32GB",
    "1df6": "Tesla V100S-PCIE-32GB",
    "1eb8": "Tesla T4",
    "20b0": "NVIDIA A100-SXM4-40GB",
    "20b2": "NVIDIA A100-SXM4-80GB",
    "20b3": "NVIDIA A100-SXM-64GB",
    "20b5": "NVIDIA A100 80GB PCIe",
    "20b6": "NVIDIA PG506-232",
    "20b7": "NVIDIA A30",
    "20bd": "NVIDIA A800-SXM4-40GB",
    "20f1": "NVIDIA A100-PCIE-40GB",
    "20f3": "NVIDIA A800-SXM4-80GB",
    "20f5": "NVIDIA A800 80GB PCIe",
    "20f6": "NVIDIA A800 40GB Active",
    "2235": "NVIDIA A40",
    "2236": "NVIDIA A10",
    "2237": "NVIDIA A10G",
    "2238": "NVIDIA A10M",
    "230e": "NVIDIA H20 NVL16",
    "2321": "NVIDIA H100 NVL",
    "2322": "NVIDIA H800 PCIe",
    "2324": "NVIDIA H800",
    "2329": "NVIDIA H20",
    "232c": "NVIDIA H20-3e",
    "2330": "NVIDIA H100 80GB HBM3",
    "2331": "NVIDIA H100 PCIe",
    "2335": "NVIDIA H200",
    "2339": "NVIDIA H100",
    "233a": "NVIDIA H800 NVL",
    "233b": "NVIDIA H200 NVL",
    "2348": "NVIDIA GH200 144G HBM3e",
    "26b5": "NVIDIA L40",
    "26b9": "NVIDIA L40S",
    "26ba": "NVIDIA L20",
    "27b6": "NVIDIA L2",
    "27b8": "NVIDIA L4",
    "2901": "NVIDIA B200",
    "2941": "NVIDIA GB200",
    "2bb1": "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
    "2bb4": "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
    "2bb5": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "3182": "NVIDIA B300 SXM6 AC",
    "31c2": "NVIDIA GB300",
}
"""By device id: the driver's name of the GPU."""

_BY_SUBSYSTEM = {
    ("20b0", "1450"): "NVIDIA A100-PG509-200",
    ("20b2", "1625"): "NVIDIA PG509-210",
    ("20f5", "179a"): "NVIDIA A800 80GB PCIe LC",
    ("2342", "16eb"): "NVIDIA GH200 120GB",
    ("2342", "1805"): "NVIDIA GH200 120GB",
    ("2342", "1809"): "NVIDIA GH200 480GB",
    ("25b6", "14a9"): "NVIDIA A16",
    ("25b6", "157e"): "NVIDIA A2",
}
"""By device and subsystem device id: GPUs that differ from others of their device id."""

MIG_FAMILIES: dict[str, tuple[str, ...]] = {
    "A30": ("20b7",),
    "A100, A800: 40 GB": ("20b0", "20b1", "20bd", "20f1", "20f6"),
    "A100: 64 GB": ("20b3",),
    "A100, A800, H100, H800: 80 GB": ("20b2", "20b5", "20f3", "20f5", "2322", "2324", "2330", "2331"),
    "H100, H800: 94 GB": ("2321", "2339", "233a"),
    "A100, H100, GH200, H20: 96 GB": ("20b6", "2329", "233d", "2342"),
    "H20 NVL16": ("230e",),
    "H200, H20: 141 GB": ("232c", "2335", "233b"),
    "GH200: 144 GB": ("2348",),
    "B200": ("2901",),
    "GB200": ("2941",),
    "B300": ("3182",),
    "GB300": ("31c2",),
    "RTX PRO 6000 Blackwell": ("2bb1", "2bb4", "2bb5"),
}
"""Device ids of GPUs that can MIG, by those that are cut alike."""

_MIG_DEVICES = frozenset(device for devices in MIG_FAMILIES.values() for device in devices)
_MIG_MODELS = re.compile(r"(?:^|-)(?:A30|A[18]00|PG50[69]|G?H100|H800|H20|G?H200|G?B[23]00|RTX-PRO-6000)(?:-|$)", re.I)
"""In the names of their models: for GPUs that are known by name alone."""


@lru_cache(maxsize=256)
def product_of_device(device: str, subsystem: str = "") -> str:
    """A GPU's model as NVIDIA's feature discovery spells it in the label nvidia.com/gpu.product.

    ``NVIDIA-H100-80GB-HBM3``; empty: not known here. Ids are hexadecimal, in upper or lower case.
    """
    device, subsystem = device.lower(), subsystem.lower()
    return as_label(_BY_SUBSYSTEM.get((device, subsystem)) or _PRODUCTS.get(device, ""))


def device_of_product(product: str) -> str:
    """The lowest device id of the GPUs that are called so in the label; empty: not known here."""
    return min((device for device, name in _PRODUCTS.items() if as_label(name) == product), default="")


def can_mig(device: str) -> bool | None:
    """Whether a GPU can be cut by MIG; None: not known here."""
    device = device.lower()
    if device in _MIG_DEVICES:
        return True
    known = device in _PRODUCTS or any(device == each for each, _ in _BY_SUBSYSTEM)
    return False if known else None


def supports_mig(product: str) -> bool:
    """The same by a model's name as feature discovery spells it; one that is not known cannot."""
    return bool(_MIG_MODELS.search(product))


def as_label(product: str) -> str:
    """A driver's name of a GPU as the value of a label: by ``sanitise`` of NVIDIA's feature discovery."""
    return "-".join(re.sub(r"[^A-Za-z0-9\-_. ]", "", product).split())
