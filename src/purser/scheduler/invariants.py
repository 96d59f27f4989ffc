"""The invariants of the scheduler's state, checked while it runs: some nodes or grants per second, then from the start.

Every replica checks its own state. Nothing is repaired: a restart reads everything again.
"""

from purser.invariants import InvariantReports
from purser.kube import Clock
from purser.scheduler.extender import KubeExtender
from purser.scheduler.metrics import SchedulerMetrics

STEP_PERIOD_S = 1.0
"""Between two steps of `purser.core.fleet.consistency.sweep`, of a millisecond or two."""


class InvariantWatch:
    """Sweeps, and sweeps again."""

    def __init__(self, extender: KubeExtender, metrics: SchedulerMetrics, clock: Clock) -> None:
        self._extender = extender
        self._reports = InvariantReports(metrics.count_violation)
        self._clock = clock

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.sweep()

    async def sweep(self) -> None:
        """Once."""
        for found in self._extender.sweep():
            self._reports.report(found)
            await self._clock.sleep(STEP_PERIOD_S)
        self._reports.end_sweep()
