"""What sysfs says of PCI functions and subfunctions that pools can hold. Blocks, and changes nothing.

The host's own sysfs: a pod's shows the network interfaces of the pod. PCI functions are seen by all, so that a VF stays
here while a pod has its interface.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from purser.agent.host.sysfs import pcie_switches
from purser.core.sriov.answers import VHOST_FILES
from purser.core.sriov.configuration import SriovDeviceType
from purser.core.sriov.devices import NO_INDEX, NodeDevices, RdmaDevice, SriovDevice, VdpaDevice
from purser.core.sriov.pools import UIO_DRIVERS, VFIO_DRIVER

_CLASSES = {"0x02": SriovDeviceType.NET_DEVICE, "0x12": SriovDeviceType.ACCELERATOR}
"""By the first byte of a PCI class."""
_LINK_TYPES = {"1": "ether", "32": "infiniband"}
"""By ARPHRD_*: as netlink calls them."""
_VDPA_TYPES = {"vhost_vdpa": "vhost", "virtio_vdpa": "virtio"}
"""By driver."""
_AUXILIARY = re.compile(r"[\w-]+\.([\w-]+)\.[0-9]+", re.ASCII)
"""Name of an auxiliary device, with its type."""
_REPRESENTOR = re.compile(r"(c\d+)?pf\d+((vf|sf)\d+)?|\d+", re.ASCII)
"""Port name of an interface that stands for a function, not for the PF's own port; older kernels write the number of
the VF alone."""
_PORT = re.compile(r"p\d+(s\d+)?", re.ASCII)
"""Port name of the PF's own port."""
_UPLINK = "has the node's default route"
_MAX_ATTRIBUTE_BYTES = 4096
_MAX_LOWER_DEVICES = 4
"""How deep a default route's interface is looked through: a VLAN of a bridge of a bond of PFs."""
_DEFAULT_ROUTE_V4 = "00000000"
_DEFAULT_ROUTE_V6 = 32 * "0"


class RoutesError(OSError):
    """The node's routes cannot be read, so that nobody knows which interfaces it needs itself."""


class SriovTree(msgspec.Struct, frozen=True):
    """Where to look: the host's folders, as the agent finds them."""

    sys: Path
    dev: Path
    net: Path
    """``/proc/1/net``: of the host's network namespace."""


def read_devices(tree: SriovTree) -> NodeDevices:
    """All that pools can hold, by PCI address. What cannot be read of a device is as if it had none. Raises
    `RoutesError`."""
    return _Reader(tree).devices()


class _Pf(msgspec.Struct, frozen=True):
    names: tuple[str, ...]
    """Interfaces, the likeliest first; none where the host sees none."""
    no_link: bool

    @property
    def name(self) -> str:
        return self.names[0] if self.names else ""


