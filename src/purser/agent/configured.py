"""The node's inventory by the device plugin's configuration that holds: the wanted one, or, where the GPUs do not match
it, the one before."""

from collections.abc import Callable, Mapping

import structlog

from purser import __version__
from purser.agent.enforcement import Holders
from purser.agent.inventory import HeldInstances, InventoryBasis, make_inventory
from purser.agent.latest import Latest
from purser.agent.nvml.driver import DriverInfo, Gpu
from purser.agent.settings import AgentSettings
from purser.agent.sharing import SharingConfig
from purser.core.health.machine import GpuHealth
from purser.core.model import NodeInventory
from purser.core.sharing import SharingError

log = structlog.get_logger("purser.agent")


class ConfiguredInventory:
    """Of one node."""

    def __init__(
        self, settings: AgentSettings, on_misfit: Callable[[str], None], on_empty_mig: Callable[[str], None]
    ) -> None:
        """``on_misfit`` is called with the reason why configuration and GPUs do not match, once until the configuration
        changes, and with an empty text once they do; ``on_empty_mig`` with the name of a GPU of which nothing is listed
        because it is in MIG mode without a MIG device."""
        self._settings = settings
        self._on_misfit = on_misfit
        self._on_empty_mig = on_empty_mig
        self._empty: frozenset[str] = frozenset()
        self._misfitting: SharingConfig | None = None
        self.misfit = ""
        """Why the configuration and the GPUs do not go together; empty where they do."""
        self.sharing = SharingConfig()
        """The configuration by which the inventory was made: the last one that goes with the GPUs."""
        self.basis: Latest[InventoryBasis | None] = Latest(None)
        """Of the inventory."""

    def make(
        self,
        wanted: SharingConfig,
        info: DriverInfo,
        gpus: tuple[Gpu, ...],
        scan: int,
        health: Mapping[str, GpuHealth],
        holders: Holders,
        held: Mapping[str, HeldInstances] | None,
    ) -> NodeInventory:
        """The inventory. ``scan`` counts looks at the driver; for the rest see `make_inventory`."""
        misfit = ""
        for each in (wanted, self.sharing, SharingConfig()):
            try:
                basis = InventoryBasis(each, info, gpus, scan)
                made = make_inventory(self._settings, basis, health, holders, __version__, held)
                break
            except SharingError as error:
                misfit = misfit or str(error)
        self.sharing = each
        self.basis.set(basis)
        self._report_misfit(misfit, wanted)
        self._report_empty(gpus, made)
        return made

    def _report_misfit(self, misfit: str, wanted: SharingConfig) -> None:
        before, self._misfitting = self._misfitting, wanted if misfit else None
        if misfit and misfit != self.misfit:
            log.error("The configuration does not fit the GPUs, using another one", error=misfit)
        self.misfit = misfit
        if self._misfitting != before:
            self._on_misfit(misfit)

    def _report_empty(self, gpus: tuple[Gpu, ...], made: NodeInventory) -> None:
        """Of GPUs that are cut on demand, or not offered by MIG devices at all, the inventory has the whole GPU."""
        listed = {device.uuid for device in made.devices}
        idle = (gpu for gpu in gpus if gpu.is_cut and not gpu.migs and gpu.fault is None)
        before, self._empty = self._empty, frozenset(gpu.label for gpu in idle if gpu.uuid not in listed)
        for name in sorted(self._empty - before):
            log.warning("A GPU has MIG enabled and no MIG device", gpu=name)
            self._on_empty_mig(name)
