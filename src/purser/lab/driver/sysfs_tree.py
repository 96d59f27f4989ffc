"""The part of sysfs that a node's GPUs and NVSwitches have: ``bus/pci/devices/<address>/``."""

import shutil
from pathlib import Path

from purser.agent.host.sysfs import pci_address
from purser.lab.driver.profiles import NodeProfile

_GPU_CLASS = "0x030200"
"""3D controller: what data centre GPUs are on the bus."""
_SWITCH_CLASS = "0x068000"
_NVIDIA = "0x10de"
_SWITCH_DEVICE = "0x22a3"
_SWITCH_SUBSYSTEM = "0x0000"
_EMPTY_CONFIG_SPACE = bytes(256)
"""A PCI configuration space that lists none, and so of no vGPU."""


def write_sysfs(root: Path, profile: NodeProfile) -> None:
    """Write the tree of a whole node."""
    for index in range(len(profile.gpus)):
        write_gpu(root, profile, index)
    for address in profile.nvswitch.pci if profile.nvswitch else ():
        _write(root, address, _SWITCH_CLASS, (_SWITCH_DEVICE, _SWITCH_SUBSYSTEM), None, "")


def write_gpu(root: Path, profile: NodeProfile, index: int) -> None:
    """Write the kernel's files of one GPU."""
    gpu = profile.gpus[index]
    model = profile.model_of(gpu)
    ids = f"0x{model.pci_device_id >> 16:04x}", f"0x{model.pci_subsystem_id >> 16:04x}"
    cpus = {each.node: each.cpus for each in profile.numa}
    nearest = cpus.get(gpu.numa_node, "") if gpu.numa_node is not None else ""
    _write(root, gpu.pci, _GPU_CLASS, ids, gpu.numa_node, nearest)


def remove_device(root: Path, address: str) -> None:
    """Take a device off the bus."""
    shutil.rmtree(root / "bus/pci/devices" / pci_address(address), ignore_errors=True)


def _write(root: Path, address: str, device_class: str, ids: tuple[str, str], numa_node: int | None, cpus: str) -> None:
    """``ids``: of the device, and of its subsystem."""
    device, subsystem = ids
    folder = root / "bus/pci/devices" / pci_address(address)
    folder.mkdir(parents=True, exist_ok=True)
    attributes = {
        "vendor": _NVIDIA,
        "device": device,
        "subsystem_vendor": _NVIDIA,
        "subsystem_device": subsystem,
        "class": device_class,
        "numa_node": str(-1 if numa_node is None else numa_node),
        "local_cpulist": cpus,
    }
    for name, value in attributes.items():
        (folder / name).write_text(f"{value}\n", encoding="ascii")
    (folder / "config").write_bytes(_EMPTY_CONFIG_SPACE)
