"""Reads kubelet's files whenever one changes, and holds the report to publish."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic

import structlog
from prometheus_client import CollectorRegistry, Gauge

from purser.agent.host.inotify import FolderWatch
from purser.agent.host.latest import Latest
from purser.agent.host.threads import run_in_thread
from purser.agent.inventory.building import KubeletDevice
from purser.agent.kubelet.facts.assembling import Allocatable, AssembledReport, assemble
from purser.agent.kubelet.facts.reading import SOCKET, Found, Signature, read, sources_of
from purser.agent.kubelet.pod_resources import KubeletBooks, KubeletError
from purser.agent.settings import AgentSettings
from purser.core.kubelet.report import aligns
from purser.core.kubelet.versions import behaviour, parse_version

log = structlog.get_logger("purser.agent")

FILE_CHANGES_PAUSE_S = 0.2
"""After a change: an admission writes several files, and often more follow."""

PATIENCE_S = 30.0
"""For how long a part may be missing without a warning: kubelet writes its files one after the other when it starts,
and the first checkpoint of devices once plugins have registered."""

Observation = tuple[Signature, str, tuple[KubeletDevice, ...]]

PARTS = ("config", "machine", "devices", "cpus", "memory", "pod-resources", "version", "report")


class MissingParts:
    """Which parts are missing for so long that it is to be said. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._reported: dict[str, str] = {}

    def look(self, problems: Mapping[str, str], now: float) -> tuple[dict[str, str], tuple[str, ...]]:
        """What to warn of, by part; and the parts that were warned of and are there again. An unchanged problem is
        told once."""
        self._since = {part: self._since.get(part, now) for part in problems}
        overdue = {part: why for part, why in problems.items() if now - self._since[part] >= PATIENCE_S}
        news = {part: why for part, why in overdue.items() if self._reported.get(part) != why}
        recovered = tuple(part for part in self._reported if part not in problems)
        self._reported = {part: why for part, why in {**self._reported, **news}.items() if part in problems}
        return news, recovered

    def wait_s(self, now: float) -> float | None:
        """In how many seconds a part may have been missing for too long; None: none will."""
        waits = [PATIENCE_S - (now - since) for part, since in self._since.items() if part not in self._reported]
        return max(0.0, min(waits)) if waits else None


class KubeletFacts:
    """Keeps `report` equal to what kubelet's files say."""

    def __init__(
        self,
        settings: AgentSettings,
        kubelet: KubeletBooks,
        own: Latest[tuple[KubeletDevice, ...]],
        registry: CollectorRegistry,
    ) -> None:
        self.report: Latest[str | None] = Latest(None)
        """The annotation's text; empty: there must be none; None: not known yet."""
        self.problems: Mapping[str, str] = {}
        """What could not be read, by part."""
        self._settings = settings
        self._sources = sources_of(settings)
        self._kubelet = kubelet
        self._own = own
        self._version = ""
        self._look = asyncio.Event()
        self._seen: Observation | None = None
        self._found: Found | None = None
        self._missing = MissingParts()
        self._failed = Gauge(
            "purser_agent_kubelet_facts_missing",
            "1 while the agent cannot determine this part of its report about kubelet, else 0.",
            ["part"],
            registry=registry,
        )
        for part in PARTS:
            self._failed.labels(part).set(0)

    def set_version(self, version: str) -> None:
        """Take kubelet's version as its Node reports it. Nothing is reported before kubelet has published it."""
        if version != self._version:
            self._version = version
            self._look.set()
        if not version:
            self.report.set("")

    async def run(self) -> None:
        """Read until cancelled."""
        folders = {path.parent for path in (self._sources.config, self._sources.cpus, self._sources.devices)}
        async with asyncio.TaskGroup() as tasks:
            for folder in sorted(folders):
                tasks.create_task(self._watch(folder))
            tasks.create_task(self._follow_own_devices())
            tasks.create_task(self._read_forever())

    async def _watch(self, folder: Path) -> None:
        with FolderWatch(folder) as watch:
            while True:
                await watch.changed()
                self._look.set()

    async def _follow_own_devices(self) -> None:
        own = self._own.value
        while True:
            self._look.set()
            own = await self._own.wait_for_change(own)

    async def _read_forever(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._missing.wait_s(monotonic()) if self._version else None):
                    await self._look.wait()
            await asyncio.sleep(FILE_CHANGES_PAUSE_S)
            self._look.clear()
            if self._version:
                await self._read()

    async def _read(self) -> None:
        """Read again if anything has changed, or if something could not be read last time."""
        now = (self._sources.signature(), self._version, self._own.value)
        if now == self._seen and not self.problems:
            return
        try:
            assembled = await self._assemble_report(now)
        except Exception as error:  # an unforeseen file must not end the agent
            log.exception("Cannot assemble the kubelet report")
            assembled = AssembledReport(problems={"report": repr(error)})
        self._seen = now
        self._report_problems(assembled.problems)
        if self.report.set(assembled.text):
            log.info("Publishing a changed kubelet report", bytes=len(assembled.text))

    async def _assemble_report(self, now: Observation) -> AssembledReport:
        try:
            parse_version(self._version)
        except ValueError as error:
            return AssembledReport(problems={"version": str(error)})
        found = await run_in_thread(
            lambda: read(self._sources, self._version, self._previous_result(now)), "kubelet-facts"
        )
        self._found = found
        allocatable, problems = await self._allocatable(found)
        assembled = await run_in_thread(lambda: assemble(found, allocatable, self._own.value), "kubelet-facts")
        return AssembledReport(assembled.text, {**assembled.problems, **problems})

    def _previous_result(self, now: Observation) -> Found | None:
        """What was found last time, while kubelet is the same."""
        is_same = self._seen is not None and (self._seen[0][SOCKET], self._seen[1]) == (now[0][SOCKET], now[1])
        return self._found if is_same else None

    async def _allocatable(self, found: Found) -> tuple[Allocatable, Mapping[str, str]]:
        """What PodResources says of all devices, where this kubelet has that and it matters."""
        has_allocatable = behaviour(parse_version(self._version)).has_allocatable_resources
        if not has_allocatable or found.config is None or not aligns(found.config):
            return {}, {}
        try:
            return await self._kubelet.allocatable(), {}
        except KubeletError as error:
            return {}, {"pod-resources": str(error)}

    def _report_problems(self, problems: Mapping[str, str]) -> None:
        """Count current problems, and log those that last."""
        for part in PARTS:
            self._failed.labels(part).set(part in problems)
        news, back = self._missing.look(problems, monotonic())
        for part, error in news.items():
            log.warning("Cannot determine part of the kubelet report", part=part, error=error)
        for part in back:
            log.info("Part of the kubelet report is available again", part=part)
        self.problems = problems
