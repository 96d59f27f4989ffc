"""Where this node's driver is, and which of its device files are there."""

from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from purser.agent.allocation.answers import DeviceNodes
from purser.agent.host.hostfiles import on_host
from purser.agent.inventory.device_files import (
    KERNEL_DEVICES,
    MIG_MINORS,
    find_device_files,
    make_capability_files,
    own_device_files,
    read_mig_minors,
)
from purser.agent.inventory.driver_roots import DriverPlace, driver_place
from purser.agent.nvml.driver import Gpu
from purser.agent.settings import AgentSettings
from purser.core.sharing import PluginSettings


class NodeFiles:
    """Of one node, as they are at the moment."""

    def __init__(
        self,
        settings: AgentSettings,
        sharing: Callable[[], PluginSettings],
        gpus: Callable[[], Iterable[Gpu]],
    ) -> None:
        """``sharing``: the device plugin's settings that hold; ``gpus``: those for pods."""
        self._settings = settings
        self._sharing = sharing
        self._gpus = gpus

    def driver_place(self) -> DriverPlace:
        """The driver's root and that of its device files."""
        settings, held = self._settings, self._sharing()
        return driver_place(held, settings.driver_root_file, settings.driver_roots, settings.host_root)

    def device_nodes(self) -> DeviceNodes:
        """Device files, and which of them are whose."""
        settings, place = self._settings, self.driver_place()
        there = find_device_files(on_host(settings, Path(place.dev_root) / "dev"))
        minors = read_mig_minors(on_host(settings, MIG_MINORS))
        own = own_device_files(self._gpus(), minors)
        return DeviceNodes(frozenset(there), own, place.dev_root.rstrip("/"))

    def make_device_files(self, devices: Collection[str]) -> None:
        """Of MIG devices those that are missing. Raises OSError."""
        settings, own = self._settings, self.device_nodes().of_device
        dev = on_host(settings, Path(self.driver_place().dev_root) / "dev")
        names = [name for uuid in devices for name in own.get(uuid, ())]
        make_capability_files(dev, names, on_host(settings, KERNEL_DEVICES))
