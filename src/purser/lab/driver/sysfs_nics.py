"""The part of sysfs on SR-IOV network devices and on what is above them and GPUs, and a configuration of one pool.

Below the node's root folder, where the agent looks for pools: PFs and VFs with one switch between them and their root
port, as ``devices/pci<domain>:<bus>/<root port>/<upstream port>/<downstream port>/<device>``.
"""

import json
from pathlib import Path

from purser.agent.host.sysfs import pci_address
from purser.lab.driver.profiles import NodeProfile, ProfileNic

POOL_PREFIX, POOL_NAME = "mellanox.com", "vf"
POOL = f"{POOL_PREFIX}/{POOL_NAME}"
"""As kubelet calls the pool that all VFs are in."""

_MELLANOX, _PF_DEVICE, _VF_DEVICE = "15b3", "1021", "101e"
_ETHERNET = "1"
_ROUTE_HEADER = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"


def write_nics(host_root: Path, profile: NodeProfile) -> Path:
    """Write the files of a node that has such devices. Returns the configuration of its pools."""
    tree = _Tree(host_root, profile)
    for gpu in profile.gpus:
        tree.device(pci_address(gpu.pci))
    for nic in profile.nics:
        tree.nic(nic)
    _write(host_root / "proc/1/net/route", _ROUTE_HEADER)
    selectors = {"vendors": [_MELLANOX], "devices": [_VF_DEVICE]}
    pool = {"resourceName": POOL_NAME, "resourcePrefix": POOL_PREFIX, "selectors": selectors}
    config = host_root / "etc/pcidp/config.json"
    _write(config, json.dumps({"resourceList": [pool]}))
    return config


class _Tree:
    def __init__(self, host_root: Path, profile: NodeProfile) -> None:
        self._sys = host_root / "sys"
        self._above = {
            pci_address(device): (pci_address(switch.root_port), place)
            for switch in profile.switches
            for place, device in enumerate(switch.below)
        }

    def device(self, address: str, below_port_of: str = "") -> Path:
        """A device below its port, or below another device's; one that is below no switch is at a root port."""
        root_port, place = self._above.get(below_port_of or address, ("", 0))
        bus = (root_port or address).rpartition(":")[0]
        below_switch = (root_port, f"{bus}:1f.0", f"{bus}:{place + 2:02x}.1")
        parts = (f"pci{bus}", *(below_switch if root_port else (f"{bus}:01.1",)))
        real = self._sys.joinpath("devices", *parts, address)
        real.mkdir(parents=True, exist_ok=True)
        link = self._sys / "bus/pci/devices" / address
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(Path("../../../devices", *parts, address))
        return real

    def nic(self, nic: ProfileNic) -> None:
        """A PF and its VFs."""
        pf = pci_address(nic.pci)
        folder = self._function(pf, pf, _PF_DEVICE, nic)
        port = self._sys / "class/net" / nic.interface
        for name, text in {"type": _ETHERNET, "carrier": "1"}.items():
            _write(port / name, f"{text}\n")
        (folder / "net" / nic.interface).mkdir(parents=True, exist_ok=True)
        _write(folder / "sriov_totalvfs", "127\n")
        _write(folder / "sriov_numvfs", f"{nic.vfs}\n")
        for number in range(nic.vfs):
            vf = f"{pf.rpartition(':')[0]}:{(number + 2) // 8:02x}.{(number + 2) % 8}"
            function = self._function(vf, pf, _VF_DEVICE, nic)
            for link, target in ((function / "physfn", folder), (folder / f"virtfn{number}", function)):
                if not link.is_symlink():
                    link.symlink_to(Path("..") / target.name)

    def _function(self, address: str, pf: str, device: str, nic: ProfileNic) -> Path:
        folder = self.device(address, below_port_of=pf)
        numa_node = -1 if nic.numa_node is None else nic.numa_node
        attributes = {"class": "0x020000", "vendor": f"0x{_MELLANOX}", "device": f"0x{device}", "numa_node": numa_node}
        for name, value in attributes.items():
            _write(folder / name, f"{value}\n")
        driver = self._sys / "bus/pci/drivers/mlx5_core"
        driver.mkdir(parents=True, exist_ok=True)
        if not (folder / "driver").is_symlink():
            (folder / "driver").symlink_to(driver)
        return folder


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="ascii")