class _Reader:
    """One look at a node."""

    def __init__(self, tree: SriovTree) -> None:
        self._tree = tree
        self._pci = tree.sys / "bus/pci/devices"
        self._rdma_files = _rdma_files(tree)
        self._uplink_interfaces = _uplink_interfaces(tree)
        self._vdpa = _vdpa_devices(tree)
        self._pfs: dict[str, _Pf] = {}
        self._indexes: dict[str, Mapping[str, int]] = {}

    def devices(self) -> NodeDevices:
        functions = [found for path in _listed(self._pci) if (found := self._function(path)) is not None]
        by_address = {each.address: each for each in functions}
        subfunctions = self._subfunctions(by_address)
        vhost = tuple(path for path in VHOST_FILES if (self._tree.dev / path.removeprefix("/dev/")).exists())
        return NodeDevices((*functions, *subfunctions), vhost)

    def _function(self, path: Path) -> SriovDevice | None:
        kind = _CLASSES.get(_text(path / "class")[:4])
        if kind is None:
            return None
        address = path.name
        driver = _link_target(path / "driver")
        interfaces = tuple(each.name for each in _listed(path / "net"))
        pf_address = _link_target(path / "physfn")
        pf = self._pf(pf_address) if pf_address else _Pf(interfaces[:1], self._has_no_link(interfaces))
        link_type = self._link_type(interfaces[0] if interfaces else pf.name)
        group, group_on_host = _vfio_group(path) if driver == VFIO_DRIVER else ("", "")
        uio = _listed(path / "uio") if driver in UIO_DRIVERS else []
        rdma = self._rdma(path)
        return SriovDevice(
            id=address,
            address=address,
            type=kind,
            vendor=_hexadecimal(path / "vendor"),
            device=_hexadecimal(path / "device"),
            driver=driver,
            numa_node=_numa_node(path),
            pf_address=pf_address,
            pf_name=pf.name,
            pf_aliases=pf.names[1:],
            index=self._indexes_of(pf_address).get(address, NO_INDEX) if pf_address else NO_INDEX,
            interfaces=interfaces,
            link_type=link_type,
            acpi_index=_text(path / "acpi_index"),
            p_key=_p_key(path, rdma) if link_type == "infiniband" else "",
            rdma=rdma,
            vdpa=self._vdpa.get(address),
            vfio_group=group,
            vfio_group_on_host=group_on_host,
            uio=f"/dev/{uio[0].name}" if uio else "",
            in_use=self._in_use(path, kind, driver, interfaces),
            no_link=pf.no_link,
            switches=pcie_switches(path),
        )

    def _in_use(self, path: Path, kind: SriovDeviceType, driver: str, interfaces: tuple[str, ...]) -> str:
        """Why no pod may have a PCI function."""
        if not driver:
            return "has no driver"
        if kind is SriovDeviceType.NET_DEVICE and _number(path / "sriov_numvfs") > 0:
            return "is a PF with VFs"
        if kind is SriovDeviceType.NET_DEVICE and self._uplink_interfaces.intersection(interfaces):
            return _UPLINK
        return ""

    def _subfunctions(self, functions: Mapping[str, SriovDevice]) -> Iterator[SriovDevice]:
        """Those of network controllers, whatever the host does with the function itself."""
        for link in _listed(self._tree.sys / "bus/auxiliary/devices"):
            name = _AUXILIARY.fullmatch(link.name)
            path = Path(os.path.realpath(link))  # of a loop, too
            parent = functions.get(path.parent.name)
            if name is None or parent is None or parent.type is not SriovDeviceType.NET_DEVICE or not parent.driver:
                continue
            interfaces = tuple(each.name for each in _listed(path / "net"))
            pf_address = parent.pf_address or parent.address
            pf = self._pf(pf_address)
            rdma = self._rdma(path)
            yield msgspec.structs.replace(
                parent,
                id=link.name,
                type=SriovDeviceType.AUX_NET_DEVICE,
                pf_address=pf_address,
                pf_name=pf.name,
                pf_aliases=pf.names[1:],
                index=_number(path / "sfnum", NO_INDEX),
                interfaces=interfaces,
                link_type=self._link_type(interfaces[0] if interfaces else pf.name),
                aux_type=name[1],
                rdma=rdma,
                p_key="",
                vdpa=None,
                in_use=_UPLINK if self._uplink_interfaces.intersection(interfaces) else "",
                no_link=pf.no_link,
            )

    def _pf(self, address: str) -> "_Pf":
        """A PF's own interfaces, and whether they are up without a link."""
        if address not in self._pfs:
            interfaces = [each.name for each in _listed(self._pci / address / "net")]
            names = {name: self._interface_attribute(name, "phys_port_name") for name in interfaces}
            ports = [name for name in interfaces if not _REPRESENTOR.fullmatch(names[name])]
            # Where representors have no port names, nothing else tells them from the port for certain.
            ports.sort(key=lambda name: (not _PORT.fullmatch(names[name]), self._has_random_address(name)))
            sure = [name for name in ports if _PORT.fullmatch(names[name])]
            # Of a function with two ports none can be said to be the VF's: it has a link if any of them has one.
            self._pfs[address] = _Pf(tuple(sure or ports), self._has_no_link(tuple(ports)))
        return self._pfs[address]

    def _has_random_address(self, interface: str) -> bool:
        """Whether the kernel made up its hardware address, as it does for representors."""
        return self._interface_attribute(interface, "addr_assign_type") == "1"

    def _has_no_link(self, interfaces: tuple[str, ...]) -> bool:
        """Whether all are up without a link: the carrier of an interface that is down cannot be read."""
        return bool(interfaces) and all(self._interface_attribute(name, "carrier") == "0" for name in interfaces)

    def _link_type(self, interface: str) -> str:
        return _LINK_TYPES.get(self._interface_attribute(interface, "type"), "") if interface else ""

    def _interface_attribute(self, interface: str, attribute: str) -> str:
        return _text(self._tree.sys / "class/net" / interface / attribute)

    def _indexes_of(self, pf_address: str) -> Mapping[str, int]:
        """By PCI address the numbers of a PF's VFs."""
        if pf_address not in self._indexes:
            links = (each for each in _listed(self._pci / pf_address) if each.name.startswith("virtfn"))
            numbers = ((each, each.name.removeprefix("virtfn")) for each in links)
            self._indexes[pf_address] = {_link_target(each): int(n) for each, n in numbers if n.isdecimal()}
        return self._indexes[pf_address]

    def _rdma(self, path: Path) -> tuple[RdmaDevice, ...]:
        names = [each.name for each in _listed(path / "infiniband")]
        return tuple(RdmaDevice(name, self._rdma_files.get(name, self._rdma_files.get("", ()))) for name in names)


