"""The facts that labels are made of: what the driver reports of the GPUs, and sysfs of them and the machine."""

from collections.abc import Iterable
from pathlib import Path

from purser.agent.host.files import read_head
from purser.agent.host.sysfs import NVIDIA_VENDOR
from purser.agent.nvml.driver import DriverInfo, Gpu
from purser.core.device.gpus import NodeGpu
from purser.core.features import LabelFacts

_MAX_FACT_FILE_BYTES = 4096
"""Of a file of sysfs: a whole PCI configuration space."""


def collect_facts(
    gpus: Iterable[Gpu], info: DriverInfo, sysfs_root: Path, machine_file: Path | None, timestamp: int | None
) -> LabelFacts:
    """A node's facts. Blocks; what cannot be read is unknown. GPUs that were never identified do not count."""
    devices = sysfs_root / "bus/pci/devices"
    return LabelFacts(
        gpus=tuple(_gpu(gpu, devices) for gpu in gpus if gpu.name),
        driver_version=info.version or "",
        cuda_version=info.cuda_version or "",
        machine=_text(machine_file or sysfs_root / "class/dmi/id/product_name"),
        pci_configs=tuple(_bytes(each / "config") for each in _nvidia_devices(devices)),
        timestamp=timestamp,
    )


def _gpu(gpu: Gpu, devices: Path) -> NodeGpu:
    return gpu.as_node_gpu(_parse_hexadecimal(_text(devices / gpu.pci_bus_id / "class")) if gpu.pci_bus_id else None)


def _nvidia_devices(devices: Path) -> list[Path]:
    try:
        return sorted(each for each in devices.iterdir() if _text(each / "vendor").lower() == NVIDIA_VENDOR)
    except OSError:
        return []


def _parse_hexadecimal(text: str) -> int | None:
    try:
        return int(text, 16)
    except ValueError:
        return None


def _text(path: Path) -> str:
    return _bytes(path).decode(errors="replace").strip()


def _bytes(path: Path) -> bytes:
    try:
        return read_head(path, _MAX_FACT_FILE_BYTES)
    except OSError:
        return b""
