"""What a node has that pools can hold."""

import msgspec

from purser.core.model import PcieSwitches
from purser.core.sriov.configuration import SriovDeviceType

NO_INDEX = -1
"""Of what is neither a VF nor a subfunction."""


class RdmaDevice(msgspec.Struct, frozen=True):
    """An RDMA device of a network device."""

    name: str
    """Such as ``mlx5_2``."""
    device_files: tuple[str, ...] = ()
    """Paths on the host: ``/dev/infiniband/uverbs2`` and others."""


class VdpaDevice(msgspec.Struct, frozen=True):
    """A vDPA device of a VF."""

    name: str
    """Such as ``vdpa0``."""
    type: str
    """``vhost`` or ``virtio``, by its driver; empty: it has none of these."""
    path: str = ""
    """Of ``vhost``: ``/dev/vhost-vdpa-0``."""


class SriovDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A PCI function, or a subfunction on the auxiliary bus."""

    id: str
    """kubelet's: the PCI address, or the name on the auxiliary bus such as ``mlx5_core.sf.4``."""
    address: str
    """PCI address: its own, or of the function that a subfunction is a part of."""
    type: SriovDeviceType
    vendor: str
    """Four hexadecimal digits."""
    device: str
    """The same."""
    driver: str = ""
    """Empty: none is bound."""
    numa_node: int | None = None
    pf_address: str = ""
    """PCI address of the PF. Empty: it is not a VF and no subfunction."""
    pf_name: str = ""
    """Network interface of the PF; of a function that has none, as in a virtual machine, its own. Empty: none can be
    seen on the host."""
    pf_aliases: tuple[str, ...] = ()
    """More interfaces of the PF's function, any of which may be its port: see `pf_name`."""
    index: int = NO_INDEX
    """Of a VF or subfunction, within its PF."""
    interfaces: tuple[str, ...] = ()
    """Network interfaces that the host sees: none while a pod has the device."""
    link_type: str = ""
    """``ether`` or ``infiniband``; empty: not known."""
    acpi_index: str = ""
    p_key: str = ""
    """Default partition key of InfiniBand."""
    ddp_profile: str = ""
    """The package that runs on its controller, where the configuration goes by these; empty: none, or not known."""
    aux_type: str = ""
    rdma: tuple[RdmaDevice, ...] = ()
    vdpa: VdpaDevice | None = None
    vfio_group: str = ""
    """Its device file in a container, where the driver is vfio-pci: ``/dev/vfio/12``."""
    vfio_group_on_host: str = ""
    uio: str = ""
    """``/dev/uio0``, where the driver is one of userspace I/O."""
    in_use: str = ""
    """Why no pod may have it, as a part of a sentence; empty: it may."""
    no_link: bool = False
    """Whether the port is up and has no link."""
    switches: PcieSwitches = ()
    """Above its PCI function."""

    @property
    def rdma_name(self) -> str:
        """All of its RDMA devices, as device information names them."""
        return ",".join(each.name for each in self.rdma)


class NodeDevices(msgspec.Struct, frozen=True):
    """All of a node, in the order of its buses, in which pools take them."""

    devices: tuple[SriovDevice, ...] = ()
    vhost_net: tuple[str, ...] = ()
    """Those of /dev/vhost-net and /dev/net/tun that there are."""
