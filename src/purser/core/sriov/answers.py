"""What a container gets with its devices of a pool: variables, device files, device information, CDI.

Source: pkg/infoprovider, pkg/resources/pool_stub.go and pkg/netdevice/netResourcePool.go of
sriov-network-device-plugin; device information is that of k8snetworkplumbingwg's device-info-spec, which Multus and the
SR-IOV CNI plugin read.
"""

from collections.abc import Mapping, Sequence

import msgspec

from purser.core.sriov.configuration import SriovDeviceType
from purser.core.sriov.pools import UIO_DRIVERS, VFIO_DRIVER, PoolMember, SriovPool

VFIO_CONTAINER = "/dev/vfio/vfio"
VHOST_NET, TUN_DEVICE = "/dev/vhost-net", "/dev/net/tun"
VHOST_FILES = (VHOST_NET, TUN_DEVICE)
DEVICE_INFO_VERSION = "1.1.0"

_CDI_CLASSES = {
    SriovDeviceType.NET_DEVICE: "net-pci",
    SriovDeviceType.ACCELERATOR: "net-accel",
    SriovDeviceType.AUX_NET_DEVICE: "net-sf",
}
_RDMA_FILE_KINDS = ("uverbs", "umad", "issm", "rdma_cm")
"""Kinds of RDMA device files that a container's variable names, by a part of their paths."""


class ContainerDeviceFile(msgspec.Struct, frozen=True, order=True):
    """A device file in a container, to read and write."""

    container_path: str
    host_path: str


class SriovAnswer(msgspec.Struct, frozen=True):
    """What a container gets."""

    variables: Mapping[str, str]
    device_files: tuple[ContainerDeviceFile, ...]


class PciInfo(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """``pci`` of device information."""

    pci_address: str
    rdma_device: str = ""


class VdpaInfo(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """``vdpa`` of device information."""

    parent_device: str
    driver: str
    pci_address: str
    path: str = ""


class DeviceInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of a file of device information."""

    type: str
    version: str = msgspec.field(name="version")
    pci: PciInfo | None = None
    vdpa: VdpaInfo | None = None


def variable_name(resource: str) -> str:
    """``PCIDEVICE_INTEL_COM_SRIOV_NETDEVICE`` of ``intel.com/sriov_netdevice``; dashes stay."""
    return f"PCIDEVICE_{resource.replace('/', '_', 1).replace('.', '_')}".upper()


def answer(pool: SriovPool, members: Sequence[PoolMember], vhost_files: Sequence[str]) -> SriovAnswer:
    """For a container that gets these devices, in kubelet's order. ``vhost_files``: of `VHOST_FILES` those that the
    node has."""
    name = variable_name(pool.resource)
    information = {each.device.id: _information(pool, each, vhost_files) for each in members}
    by_host = {file.host_path: file for each in members for file in reversed(device_files(each, vhost_files))}
    ordered = (file.host_path for each in members for file in device_files(each, vhost_files))
    return SriovAnswer(
        variables={
            name: ",".join(each.device.id for each in members),
            f"{name}_INFO": msgspec.json.encode(information, order="sorted").decode(),
        },
        device_files=tuple(by_host[path] for path in dict.fromkeys(ordered)),
    )


def device_files(member: PoolMember, vhost_files: Sequence[str]) -> tuple[ContainerDeviceFile, ...]:
    """Of one device."""
    device, found = member.device, list[ContainerDeviceFile]()
    if device.driver == VFIO_DRIVER:
        found.append(_same_path(VFIO_CONTAINER))
        if device.vfio_group:
            found.append(ContainerDeviceFile(device.vfio_group, device.vfio_group_on_host))
    elif device.driver in UIO_DRIVERS and device.uio:
        found.append(_same_path(device.uio))
    if member.selector.vdpa_type and device.vdpa and device.vdpa.path:
        found.append(_same_path(device.vdpa.path))
    if member.selector.is_rdma:
        found += (_same_path(path) for each in device.rdma for path in each.device_files)
    if _needs_vhost(member, vhost_files):
        found += map(_same_path, VHOST_FILES)
    return tuple(found)


def _same_path(path: str) -> ContainerDeviceFile:
    return ContainerDeviceFile(path, path)


def _needs_vhost(member: PoolMember, vhost_files: Sequence[str]) -> bool:
    return member.selector.need_vhost_net and set(VHOST_FILES) <= set(vhost_files)


def _information(pool: SriovPool, member: PoolMember, vhost_files: Sequence[str]) -> dict[str, dict[str, str]]:
    """By provider, as the plugin's ``_INFO`` variable has it."""
    device, found = member.device, {"generic": {"deviceID": member.device.id}}
    if device.driver == VFIO_DRIVER:
        group = {"dev-mount": device.vfio_group} if device.vfio_group else {}
        found["vfio"] = {"mount": VFIO_CONTAINER, **group}
    elif device.driver in UIO_DRIVERS:
        found["uio"] = {"mount": device.uio} if device.uio else {}
    if extra := pool.config.additional_info:
        found["extra"] = {**extra.get("*", {}), **extra.get(device.address, {})}
    if member.selector.vdpa_type and device.vdpa:
        found["vdpa"] = {"mount": device.vdpa.path} if device.vdpa.path else {}
    if member.selector.is_rdma and device.rdma:
        found["rdma"] = _rdma_information(member)
    if _needs_vhost(member, vhost_files):
        found["vhost"] = {"net-mount": VHOST_NET, "tun-mount": TUN_DEVICE}
    return found


def _rdma_information(member: PoolMember) -> dict[str, str]:
    """Of several device files of a kind the last one, as the plugin does."""
    rdma = member.device.rdma
    paths = [path for each in rdma for path in each.device_files]
    by_kind = {kind: path for path in paths for kind in _RDMA_FILE_KINDS if kind in path}
    return {**by_kind, "rdma_dev": rdma[0].name}


def device_info(member: PoolMember) -> DeviceInfo | None:
    """The content of a device's file of device information; None: its type has none."""
    device = member.device
    if device.type is not SriovDeviceType.NET_DEVICE:
        return None
    if member.selector.vdpa_type and device.vdpa:
        vdpa = VdpaInfo(device.vdpa.name, device.vdpa.type, device.address, device.vdpa.path)
        return DeviceInfo("vdpa", DEVICE_INFO_VERSION, vdpa=vdpa)
    rdma = device.rdma_name if member.selector.is_rdma else ""
    return DeviceInfo("pci", DEVICE_INFO_VERSION, pci=PciInfo(device.address, rdma))


def device_info_file(resource: str, device_id: str) -> str:
    """The name of that file: ``intel.com-sriov_netdevice-0000:03:02.1-device.json``."""
    return f"{resource.replace('/', '-')}-{device_id}-device.json"


def cdi_kind_of(pool: SriovPool) -> str:
    """CDI's kind of the pool's devices: ``intel.com/net-pci``."""
    return f"{pool.config.prefix}/{_CDI_CLASSES[pool.config.device_type]}"


def cdi_annotation(pool: SriovPool, ids: Sequence[str]) -> dict[str, str]:
    """The annotation that names a container's devices to the runtime.

    Unlike the plugin's, its key has the pool's name: a container with devices of two pools of one prefix would lose
    those of one.
    """
    kind = cdi_kind_of(pool)
    key = f"cdi.k8s.io/{kind.replace('/', '_')}_{pool.config.name}"
    return {key: ",".join(f"{kind}={each}" for each in ids)} if ids else {}
