"""Keeps the node's CDI specifications up to date: written for the GPUs and files of the node, rewritten when those
change, and removed once no device-list strategy uses CDI any more.
"""

from collections.abc import Callable, Collection, Mapping

import msgspec
import structlog

from purser.agent.cdi.finding import CdiFinder
from purser.agent.cdi.names import CDI_FOLDER, CLASSES, file_name
from purser.agent.cdi.specification import CdiSpecification
from purser.agent.host.files import read_head, replace_file
from purser.agent.host.hostfiles import on_host
from purser.agent.host.inotify import FolderWatch
from purser.agent.host.latest import Latest
from purser.agent.host.threads import run_in_thread
from purser.agent.inventory.building import InventoryBasis
from purser.agent.settings import AgentSettings
from purser.agent.sharing.device_lists import DeviceList
from purser.kube.racing import until

log = structlog.get_logger("purser.agent")


class CdiWriter:
    """Writes below ``/run/cdi`` of the host, one file per class of devices."""

    def __init__(
        self,
        settings: AgentSettings,
        basis: Latest[InventoryBasis | None],
        is_used: Callable[[], bool] = lambda: False,
    ) -> None:
        """``is_used``: whether a pod may have been given devices by their names."""
        self._is_used = is_used
        self._settings = settings
        self._basis = basis
        self._folder = on_host(settings, CDI_FOLDER)
        self.classes: frozenset[str] = frozenset()
        """Classes of which there is a specification now, such as ``gpu``."""
        self.devices: Latest[frozenset[str]] = Latest(frozenset())
        """Names of the GPUs and MIG devices in the specification of those."""
        self.problem = ""
        """Why one is not what it should be; empty: nothing is wrong."""

    async def lists(self, devices: Collection[str]) -> None:
        """Return once the specification has all of these."""
        listed = self.devices.value
        while not listed.issuperset(devices):
            listed = await self.devices.wait_for_change(listed)

    async def run(self) -> None:
        """Write specifications, and remove those that are not wanted any more, until cancelled."""
        basis = None
        while True:
            basis = await self._basis.wait_for_change(basis)
            if basis is None:
                continue
            if self._is_wanted(basis):
                await until(self._follow(basis), self._basis.wait_for_change(basis))
            else:
                self._sync({})

    def _is_wanted(self, basis: InventoryBasis) -> bool:
        """kubelet keeps the names that a container was given for as long as its pod lives: without the specification
        the runtime would not start it again."""
        if any(DeviceList(each).is_cdi for each in basis.sharing.settings.device_lists):
            return True
        return self._is_used() and (self._folder / file_name("gpu")).exists()

    async def _follow(self, basis: InventoryBasis) -> None:
        """Write again whenever device files come or go, until nothing names the devices any more."""
        settings = self._settings
        finder = await run_in_thread(lambda: CdiFinder(settings, basis), "purser-cdi")
        for problem in finder.problems():
            log.warning("CDI specifications are incomplete", problem=problem)
        with FolderWatch(finder.dev) as watch:
            while self._is_wanted(basis):
                self._sync(await run_in_thread(finder.specifications, "purser-cdi"))
                await watch.changed()
        self._sync({})

    def _sync(self, wanted: Mapping[str, CdiSpecification]) -> None:
        try:
            for of in CLASSES:
                self._sync_class(of, wanted.get(of))
            self.devices.set(frozenset(each.name for each in wanted["gpu"].devices) if "gpu" in wanted else frozenset())
            self.problem = ""
        except OSError as error:
            if not self.problem:
                log.error("Cannot write the CDI specifications", folder=str(self._folder), error=str(error))
            self.problem = f"cannot write the CDI specifications: {error}"

    def _sync_class(self, of: str, wanted: CdiSpecification | None) -> None:
        """Raises OSError."""
        path = self._folder / file_name(of)
        if wanted is None:
            self.classes -= {of}
            if path.exists():
                path.unlink()
                log.info("Removed a CDI specification", file=path.name)
            return
        content = msgspec.json.encode(wanted)
        if not path.exists() or read_head(path, len(content) + 1) != content:
            self._folder.mkdir(parents=True, exist_ok=True)
            replace_file(path, content)
            log.info("Wrote a CDI specification", file=path.name, devices=[each.name for each in wanted.devices])
        self.classes |= {of}
