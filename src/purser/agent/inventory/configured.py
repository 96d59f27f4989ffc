"""The node's inventory by the device plugin's configuration that holds: the wanted one, or, where the GPUs do not match
its MIG strategy, the one before, or else the wanted one without its strategy."""

from collections.abc import Callable, Mapping

import msgspec
import structlog

from purser import __version__
from purser.agent.host.latest import Latest
from purser.agent.inventory.building import InventoryBasis, UngrantedInstances, make_inventory
from purser.agent.inventory.enforcement import Enforcers
from purser.agent.nvml.driver import DriverInfo, Gpu
from purser.agent.settings import AgentSettings
from purser.agent.sharing import SharingConfig
from purser.core.health.machine import GpuHealth
from purser.core.model import NodeInventory
from purser.core.sharing import MigStrategy, SharingError

log = structlog.get_logger("purser.agent")


class ConfiguredInventory:
    """Of one node."""

    def __init__(
        self,
        settings: AgentSettings,
        on_mismatch: Callable[[str], None],
        on_empty_mig: Callable[[str], None],
        on_notes: Callable[[tuple[str, ...]], None] = lambda notes: None,
    ) -> None:
        """``on_mismatch`` is called with the reason why configuration and GPUs do not match, and what holds instead,
        whenever it is another one or the configuration changed, and with an empty text once they do match;
        ``on_empty_mig`` with the name of a GPU of which nothing is listed because it is in MIG mode without a MIG
        device; ``on_notes`` with what the configuration says of devices that the GPUs do not have, each once while it
        is so."""
        self._settings = settings
        self._on_mismatch = on_mismatch
        self._on_empty_mig = on_empty_mig
        self._on_notes = on_notes
        self._empty: frozenset[str] = frozenset()
        self._misfitting: SharingConfig | None = None
        self.mismatch = ""
        """Why the configuration and the GPUs do not go together; empty where they do."""
        self.problems: tuple[str, ...] = ()
        """What the configuration that holds says of devices that are not there, a sentence each."""
        self._last: SharingConfig | None = None
        """That went with the GPUs."""
        self.sharing = SharingConfig()
        """The configuration by which the inventory was made."""
        self.basis: Latest[InventoryBasis | None] = Latest(None)
        """Of the inventory."""

    def make(
        self,
        wanted: SharingConfig,
        info: DriverInfo,
        gpus: tuple[Gpu, ...],
        scan: int,
        health: Mapping[str, GpuHealth],
        enforcers: Enforcers,
        ungranted: Mapping[str, UngrantedInstances] | None,
    ) -> NodeInventory:
        """The inventory. ``scan`` counts looks at the driver; for the rest see `make_inventory`."""
        mismatch = ""
        problems: list[str] = []
        last = () if self._last is None else (self._last,)
        for each in (wanted, *last, _without_strategy(wanted)):
            try:
                problems.clear()
                basis = InventoryBasis(each, info, gpus, scan)
                why = "" if wanted.settings.mig_strategy is MigStrategy.NONE else mismatch
                made = make_inventory(self._settings, basis, health, enforcers, __version__, ungranted, problems, why)
                break
            except SharingError as error:
                mismatch = mismatch or str(error)
        if mismatch:
            is_last = each is self._last
            effect = each.after() if is_last else "GPUs are served as if the MIG strategy were none."
            mismatch = f"{mismatch}. {effect}"
        else:
            self._last = each
        self.sharing = each
        self.basis.set(basis)
        self._report_mismatch(mismatch, wanted)
        self._report_problems(tuple(f"{each.name}: {problem}".removeprefix(": ") for problem in problems))
        self._report_empty(gpus, made)
        return made

    def _report_mismatch(self, mismatch: str, wanted: SharingConfig) -> None:
        before, self._misfitting = self._misfitting, wanted if mismatch else None
        has_changed = mismatch != self.mismatch
        self.mismatch = mismatch
        if mismatch and has_changed:
            log.error("The configuration does not match the GPUs", error=mismatch)
        if has_changed or self._misfitting != before:
            self._on_mismatch(mismatch)

    def _report_problems(self, problems: tuple[str, ...]) -> None:
        before, self.problems = self.problems, problems
        if new := tuple(each for each in problems if each not in before):
            for each in new:
                log.warning("Parts of the device plugin's configuration are ignored", note=each)
            self._on_notes(new)

    def _report_empty(self, gpus: tuple[Gpu, ...], made: NodeInventory) -> None:
        """Of GPUs that are cut on demand, or not offered by MIG devices at all, the inventory has the whole GPU."""
        listed = {device.uuid for device in made.devices}
        is_set_aside = self.sharing.set_aside.names
        idle = (
            gpu
            for gpu in gpus
            if gpu.is_partitioned and not gpu.migs and gpu.fault is None and not is_set_aside(gpu.uuid or "", gpu.index)
        )
        before, self._empty = self._empty, frozenset(gpu.label for gpu in idle if gpu.uuid not in listed)
        for name in sorted(self._empty - before):
            log.warning("A GPU has MIG enabled but no MIG devices", gpu=name)
            self._on_empty_mig(name)


def _without_strategy(config: SharingConfig) -> SharingConfig:
    """Which goes with all GPUs."""
    settings = msgspec.structs.replace(config.settings, mig_strategy=MigStrategy.NONE)
    return msgspec.structs.replace(config, settings=settings)
