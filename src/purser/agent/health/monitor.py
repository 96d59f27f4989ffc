"""Keeps the node's inventory true: has the driver scanned (`scanning`), probes every GPU, listens to its errors.

Each GPU is probed on its own thread and may hang on its own: the others are not disturbed. What that says of a GPU's
health is judged in `core.health.machine`. GPUs that are lost, those that were lost already when the agent started, and
a driver that is not there (yet), are looked for every `reopen_interval_s`. The driver is reopened only where another
process sees more by then, for while it is closed the Xids of all GPUs are missed.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import structlog

from purser.agent.health.memory import HealthMemory
from purser.agent.health.probing import DeviceReader, signs_of
from purser.agent.health.scanning import DriverScanner
from purser.agent.health.xids import XidListener, XidQueue
from purser.agent.host.latest import Latest
from purser.agent.inventory.building import UngrantedInstances, has_library, unreadable
from purser.agent.inventory.configured import ConfiguredInventory
from purser.agent.inventory.enforcement import Enforcers
from purser.agent.inventory.known_gpus import KnownGpus
from purser.agent.nvml.driver import DeviceReading, Driver, DriverInfo, Gpu, XidEvent
from purser.agent.settings import AgentSettings
from purser.agent.sharing import SharingConfig
from purser.core.device.gpus import FabricIds, NodeMigDevice
from purser.core.health.catalogue import Action, action_of
from purser.core.health.machine import GpuHealth, after_probe, after_reset, after_xid
from purser.core.health.messages import HealthCondition, HealthNews, condition_of, news_of
from purser.core.health.signs import Signs
from purser.core.health.state import HealthState
from purser.core.model import NodeInventory
from purser.kube.backoff import Backoff
from purser.kube.clock import Clock, SystemClock
from purser.kube.failures import ObjectFailures
from purser.kube.resources import NODES, node_ref

log = structlog.get_logger("purser.agent")

REOPEN_CAP_S = 600.0
"""The longest pause before the driver is reopened again where that did not help."""

XID_TURN_PERIOD_S = 0.25
"""Between two looks at Xids: whatever comes meanwhile is judged in one turn."""


Facts: TypeAlias = tuple[frozenset[str] | None, FabricIds | None]
"""Of a GPU what changes while the driver stays: MIG devices by uuid (None: it is not in MIG mode), NVLink domain."""


class DeviceMonitor:
    """The one user of the driver. ``inventory`` is None until the first scan."""

    def __init__(
        self,
        settings: AgentSettings,
        driver: Driver,
        find_driver: Callable[[], Driver] | None = None,
        on_news: Callable[[str, HealthNews], None] = lambda uuid, news: None,
        on_program_error: Callable[[str, int], None] = lambda uuid, xid: None,
        failures: ObjectFailures | None = None,
        clock: Clock | None = None,
        config: Latest[SharingConfig | None] | None = None,
        on_mismatch: Callable[[str], None] = lambda problem: None,
        on_empty_mig: Callable[[str], None] = lambda gpu: None,
        on_notes: Callable[[tuple[str, ...]], None] = lambda notes: None,
        memory: HealthMemory | None = None,
        known: KnownGpus | None = None,
        mps_ready: Callable[[], frozenset[str]] = frozenset,
        ungranted_instances: Callable[[], Mapping[str, UngrantedInstances] | None] = lambda: None,
    ) -> None:
        """``find_driver`` looks again for a driver where ``driver`` is none; ``on_news`` is called with changes of a
        GPU's health, ``on_program_error`` with Xids that only concern the programs on a GPU, ``failures``
        counts unexpected errors. ``config``, ``on_mismatch``, ``on_empty_mig`` and ``on_notes`` are those
        of `ConfiguredInventory`. ``memory`` and ``known`` have what the agent before this one knew; None: nothing is
        kept. ``mps_ready`` has the uuids of GPUs whose MPS daemon answers; ``ungranted_instances`` the instances
        without a grant on GPUs that are cut on demand, of those that were checked, or None: there is no check."""
        self._settings = settings
        self._memory = memory or HealthMemory(Path(), "")
        self._scanner = DriverScanner(driver, find_driver, known or KnownGpus(Path(), ""))
        self._on_news = on_news
        self._on_program_error = on_program_error
        self._failures = failures or ObjectFailures()
        self._clock = clock or SystemClock()
        self._config = config or Latest[SharingConfig | None](SharingConfig())
        self.configured = ConfiguredInventory(settings, on_mismatch, on_empty_mig, on_notes)
        self._changed: set[tuple[str, Facts]] = set()
        """GPUs whose facts differ from the last scan."""
        self._reader = DeviceReader(settings.probe_timeout_s, self._report_unexpected)
        self._probe_now = asyncio.Event()
        self._probing = asyncio.Lock()
        self._left_out: dict[int, str] = {}
        """By index: what is in the way of GPUs that the last scan could not identify."""
        self.inventory: Latest[NodeInventory | None] = Latest(None)
        self.condition: Latest[HealthCondition | None] = Latest(None)
        """How the GPUs are, for people; None where all are healthy."""
        self.health: dict[str, GpuHealth] = {}
        self.readings: dict[str, DeviceReading] = {}
        self.last_xids: dict[str, int] = {}
        """By uuid: the last one that the driver reported."""
        self._mps_ready = mps_ready
        self._ungranted_instances = ungranted_instances

    @property
    def driver(self) -> Driver:
        """The one at the time: another one where there was none at first."""
        return self._scanner.driver

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Those for pods."""
        return self._scanner.gpus

    @property
    def info(self) -> DriverInfo:
        """What the driver says of itself."""
        return self._scanner.info

    @property
    def trouble(self) -> str:
        """Why there are no devices, or why they could not be listed again; empty: they are listed."""
        return self._scanner.trouble

    def identified(self) -> Mapping[str, Gpu]:
        """The GPUs that have an identity."""
        return self._scanner.identified()

    async def run(self, reload: asyncio.Event) -> None:
        """Watch until cancelled; ``reload`` set means: enumerate everything again, now."""
        listener: XidListener | None = None
        try:
            keep_going = self._failures.keep_going
            await keep_going("scanning", self.scan)
            xids = XidQueue()
            listener = XidListener(lambda: self.driver, xids)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(keep_going("judging Xids", lambda: self._judge_xids_forever(xids)))
                tasks.create_task(keep_going("probing", self._probe_forever))
                tasks.create_task(keep_going("looking for GPUs again", self._reopen_forever))
                tasks.create_task(keep_going("reloading", lambda: self._reload_forever(reload)))
                tasks.create_task(keep_going("following the configuration", self._follow_config_forever))
        finally:
            if listener is not None:
                await listener.stop()

    async def scan(self, reopen: bool = False) -> None:
        """Enumerate the driver's GPUs, after reopening it if asked to."""
        await self._scanner.scan(reopen)
        self._take_scan()

    def set_mig_devices(self, uuid: str, migs: tuple[NodeMigDevice, ...] | None) -> None:
        """See `DriverScanner.set_mig_devices`. None: the agent could not look."""
        if migs is not None:
            self._scanner.set_mig_devices(uuid, migs)
        self._publish()

    async def probe(self) -> None:
        """Read every GPU once."""
        async with self._probing:
            uuids = [gpu.uuid for gpu in self.gpus if gpu.uuid]
            readings = await asyncio.gather(*(self._probe(uuid) for uuid in uuids))
            self.readings = {reading.uuid: reading for reading in readings}
            self._publish()
        if self._has_changed():
            await self.scan()

    def _has_changed(self) -> bool:
        """Whether MIG devices or NVLink domains differ from the last scan; what a scan could not read is not looked
        for repeatedly."""
        known = {
            uuid: (frozenset(each.uuid for each in gpu.migs) if gpu.is_partitioned else None, gpu.fabric)
            for uuid, gpu in self.identified().items()
        }
        found = {
            (uuid, (each.migs, each.fabric))
            for uuid, each in self.readings.items()
            if each.fault is None and uuid in known
        }
        before, self._changed = self._changed, found - known.items()
        return bool(self._changed - before)

    async def reset(self, uuid: str, action: Callable[[], None]) -> None:
        """Have a GPU reset by an action that blocks, while this process has no GPU open. No GPU is probed meanwhile.

        Raises `DriverError`, and what the action raises.
        """
        async with self._probing:
            await self._scanner.scan_after(action)
            self._set_health(uuid, after_reset(self._health_of(uuid)))
        self._take_scan()
        self._probe_now.set()

    @property
    def assessed_health(self) -> dict[str, GpuHealth] | None:
        """The health of all GPUs, of those without identity by name; None before each was probed once."""
        if self.trouble or not self.identified().keys() <= self.readings.keys():
            return None
        found = {uuid: self._health_of(uuid) for uuid in self.identified()}
        return found | dict(self._unidentified_health())

    def _unidentified_health(self) -> list[tuple[str, GpuHealth]]:
        gpus = unreadable(self.gpus)
        return [(f"GPU {gpu.index}", self._after_probe(GpuHealth(), Signs(fault=gpu.fault))) for gpu in gpus]

    async def _probe(self, uuid: str) -> DeviceReading:
        """Judged at once: how long a GPU answers well is not for one that hangs to say."""
        if (fault := self._scanner.unreadable.get(uuid)) is not None:
            reading = DeviceReading(uuid=uuid, fault=fault)
        else:
            reading = await self._reader.read(self.driver, uuid)
        self._take_probe(uuid, signs_of(reading, self._neighbours(uuid)))
        return reading

    def _neighbours(self, uuid: str) -> list[DeviceReading]:
        """The last readings of the other GPUs of the same model."""
        model = self.identified()[uuid].name if uuid in self.identified() else ""
        same_model = (other for other, gpu in self.identified().items() if gpu.name == model and other != uuid)
        return [self.readings[other] for other in same_model if other in self.readings]

    def _report_unexpected(self, error: Exception) -> None:
        self._failures.failed(NODES, node_ref(self._settings.node_name), error)

    def _take_scan(self) -> None:
        known = {gpu.uuid for gpu in self.gpus if gpu.uuid}
        self.health = {uuid: self.health.get(uuid) or self._memory.recall(uuid) for uuid in sorted(known)}
        self.readings = {uuid: reading for uuid, reading in self.readings.items() if uuid in known}
        for gpu in self.gpus:
            if gpu.uuid and gpu.fault is not None:
                self._take_probe(gpu.uuid, Signs(fault=gpu.fault))
        unreadable_gpus = {gpu.index: str(gpu.fault) for gpu in unreadable(self.gpus)}
        for index, fault in unreadable_gpus.items():
            if self._left_out.get(index) != fault:
                log.error("A GPU cannot be identified and is ignored", index=index, fault=fault)
        self._left_out = unreadable_gpus
        self._publish()

    def renewed(self) -> NodeInventory | None:
        """The inventory as it is this moment: what holds shares may have come or gone since the last probe."""
        if self.inventory.value is not None:
            self._publish()
        return self.inventory.value

    def _publish(self) -> None:
        self._memory.keep(self.health)
        config = self._config.value
        if config is None:  # it is not known yet how the GPUs are to be listed
            return
        enforcers, ungranted = Enforcers(has_library(self._settings), self._mps_ready()), self._ungranted_instances()
        made = self.configured.make(
            config, self.info, self.gpus, self._scanner.scans, self.health, enforcers, ungranted
        )
        if ungranted is None or all(each.uuid in ungranted for each in made.devices if each.mig_kind):
            self.inventory.set(made)
        known = [(gpu.label, self._health_of(uuid)) for uuid, gpu in self.identified().items()]
        self.condition.set(condition_of(known + self._unidentified_health()))

    async def _follow_config_forever(self) -> None:
        config = self._config.value
        while True:
            config = await self._config.wait_for_change(config)
            self._publish()

    def _health_of(self, uuid: str) -> GpuHealth:
        return self.health.get(uuid, GpuHealth())

    def _take_probe(self, uuid: str, signs: Signs) -> None:
        self._set_health(uuid, self._after_probe(self._health_of(uuid), signs))

    def _after_probe(self, health: GpuHealth, signs: Signs) -> GpuHealth:
        settings = self._settings
        return after_probe(health, signs, settings.xid_policy, self._clock.monotonic(), settings.recovery_s)

    def _set_health(self, uuid: str, health: GpuHealth) -> None:
        news = news_of(self._health_of(uuid), health)
        self.health[uuid] = health
        if news is None:
            return
        log.warning("A GPU's health changed", uuid=uuid, state=health.state.value, reason=health.reason)
        self._on_news(uuid, news)

    async def _judge_xids_forever(self, xids: XidQueue) -> None:
        while True:
            for event, count in (await xids.take()).items():
                log.warning("The driver reported an Xid", xid=event.xid, uuid=event.uuid or "unknown", count=count)
                self._take_event(event)
            self._publish()
            await asyncio.sleep(XID_TURN_PERIOD_S)

    def _take_event(self, event: XidEvent) -> None:
        """An event without a GPU marks none: the probe that follows finds the one that is broken."""
        policy = self._settings.xid_policy
        if event.uuid in self._scanner.others:
            return
        if event.uuid is not None:
            self.last_xids[event.uuid] = event.xid
            self._set_health(event.uuid, after_xid(self._health_of(event.uuid), event.xid, policy))
            if policy.concerns_programs(event.xid):
                self._on_program_error(event.uuid, event.xid)
        counts = policy.state_after(event.xid) is not HealthState.HEALTHY
        # Not after errors of programs, which say nothing of the GPU.
        if counts or event.uuid is None or action_of(event.xid) is Action.XID_154:
            self._probe_now.set()  # a GPU that needs a reset says so now: without that, its recovery would go unnoticed

    def name(self, uuid: str) -> str:
        """A GPU as people know it."""
        gpu = self.identified().get(uuid)
        return f"GPU {uuid}" if gpu is None else gpu.label

    async def _probe_forever(self) -> None:
        while True:
            await self.probe()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.probe_interval_s):
                    await self._probe_now.wait()
            self._probe_now.clear()

    async def _reopen_forever(self) -> None:
        pause_s = self._settings.reopen_interval_s
        backoff, not_before = Backoff(pause_s, max(pause_s, REOPEN_CAP_S)), 0.0
        while True:
            await asyncio.sleep(pause_s)
            if self.trouble:
                await self.scan(reopen=True)
                continue
            answering = self._answering_gpus()
            now = self._clock.monotonic()
            if len(answering) == len(self.gpus):
                backoff.reset()
                not_before = 0.0
            elif now >= not_before and await self._scanner.would_show_change(answering):
                not_before = now + backoff.next()
                await self.scan(reopen=True)
            elif any(gpu.fault is not None for gpu in self.gpus):
                await self.scan()  # probes may answer long since: what a scan found wrong only another one takes back

    def _answering_gpus(self) -> frozenset[str]:
        """The GPUs that need not be looked for."""
        known = self.identified().items()
        return frozenset(uuid for uuid, gpu in known if gpu.fault is None and not self._health_of(uuid).fails_calls)

    async def _reload_forever(self, reload: asyncio.Event) -> None:
        """Also people's word that GPUs were reset: a driver before R570 may show nothing of it."""
        while True:
            await reload.wait()
            reload.clear()
            log.info("Enumerating devices again")
            self._memory.forget()
            self.health = {uuid: after_reset(health) for uuid, health in self.health.items()}
            await self.scan(reopen=True)
