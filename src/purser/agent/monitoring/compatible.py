"""The node's GPUs by the names of other exporters: what `dcgm` and `hami` make metrics of is put together here."""

from collections.abc import Callable

from purser.agent.allocation.book import Book, BookedPod
from purser.agent.health.monitor import DeviceMonitor
from purser.agent.monitoring import dcgm, hami
from purser.agent.monitoring.gauges import Measurements
from purser.agent.monitoring.holders import DeviceHolders
from purser.agent.nvml.driver import Gpu, Telemetry
from purser.agent.settings import AgentSettings, MetricNames
from purser.core.monitoring.hami import METRICS, OLD_METRICS


class CompatibleMetrics:
    """The metrics of one node by the names that its settings ask for."""

    def __init__(
        self,
        settings: AgentSettings,
        monitor: DeviceMonitor,
        book: Book,
        booked: Callable[[], tuple[BookedPod, ...]],
    ) -> None:
        """``booked``: the pods in the book, by the MIG devices that they were given."""
        self._settings = settings
        self._monitor = monitor
        self._book = book
        self._booked = booked

    def render(self, measured: Measurements, holders: DeviceHolders) -> str:
        """In Prometheus' text format; empty where the settings ask for none."""
        names = self._settings.metrics_also_as
        return "".join(self._render_as(name, measured, holders) for name in MetricNames if name in names)

    def _render_as(self, name: MetricNames, measured: Measurements, holders: DeviceHolders) -> str:
        if name is MetricNames.DCGM:
            return self._as_dcgm(measured, holders)
        return hami.render(self._hami_node(measured), METRICS if name is MetricNames.HAMI else OLD_METRICS)

    def _as_dcgm(self, measured: Measurements, holders: DeviceHolders) -> str:
        gpus = [
            dcgm.ExposedGpu(gpu, measured.telemetry.get(uuid) or Telemetry(uuid=uuid), self._last_xid(uuid, gpu))
            for uuid, gpu in self._monitor.identified().items()
        ]
        return dcgm.render(self._settings.node_name, self._monitor.info.version or "", gpus, holders)

    def _last_xid(self, uuid: str, gpu: Gpu) -> int | None:
        return self._monitor.last_xids.get(uuid, 0 if gpu.watches_xids else None)

    def _hami_node(self, measured: Measurements) -> hami.HamiNode:
        inventory = self._monitor.inventory.value
        return hami.HamiNode(
            node=self._settings.node_name,
            gpus=tuple(self._monitor.identified().values()),
            devices=() if inventory is None else inventory.devices,
            usage=dict(self._book.usage),
            pods=self._booked(),
            telemetry=measured.telemetry,
            accounts=measured.accounts,
        )
