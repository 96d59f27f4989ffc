"""The node's specifications, out of what is found on it. All of this blocks."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from purser.agent.cdi.building import CdiHost, GpuNodes, gpu_specification, node_specification
from purser.agent.cdi.driver_files import find_driver_files
from purser.agent.cdi.names import NON_GPU_CLASSES
from purser.agent.cdi.specification import CdiSpecification
from purser.agent.cdi.tree import HostTree
from purser.agent.host.hostfiles import on_host
from purser.agent.inventory.building import InventoryBasis, device_indexes
from purser.agent.inventory.device_files import (
    IMEX_CHANNEL,
    MIG_MINORS,
    DeviceFile,
    find_device_files,
    own_device_files,
    read_mig_minors,
)
from purser.agent.inventory.driver_roots import driver_place
from purser.agent.nvml.driver import Gpu
from purser.agent.settings import AgentSettings

_NODES_OF = {
    "gdrcopy": ("gdrdrv",),
    "gds": ("nvidia-fs",),
    "mofed": ("infiniband/uverbs", "infiniband/rdma_cm"),
}
"""By class, how the names of its device files start."""
_GDS_FILES = ("/run/udev", "/etc/cufile.json")
_GRAPHICS_ATTRIBUTE = "gfx"
"""In profiles of MIG devices that do."""


class CdiFinder:
    """Makes a node's specifications for one basis of its inventory.

    The driver's files are looked for once, device files each time.
    """

    def __init__(self, settings: AgentSettings, basis: InventoryBasis) -> None:
        self._settings = settings
        self._basis = basis
        self._held = held = basis.sharing.settings
        place = driver_place(held, settings.driver_root_file, settings.driver_roots, settings.host_root)
        self._place = place
        host = HostTree(settings.host_root)
        self._root = HostTree(_resolve_host_path(host, place.root))
        self._hook = held.cdi_hook if host.is_executable(held.cdi_hook) else ""
        self._files = find_driver_files(self._root, basis.info.version) if basis.info.version else None
        self.dev = _resolve_host_path(host, f"{place.dev_root.rstrip('/')}/dev")
        """Where this process finds the host's device files."""

    def specifications(self) -> dict[str, CdiSpecification]:
        """By class, such as ``gpu``: of those that the settings ask for and that there are devices of."""
        return {of: each for of, each in self._specifications() if each is not None}

    def problems(self) -> Iterator[str]:
        """What containers that are given GPUs by CDI will miss, a sentence each."""
        if self._files is None:
            yield "the driver's version is unknown, so its libraries cannot be found"
        elif not self._files.libraries:
            yield f"the driver's libraries were not found under {self._place.root}"
        if not self._hook:
            hook = self._held.cdi_hook
            yield f"{hook} on the host is missing or not executable, so containers do not find the driver's libraries"

    def _specifications(self) -> Iterator[tuple[str, CdiSpecification | None]]:
        held = self._held
        host = CdiHost(
            nodes=find_device_files(self.dev),
            driver_root=self._place.root.rstrip("/"),
            dev_root=self._place.dev_root.rstrip("/"),
            hook=self._hook,
        )
        yield "gpu", gpu_specification(host, self._files, dict(self._gpus(host.nodes)))
        channels = {str(each): (f"{IMEX_CHANNEL}{each}",) for each in held.imex_channels}
        yield "imex-channel", node_specification("imex-channel", host, channels)
        for of in NON_GPU_CLASSES:
            if getattr(held, of):
                names = [each for each in host.nodes if each.startswith(_NODES_OF[of])]
                files = [each for each in _GDS_FILES if self._root.resolved(each)] if of == "gds" else []
                yield of, node_specification(of, host, {"all": names}, files)

    def _gpus(self, files: Mapping[str, DeviceFile]) -> Iterator[tuple[str, GpuNodes]]:
        """GPUs in MIG mode are of no use but as MIG devices."""
        gpus = self._basis.gpus
        own = own_device_files(gpus, read_mig_minors(on_host(self._settings, MIG_MINORS)))
        names = device_indexes(gpus) if self._held.device_ids == "index" else {}
        for gpu in gpus:
            dri_nodes = self._dri_nodes(gpu, files)
            if gpu.uuid in own and not gpu.is_partitioned:
                yield names.get(gpu.uuid, gpu.uuid), GpuNodes((*own[gpu.uuid], *dri_nodes.names), dri_nodes.links)
            for mig in gpu.migs if gpu.uuid in own else ():
                also = dri_nodes if _GRAPHICS_ATTRIBUTE in mig.profile else GpuNodes(())
                yield names.get(mig.uuid, mig.uuid), GpuNodes((*own[mig.uuid], *also.names), also.links)

    def _dri_nodes(self, gpu: Gpu, files: Mapping[str, DeviceFile]) -> GpuNodes:
        """A GPU's files in /dev/dri, and the links to them by its address."""
        folder = self._settings.sysfs_root / "bus/pci/devices" / gpu.pci_bus_id / "drm"
        names = tuple(f"dri/{each.name}" for each in _entries(folder) if f"dri/{each.name}" in files)
        links = []
        for kind in ("card", "render"):
            path = self.dev / f"dri/by-path/pci-{gpu.pci_bus_id}-{kind}"
            target = path.readlink() if path.is_symlink() else Path()
            if f"dri/{target.name}" in names:
                links.append((str(target), f"/dev/{path.relative_to(self.dev)}"))
        return GpuNodes(names, tuple(links))


def _resolve_host_path(host: HostTree, path: str) -> Path:
    """Where this process finds a folder of the host, which may be a link there."""
    return host.local_path(host.resolved(path) or path)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
