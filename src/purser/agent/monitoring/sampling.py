"""Measures every GPU once per interval, each in a thread of its own. A scrape does not call the driver.

A GPU that does not answer is not measured again until it does, and its last values are exported for
`AgentSettings.telemetry_max_age_s` at most.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping

from purser.agent.host.threads import run_in_thread
from purser.agent.monitoring.reading import GpuSample, take_sample
from purser.agent.nvml.driver import Driver
from purser.agent.settings import AgentSettings
from purser.kube.clock import Clock
from purser.kube.failures import ObjectFailures
from purser.kube.resources import NODES, node_ref


class Sampler:
    """The samples of one node's GPUs."""

    def __init__(
        self,
        settings: AgentSettings,
        driver: Callable[[], Driver],
        uuids: Callable[[], Collection[str]],
        failures: ObjectFailures,
        clock: Clock,
    ) -> None:
        """``driver`` is the one at the time, ``uuids`` are the GPUs that it lists."""
        self._settings = settings
        self._driver = driver
        self._uuids = uuids
        self._failures = failures
        self._clock = clock
        self._pending: dict[str, asyncio.Future[GpuSample]] = {}
        self._samples: dict[str, GpuSample] = {}

    async def take(self) -> Mapping[str, GpuSample]:
        """Measure once, and return the samples that came in since the last time, by uuid.

        Waits for `AgentSettings.telemetry_interval_s` at most, and not for a GPU that did not answer before. An
        exception of one GPU is reported as the node's failure.
        """
        started = {uuid: self._start(uuid) for uuid in self._uuids() if uuid not in self._pending}
        self._pending |= started
        if started:
            await asyncio.wait(started.values(), timeout=self._settings.telemetry_interval_s)
        done = {uuid: future for uuid, future in self._pending.items() if future.done()}
        taken = {}
        for uuid, future in done.items():
            del self._pending[uuid]
            try:
                taken[uuid] = future.result()
            except Exception as error:  # which no driver should raise; the other GPUs' samples count
                self._failures.failed(NODES, node_ref(self._settings.node_name), error)
        listed = set(self._uuids())
        self._samples = {uuid: each for uuid, each in (self._samples | taken).items() if uuid in listed}
        return {uuid: sample for uuid, sample in taken.items() if uuid in listed}

    def _start(self, uuid: str) -> "asyncio.Future[GpuSample]":
        driver, now, proc = self._driver(), self._clock.monotonic(), self._settings.host_root / "proc"
        return run_in_thread(lambda: take_sample(driver, uuid, proc, now), f"purser-measure-{uuid[-4:]}")

    @property
    def ages_s(self) -> Mapping[str, float]:
        """Seconds since each GPU that has ever answered was asked for what it said last."""
        now = self._clock.monotonic()
        return {uuid: now - sample.at for uuid, sample in self._samples.items()}

    @property
    def fresh(self) -> Mapping[str, GpuSample]:
        """The last samples by uuid, without those older than `AgentSettings.telemetry_max_age_s`."""
        ages = self.ages_s
        most = self._settings.telemetry_max_age_s
        return {uuid: sample for uuid, sample in self._samples.items() if ages[uuid] <= most}