def _vdpa_devices(tree: SriovTree) -> dict[str, VdpaDevice]:
    """By PCI address; of several of a function the first, as the SR-IOV network device plugin takes it."""
    found: dict[str, VdpaDevice] = {}
    for each in _listed(tree.sys / "bus/vdpa/devices"):
        files = [inner.name for inner in _listed(each) if inner.name.startswith("vhost-vdpa-")]
        kind = _VDPA_TYPES.get(_link_target(each / "driver"), "")
        path = f"/dev/{files[0]}" if files and kind == "vhost" else ""
        found.setdefault(Path(os.path.realpath(each)).parent.name, VdpaDevice(each.name, kind, path))
    return found


def _rdma_files(tree: SriovTree) -> dict[str, tuple[str, ...]]:
    """By RDMA device the paths of its device files; of the empty name those that every one has."""
    found: dict[str, list[str]] = {}
    for of in ("infiniband_cm", "infiniband_mad", "infiniband_verbs"):
        for each in _listed(tree.sys / "class" / of):
            if device := _text(each / "ibdev"):
                found.setdefault(device, []).append(f"/dev/infiniband/{each.name}")
    common = ["/dev/infiniband/rdma_cm"] if (tree.dev / "infiniband/rdma_cm").exists() else []
    return {"": tuple(common), **{device: (*files, *common) for device, files in found.items()}}


def _uplink_interfaces(tree: SriovTree) -> frozenset[str]:
    """Interfaces with a default route of the node, and those that a bond, bridge or VLAN of these is made of. Raises
    `RoutesError`."""
    try:
        wave = {*_default_routes(tree.net / "route", _is_default_v4, 0)}
        with contextlib.suppress(FileNotFoundError):  # the kernel has no IPv6
            wave |= {*_default_routes(tree.net / "ipv6_route", _is_default_v6, 9)}
    except OSError as error:
        raise RoutesError(f"cannot read the node's routes: {error}") from error
    found = set(wave)
    for _ in range(_MAX_LOWER_DEVICES):
        inner = (each.name for name in wave for each in _listed(tree.sys / "class/net" / name))
        wave = {name.removeprefix("lower_") for name in inner if name.startswith("lower_")} - found
        found |= wave
    return frozenset(found)


def _default_routes(path: Path, is_default: Callable[[list[str]], bool], interface: int) -> Iterator[str]:
    """Interfaces of a table's default routes. ``interface``: the field with its name. Raises OSError."""
    with path.open(errors="replace") as lines:
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and is_default(fields):
                yield fields[interface]


def _is_default_v4(fields: list[str]) -> bool:
    return fields[1] == fields[7] == _DEFAULT_ROUTE_V4


def _is_default_v6(fields: list[str]) -> bool:
    return fields[0] == _DEFAULT_ROUTE_V6 and fields[1] == "00"


def _vfio_group(path: Path) -> tuple[str, str]:
    """The device file of a function's IOMMU group in a container and on the host; empty: it has none."""
    number = _link_target(path / "iommu_group")
    if not number:
        return "", ""
    inside = f"/dev/vfio/{number}"
    no_iommu = _text(path / "iommu_group" / "name") == "vfio-noiommu"
    return inside, f"/dev/vfio/noiommu-{number}" if no_iommu else inside


def _p_key(path: Path, rdma: tuple[RdmaDevice, ...]) -> str:
    return _text(path / "infiniband" / rdma[0].name / "ports/1/pkeys/0") if rdma else ""


def _numa_node(path: Path) -> int | None:
    """None: the kernel knows of none, and says -1."""
    number = _number(path / "numa_node", -1)
    return number if number >= 0 else None


def _hexadecimal(path: Path) -> str:
    return _text(path).removeprefix("0x").lower()


def _number(path: Path, missing: int = 0) -> int:
    try:
        return int(_text(path))
    except ValueError:
        return missing


def _text(path: Path) -> str:
    """A file's text; empty where it cannot be read, as of a link's state while the interface is down."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        return os.read(file, _MAX_ATTRIBUTE_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""
    finally:
        os.close(file)


def _link_target(path: Path) -> str:
    """The last part of what a link leads to; empty where there is no link."""
    try:
        return os.readlink(path).rpartition("/")[2]  # noqa: PTH115  a rescan reads hundreds
    except OSError:
        return ""


def _listed(folder: Path) -> list[Path]:
    """What is in a folder, by name; nothing where it cannot be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
