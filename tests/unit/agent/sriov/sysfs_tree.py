"""A host's sysfs, /dev and routes with network devices, in the shape of real ones."""

ETHERNET, INFINIBAND = "1", "32"


class HostTree:
    """Below ``root``, with files as the kernel makes them for PFs, VFs, subfunctions and accelerators."""

    def __init__(self, root):
        self.root = root
        self.sys = root / "sys"
        self.pci = self.sys / "bus/pci/devices"
        self.routes()
        for each in (self.pci, self.sys / "class/net", self.sys / "bus/auxiliary/devices", root / "dev"):
            each.mkdir(parents=True, exist_ok=True)

    def routes(self, *interfaces, v6=()):
        """Of these interfaces each has a default route; ``v6``: of IPv6."""
        head = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"
        lines = [f"{name}\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n" for name in interfaces]
        local = "eth9\t0000000A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n"
        self._write(self.root / "proc/1/net/route", head + "".join(lines) + local)
        ends = f"{'0' * 32} 00000064 00000001 00000000 00000003"
        listed = [(0, "00", name) for name in v6] + [(0, "00", "lo"), (0xFE80, "40", "eth9")]
        rows = [f"{first:04x}{'0' * 28} {size} {'0' * 32} 00 {ends} {name:>8}\n" for first, size, name in listed]
        self._write(self.root / "proc/1/net/ipv6_route", "".join(rows))

    def function(self, address, vendor="8086", device="1572", driver="i40e", kind="020000", numa=0, bridge="00:01.0"):
        """A PCI function below a root port, or below a switch at that (``00:01.0/0000:02:00.0/0000:03:00.0``)."""
        real = self.sys / "devices/pci0000:00" / f"0000:{bridge}" / address
        for name, text in {
            "class": f"0x{kind}\n",
            "vendor": f"0x{vendor}\n",
            "device": f"0x{device}\n",
            "numa_node": f"{numa}\n",
        }.items():
            self._write(real / name, text)
        self._link(self.pci / address, real)
        self.bind(address, driver)
        return self.pci / address

    def bind(self, address, driver, group=None, no_iommu=False):
        """Bind a driver, with the files that vfio-pci and igb_uio bring."""
        path = self.pci / address
        for name in ("driver", "iommu_group"):
            (path / name).unlink(missing_ok=True)
        if driver:
            (self.sys / "bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
            (path / "driver").symlink_to(self.sys / "bus/pci/drivers" / driver)
        if driver == "igb_uio":
            (path / "uio/uio3").mkdir(parents=True)
        if group is not None:
            folder = self.sys / f"kernel/iommu_groups/{group}"
            folder.mkdir(parents=True, exist_ok=True)
            if no_iommu:
                self._write(folder / "name", "vfio-noiommu\n")
            (path / "iommu_group").symlink_to(folder)

    def interface(self, name, of, kind=ETHERNET, carrier="1", port=""):
        """A network interface of a device; carrier None: it is down."""
        real = of.resolve() / "net" / name
        for file, text in {"type": kind, "phys_port_name": port, **({"carrier": carrier} if carrier else {})}.items():
            self._write(real / file, f"{text}\n")
        self._link(self.sys / "class/net" / name, real)

    def move(self, name):
        """A pod takes the interface."""
        link = self.sys / "class/net" / name
        real = link.resolve()
        link.unlink()
        for each in real.iterdir():
            each.unlink()
        real.rmdir()

    def carrier(self, name, value):
        self._write(self.sys / "class/net" / name / "carrier", f"{value}\n")

    def pf(self, address, name, vfs, vf_driver="iavf", vf_device="154c", total=128, kind=ETHERNET, **fields):
        """A PF with an interface, and its VFs with one each where their driver is the kernel's."""
        path = self.function(address, **fields)
        self._write(path / "sriov_totalvfs", f"{total}\n")
        if name:
            self.interface(name, path, kind)
        own = {key: value for key, value in fields.items() if key not in ("driver", "device")}
        self.set_vfs(address, name, vfs, vf_driver, vf_device, kind, **own)
        return path

    def set_vfs(self, address, name, vfs, driver="iavf", device="154c", kind=ETHERNET, **fields):
        path = self.pci / address
        for index in range(int(self._read(path / "sriov_numvfs") or 0), vfs):
            vf = self.vf_address(address, index)
            found = self.function(vf, device=device, driver=driver, **fields)
            (found / "physfn").symlink_to(path.resolve())
            (path / f"virtfn{index}").symlink_to(found.resolve())
            if driver not in ("vfio-pci", "igb_uio", ""):
                self.interface(f"{name}v{index}", found, kind)
        self._write(path / "sriov_numvfs", f"{vfs}\n")

    def drop_vfs(self, address, keep):
        """As a smaller number written to sriov_numvfs would, if the kernel allowed that."""
        path = self.pci / address
        for index in range(keep, int(self._read(path / "sriov_numvfs"))):
            (path / f"virtfn{index}").unlink()
            (self.pci / self.vf_address(address, index)).unlink()
        self._write(path / "sriov_numvfs", f"{keep}\n")

    @staticmethod
    def vf_address(pf, index):
        """Behind the PF's own functions, eight to a device."""
        at = int(pf[-1]) * 128 + 16 + index
        return f"{pf[:8]}{at // 8:02x}.{at % 8}"

    def rdma(self, path, name, number, p_key=None):
        """An RDMA device with its device files."""
        (path.resolve() / "infiniband" / name).mkdir(parents=True)
        if p_key:
            self._write(path.resolve() / "infiniband" / name / "ports/1/pkeys/0", f"{p_key}\n")
        for of, file in (("verbs", "uverbs"), ("mad", "umad"), ("mad", "issm")):
            self._write(self.sys / f"class/infiniband_{of}" / f"{file}{number}" / "ibdev", f"{name}\n")
        self._write(self.root / "dev/infiniband/rdma_cm", "")

    def hide_rdma(self, path, name):
        """A pod takes the RDMA device, where these belong to network namespaces."""
        folder = path.resolve() / "infiniband"
        (folder / name).rmdir()
        folder.rmdir()

    def subfunction(self, parent, number, sfnum):
        """Of an mlx5 PF."""
        real = parent.resolve() / f"mlx5_core.sf.{number}"
        self._write(real / "sfnum", f"{sfnum}\n")
        self._link(self.sys / "bus/auxiliary/devices" / real.name, real)
        return real

    def vdpa(self, path, number, driver):
        real = path.resolve() / f"vdpa{number}"
        real.mkdir()
        drivers = self.sys / "bus/vdpa/drivers" / driver
        drivers.mkdir(parents=True, exist_ok=True)
        (real / "driver").symlink_to(drivers)
        if driver == "vhost_vdpa":
            (real / f"vhost-vdpa-{number}").mkdir()
        self._link(self.sys / "bus/vdpa/devices" / real.name, real)

    def ddp_package(self, address, name):
        """As devlink names it; the kernel of a real host is asked for that."""
        self._write(self.sys / "devlink/pci" / address, f"fw.mgmt 2.1.7\nfw.app.name {name}\nfw.app 1.3.1.0\n")

    def device_files(self, *names):
        for name in names:
            self._write(self.root / "dev" / name, "")

    def _link(self, path, real):
        path.parent.mkdir(parents=True, exist_ok=True)
        real.mkdir(parents=True, exist_ok=True)
        if not path.is_symlink():
            path.symlink_to(real)

    @staticmethod
    def _read(path):
        return path.read_text() if path.exists() else ""

    @staticmethod
    def _write(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
