"""Which GPUs the driver lists: one scan at a time, over a driver that may hang, be absent, or have to be reopened.

NVML fixes its list of GPUs when it is opened, so only one that is reopened lists those that came back.
"""

import asyncio
from collections.abc import Callable, Mapping

import msgspec
import structlog

from purser.agent.host.threads import run_in_thread
from purser.agent.inventory.known_gpus import KnownGpus
from purser.agent.nvml.driver import Driver, DriverError, DriverInfo, Gpu, for_pods
from purser.core.device.gpus import NodeMigDevice
from purser.core.health.signs import DeviceFault

log = structlog.get_logger("purser.agent")

SCAN_TIMEOUT_S = 60.0
"""An enumeration reads every link of every GPU, and takes seconds on a machine under load."""


class DriverScanner:
    """The one user of the driver's list."""

    def __init__(self, driver: Driver, find_driver: Callable[[], Driver] | None, known: KnownGpus) -> None:
        """``find_driver`` looks again for a driver where ``driver`` is none; ``known`` has the GPUs that the agent knew
        before it was restarted."""
        self.driver = driver
        """The one at the time: another one where there was none at first."""
        self._find_driver = find_driver
        self._known = known
        self.gpus: tuple[Gpu, ...] = ()
        """Those for pods."""
        self.info = DriverInfo(absent="not looked yet")
        self.trouble = "the driver has not been queried yet"
        """Why there are no devices, or why they could not be listed again; empty: they are listed."""
        self.scans = 0
        """Counts looks at the driver."""
        self.unreadable: dict[str, DeviceFault] = {}
        """By uuid: why the last scan could not read the identity of these GPUs, which is from memory."""
        self._listed: tuple[Gpu, ...] = ()
        """All that the last scan found, those included that are not for pods."""
        self._turn = asyncio.Lock()
        self._scanning: asyncio.Future[tuple[Gpu, ...]] | None = None
        self._cut_since: dict[str, tuple[NodeMigDevice, ...]] = {}
        """MIG devices of GPUs that the agent has cut since the last scan began, by uuid."""
        self._warned: dict[str, str] = {}
        """What the log has been told of the driver, and the last reason of each."""

    def identified(self) -> Mapping[str, Gpu]:
        """The GPUs for pods that have an identity."""
        return {gpu.uuid: gpu for gpu in self.gpus if gpu.uuid}

    @property
    def others(self) -> frozenset[str]:
        """uuids of devices that the driver lists beside those for pods."""
        return frozenset(gpu.uuid for gpu in self._listed if gpu.uuid) - self.identified().keys()

    async def scan(self, reopen: bool = False) -> None:
        """Enumerate the driver's GPUs, after reopening it if asked to."""
        self.scans += 1
        async with self._turn:
            if reopen and self._scanning is None:
                await self._reopen()
            try:
                self.gpus = self._merge_newer_partitions(await self._enumerate())
                self.info = await run_in_thread(self.driver.info, "purser-info")
                self.trouble = ""
            except DriverError as error:
                self.trouble = f"the driver cannot list its devices: {error}"
        self._report()

    async def scan_after(self, action: Callable[[], None]) -> None:
        """Enumerate again after an action that blocks, and during which this process has no GPU open. Raises
        `DriverError`, and what the action raises."""
        async with self._turn:
            await run_in_thread(lambda: self.driver.while_closed(action), "purser-reset")
            self.gpus = self._merge_newer_partitions(await self._enumerate())
        self._report()

    def set_mig_devices(self, uuid: str, migs: tuple[NodeMigDevice, ...]) -> None:
        """The agent has looked at a GPU's instances, or made or removed some: these are its MIG devices now."""
        self._cut_since[uuid] = migs
        self.gpus = self._merge_newer_partitions(self.gpus)
        self._known.store(self._merge_newer_partitions(self._listed))

    async def would_show_change(self, answering: frozenset[str]) -> bool:
        """Whether reopening the driver brings back a GPU, or takes away one that is not listed any more. ``answering``:
        those that need not be looked for."""
        try:
            seen = await run_in_thread(self.driver.answering_uuids, "purser-look")
        except DriverError as error:
            self._warn("Cannot check whether failed GPUs answer again", error)
            return False
        self._warn("Cannot check whether failed GPUs answer again")
        others = self.others
        listed = len(self.gpus) + len(others)
        return len(seen) != listed or any(uuid and uuid not in answering | others for uuid in seen)

    async def _enumerate(self) -> tuple[Gpu, ...]:
        """The driver's GPUs for pods. Where the call hangs, `DriverError`, and the next one waits for that same call:
        what was known before still holds, and the other GPUs serve on."""
        if self._scanning is None:
            self._cut_since.clear()
        future = self._scanning or run_in_thread(self.driver.scan, "purser-scan")
        self._scanning = future
        done, _ = await asyncio.wait({future}, timeout=SCAN_TIMEOUT_S)
        if not done:
            raise DriverError(f"no answer within {SCAN_TIMEOUT_S:g} s")
        self._scanning = None
        read = future.result()
        self._listed = listed = self._known.identify(read)
        self._known.store(self._merge_newer_partitions(listed))
        self.unreadable = {
            gpu.uuid: gpu.fault
            for gpu, as_read in zip(listed, read, strict=True)
            if gpu.uuid and gpu.fault is not None and not as_read.uuid
        }
        return for_pods(listed)

    def _merge_newer_partitions(self, gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
        """A scan that began before has the earlier MIG devices."""
        newer = self._cut_since
        return tuple(
            msgspec.structs.replace(gpu, migs=newer[gpu.uuid]) if gpu.is_partitioned and gpu.uuid in newer else gpu
            for gpu in gpus
        )

    async def _reopen(self) -> None:
        try:
            if self.info.absent and self._find_driver is not None:
                self.driver = await run_in_thread(self._find_driver, "purser-open")
            else:
                await run_in_thread(self.driver.reopen, "purser-reopen")
            self._warn("Cannot reinitialise NVML")
        except DriverError as error:
            self._warn("Cannot reinitialise NVML", error)

    def _report(self) -> None:
        if not self.gpus and not self.trouble:
            self.trouble = self.info.absent or "the driver lists no devices"
        self._warn("No devices to advertise", "" if self.gpus else self.trouble)
        self._warn(
            "Cannot list the devices again; keeping the previously known devices", self.trouble if self.gpus else ""
        )

    def _warn(self, what: str, reason: object = "") -> None:
        """Once while it is so for the same reason: every few seconds this is looked at again. Empty: it is not so."""
        before, self._warned[what] = self._warned.get(what, ""), str(reason)
        if reason and str(reason) != before:
            log.warning(what, reason=str(reason))
