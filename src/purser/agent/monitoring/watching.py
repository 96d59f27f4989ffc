"""Keeps what is measured of the node's GPUs, and whose it is, up to date."""

import asyncio
from collections.abc import Callable, Mapping

import msgspec
import structlog

from purser.agent.allocation.book import Book, BookedPod
from purser.agent.allocation.pod_statuses import by_kubelet_uid
from purser.agent.allocation.pods import NodePods
from purser.agent.health.monitor import DeviceMonitor
from purser.agent.kubelet.pod_resources import KubeletBooks, KubeletError
from purser.agent.monitoring.auditing import Auditor
from purser.agent.monitoring.compatible import CompatibleMetrics
from purser.agent.monitoring.gauges import Measurements
from purser.agent.monitoring.holders import DeviceHolders, holders_in_book, holders_of
from purser.agent.monitoring.reading import GpuSample, uses_of
from purser.agent.monitoring.sampling import Sampler
from purser.agent.settings import AgentSettings
from purser.core.model import DeviceMode, Grant
from purser.core.monitoring.accounts import GpuAccount, account
from purser.kube.clock import Clock, SystemClock
from purser.kube.failures import ObjectFailures
from purser.kube.pods import is_terminal

log = structlog.get_logger("purser.agent")


class GpuMonitoring:
    """Measures one node's GPUs, asks kubelet who holds them, and has both audited."""

    def __init__(
        self,
        settings: AgentSettings,
        monitor: DeviceMonitor,
        pods: NodePods,
        book: Book,
        kubelet: KubeletBooks,
        auditor: Auditor,
        failures: ObjectFailures,
        clock: Clock | None = None,
        with_mig_devices: Callable[[Grant], Grant] = lambda grant: grant,
    ) -> None:
        """``with_mig_devices``: a grant by the MIG devices that were made for it."""
        self._settings = settings
        self._monitor = monitor
        self._pods = pods
        self._book = book
        self._as_devices = with_mig_devices
        self._compatible = CompatibleMetrics(settings, monitor, book, self.booked)
        self._kubelet = kubelet
        self._auditor = auditor
        self._failures = failures
        self._clock = clock or SystemClock()
        self._sampler = Sampler(
            settings, lambda: monitor.driver, lambda: monitor.identified().keys(), failures, self._clock
        )
        self._accounts: dict[str, GpuAccount] = {}
        self._holders: tuple[float, DeviceHolders] | None = None
        """With the monotonic time at which kubelet was asked."""

    async def run(self) -> None:
        """Measure until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._failures.keep_going("measuring GPUs", self._measure_forever))
            tasks.create_task(self._failures.keep_going("listing processes on GPUs", self._ask_kubelet_forever))

    async def _measure_forever(self) -> None:
        while True:
            due = self._clock.monotonic() + self._settings.telemetry_interval_s
            await self.measure()
            await self._clock.sleep(max(0.0, due - self._clock.monotonic()))

    async def measure(self) -> None:
        """Measure once, and audit what came out."""
        samples = await self._sampler.take()
        if not self._pods.pods.health.synced:  # the owners of these processes are not known yet
            return
        fresh = self._with_owners(samples)
        before = {uuid: each for uuid, each in self._accounts.items() if uuid not in samples}
        self._accounts = {uuid: each for uuid, each in (before | fresh).items() if uuid in self._sampler.fresh}
        holders = self._fresh_holders()
        if holders is not None:
            grants = map(self._as_devices, self._pods.view().grants.values())
            await self._auditor.take(fresh.values(), grants, holders, self._unlimited_gpus())

    def _unlimited_gpus(self) -> frozenset[str]:
        """GPUs whose replicas are time slices: their containers get no limits, as with NVIDIA's plugin."""
        inventory = self._monitor.inventory.value
        devices = () if inventory is None else inventory.devices
        return frozenset(device.uuid for device in devices if device.mode is DeviceMode.TIME_SLICING)

    def _with_owners(self, samples: Mapping[str, GpuSample]) -> dict[str, GpuAccount]:
        """Only of GPUs whose processes the driver lists: those on a lost GPU are not listed, and may still run."""
        pods = by_kubelet_uid(self._pods.pods.store.values())
        return {
            uuid: account(uuid, sample.telemetry.memory, uses_of(sample, pods))
            for uuid, sample in samples.items()
            if sample.telemetry.lists_processes
        }

    async def _ask_kubelet_forever(self) -> None:
        while True:
            await self.ask_kubelet()
            await self._clock.sleep(self._settings.telemetry_interval_s)

    async def ask_kubelet(self) -> None:
        """Who holds which GPU; what it said before holds for a while if it does not answer."""
        asked = self._clock.monotonic()
        try:
            listing = await self._kubelet.resources()
        except KubeletError as error:
            log.warning("Cannot read from kubelet which pods hold which GPUs", error=str(error))
            return
        ended = frozenset(key for key, pod in self._pods.pods.store.items() if is_terminal(pod))
        self._holders = asked, holders_of(listing, ended)

    def booked(self) -> tuple[BookedPod, ...]:
        """The pods in the book, by the MIG devices that were made for them."""
        pods = self._book.pods.values()
        return tuple(msgspec.structs.replace(pod, grant=self._as_devices(pod.grant)) for pod in pods)

    def _fresh_holders(self) -> DeviceHolders | None:
        """None: kubelet has not answered lately. It knows no MIG devices that were made for grants: those are whose
        the book says."""
        if self._holders is None:
            return None
        asked, holders = self._holders
        if self._clock.monotonic() - asked > self._settings.telemetry_max_age_s:
            return None
        granted = frozenset[str]().union(*(pod.grant.uuids for pod in self._book.pods.values()))
        made = {uuid: its for uuid, its in holders_in_book(self.booked()).items() if uuid not in granted}
        return {**made, **holders}

    @property
    def measured(self) -> Measurements:
        """Current values: of GPUs that were measured recently, and the age of all."""
        fresh = self._sampler.fresh
        return Measurements(
            telemetry={uuid: sample.telemetry for uuid, sample in fresh.items()},
            accounts={uuid: each for uuid, each in self._accounts.items() if uuid in fresh},
            ages_s=self._sampler.ages_s,
            findings=self._auditor.findings,
        )

    def compatible(self) -> str:
        """Metrics by the names of other exporters, where the settings ask for them."""
        return self._compatible.render(self.measured, self._fresh_holders() or {})
