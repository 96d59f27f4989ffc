"""Keeps the pools of a node up to date, and kubelet informed of them: VFs come and go, drivers and links change, the
file is edited, all without a restart.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import structlog

from purser.agent.host.files import read_head
from purser.agent.host.hostfiles import on_host
from purser.agent.host.latest import Latest
from purser.agent.host.threads import run_in_thread
from purser.agent.inventory.building import KubeletDevice
from purser.agent.kubelet.plugin import ResourcePlugin
from purser.agent.kubelet.pod_resources import KubeletBooks, KubeletError
from purser.agent.kubelet.refusals import AllocationRefused
from purser.agent.kubelet.registration import PluginRegistrations
from purser.agent.kubeletapi.podresources.v1 import api_pb2
from purser.agent.metrics import AgentMetrics
from purser.agent.reasons import AgentReason
from purser.agent.settings import AgentSettings
from purser.agent.sriov.arbiter import SriovArbiter
from purser.agent.sriov.ddp import DdpPackages, read_node
from purser.agent.sriov.files import DeviceInfoFiles, SriovCdiFiles
from purser.agent.sriov.memory import SeenDevices, complete_from_memory, read_seen, seen_of, write_seen
from purser.agent.sriov.neighbours import GpuNeighbours
from purser.agent.sriov.sysfs import RoutesError, SriovTree
from purser.core.device.resources import is_gpu_resource
from purser.core.sriov.configuration import MAX_FILE_BYTES, SriovConfig, SriovConfigError, sriov_config
from purser.core.sriov.devices import NodeDevices
from purser.core.sriov.pcie import NodePcie
from purser.core.sriov.pools import SriovPool, make_pools, selector_problems
from purser.core.wording import portion, some
from purser.kube.failures import ObjectFailures

log = structlog.get_logger("purser.agent")

CONFIG_NAME = "config.json"
"""Of the file for nodes that have none of their own, in a folder with several."""

LISTING_TIMEOUT_S = 5.0
"""After an Allocate was answered, kubelet's list has the devices within this time. kubelet records them as soon as it
has the answer; one that rejects the pod after all never lists them."""

SCAN_DELAY_S = 0.5
"""After a container was given devices of which no grant says so: by then kubelet lists it."""

ReportEvent = Callable[[AgentReason, str], None]
"""An event on the node."""


class SriovPlugins:
    """The pools of one node, each with a device plugin of its own."""

    def __init__(
        self,
        settings: AgentSettings,
        kubelet: KubeletBooks,
        metrics: AgentMetrics,
        failures: ObjectFailures,
        report_event: ReportEvent,
        on_refused: Callable[[AllocationRefused], None],
        neighbours: GpuNeighbours | None = None,
    ) -> None:
        self._neighbours = neighbours
        self._look_again = asyncio.Event()
        self._settings = settings
        self._kubelet = kubelet
        self._metrics = metrics
        self._failures = failures
        self._report_event = report_event
        self._on_refused = on_refused
        self._packages = DdpPackages(settings.host_root)
        self._files = DeviceInfoFiles(settings)
        self._cdi = SriovCdiFiles(settings)
        self._text: bytes | None = None
        self._config: SriovConfig | None = None
        self._applied: SriovConfig | None = None
        self._seen: SeenDevices | None = None
        self._listed: Mapping[str, str] | None = None
        self._pods: Sequence[api_pb2.PodResources] = ()
        self._answered: dict[str, tuple[str, float]] = {}
        self._unanswered = ""
        self._node = NodeDevices()
        self._pools: dict[str, SriovPool] = {}
        self._reported: dict[str, str] = {}
        self._noted: tuple[str, ...] = ()
        self.devices: Latest[tuple[KubeletDevice, ...]] = Latest(())
        """What kubelet learns."""
        self.registration = PluginRegistrations(settings, self.devices, self._make_plugin, metrics, failures)

    @property
    def pcie(self) -> Latest[NodePcie | None] | None:
        """What the node publishes of switches; None: nothing."""
        return None if self._neighbours is None else self._neighbours.pcie

    @property
    def problem(self) -> str:
        """Why kubelet does not know the pools; empty: it knows all, or there are none."""
        if self.devices.value:
            return self.registration.connection.value.problem
        return self._unanswered

    def counts(self) -> dict[str, tuple[int, int]]:
        """By resource, how many devices take pods, and how many do not; of pools without devices, too."""
        found = {}
        for resource, pool in self._pools.items():
            healthy = sum(not each.trouble for each in pool.members)
            found[resource] = healthy, len(pool.members) - healthy + len(pool.missing)
        return found

    async def run(self) -> None:
        """Look until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._failures.keep_going("SR-IOV pools", self._follow))
            tasks.create_task(self._failures.keep_going("registrations of SR-IOV pools", self.registration.run))

    async def _follow(self) -> None:
        while True:
            await self._look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.probe_interval_s):
                    await self._look_again.wait()
            self._look_again.clear()

    async def _look(self) -> None:
        """Pools are made only of what kubelet said that containers hold: a device that may be held stays in its pool.
        So there are none before its first list, and without a list a new configuration waits."""
        config = await self._current_config()
        if config is None:
            return
        if await self._ask_kubelet():
            self._applied = config
        if self._applied is None:
            return
        if self._seen is None:
            self._seen = read_seen(self._settings.sriov_file)
        tree = sriov_tree(self._settings)
        try:
            found = await run_in_thread(partial(read_node, tree, self._applied, self._packages), "purser-sriov")
        except RoutesError as error:
            effect = "SR-IOV pools are unchanged" if self._pools else "No SR-IOV pools are created"
            self._emit_once("", AgentReason.SRIOV_ROUTES, f"{effect}: {error}")
            return
        self._emit_once("", AgentReason.SRIOV_ROUTES, "")
        held = self._held()
        self._node = complete_from_memory(found, self._seen, held)
        pools = make_pools(self._applied, self._node, held)
        self._pools = {each.resource: each for each in pools}
        if self._neighbours is not None:
            self._emit_once("", AgentReason.SRIOV_UNPUBLISHED, self._neighbours.look(tree.sys, pools, self._pods))
        self._keep_files(pools, held)
        self._report(pools)
        self.devices.set(tuple(each for pool in pools for each in pool_devices(pool)))

    async def _current_config(self) -> SriovConfig | None:
        """The last one that could be read."""
        problem, path = "", self._settings.sriov.config
        assert path is not None
        try:
            text = await run_in_thread(lambda: sriov_text(path, self._settings.node_name), "purser-sriov")
            if text != self._text:
                config = sriov_config(text, self._settings.sriov.resource_prefix)
                self._text, self._config = text, config
                self._note((*config.problems, *config.notes, *selector_problems(config)))
        except SriovConfigError as error:
            kept = "The last valid configuration stays in effect." if self._config else "The node has no pools."
            problem = f"{error}. {kept}"
        self._emit_once("", AgentReason.SRIOV_CONFIG, problem)
        return self._config

    def _note(self, notes: tuple[str, ...]) -> None:
        """What of the file is not followed, each sentence by itself: an event has no room for all of them."""
        before, self._noted = self._noted, notes
        for note in notes:
            if note not in before:
                log.warning("Parts of the SR-IOV configuration are ignored", note=note)
                self._report_event(AgentReason.SRIOV_CONFIG, note)

    async def _ask_kubelet(self) -> bool:
        """Whether it says what containers hold."""
        began = time.monotonic()
        try:
            pods = await self._kubelet.resources()
        except KubeletError as error:
            if self._listed is None:
                self._unanswered = (
                    f"SR-IOV pools are not created until kubelet lists the devices that containers hold: {error}"
                )
            log.warning("No answer from kubelet; SR-IOV pools are unchanged", error=str(error))
            return False
        self._unanswered = ""
        self._pods, self._listed = pods, held_devices(pods)
        self._answered = {
            id_: (resource, at) for id_, (resource, at) in self._answered.items() if began < at + LISTING_TIMEOUT_S
        }
        return True

    def _held(self) -> Mapping[str, str]:
        """By id, the resource as which a container holds it: by kubelet's last list, and what was answered since."""
        return {**(self._listed or {}), **{id_: resource for id_, (resource, _) in self._answered.items()}}

    def _on_answered(self, resource: str, ids: tuple[str, ...], is_granted: bool) -> None:
        now = time.monotonic()
        self._answered |= dict.fromkeys(ids, (resource, now))
        if not is_granted and self._neighbours is not None:  # else the scheduler knows already
            asyncio.get_running_loop().call_later(SCAN_DELAY_S, self._look_again.set)

    def _keep_files(self, pools: tuple[SriovPool, ...], held: Mapping[str, str]) -> None:
        seen = seen_of(self._node)
        try:
            if seen != self._seen:
                write_seen(self._settings.sriov_file, seen)
            self._seen = seen
            self._files.tidy(pools)
            if self._settings.sriov.uses_cdi:
                self._cdi.keep(pools, self._node.vhost_net, held)
        except OSError as error:
            log.error("Cannot write the files of SR-IOV devices", error=str(error))

    def _report(self, pools: tuple[SriovPool, ...]) -> None:
        for pool in pools:
            self._emit_once(
                pool.resource,
                AgentReason.SRIOV_EMPTY,
                f"{pool.resource} has no devices: {pool.empty}" if pool.empty else "",
            )
            self._emit_once(pool.resource, AgentReason.SRIOV_UNHEALTHY, _unhealthy_message(pool))

    def _emit_once(self, resource: str, reason: AgentReason, message: str) -> None:
        """Once, until something else is to be said."""
        key = f"{reason}/{resource}"
        if message and message != self._reported.get(key):
            log.warning("Found a problem with SR-IOV pools", message=message)
            self._report_event(reason, message)
        self._reported[key] = message

    def _make_plugin(self, resource: str) -> ResourcePlugin:
        arbiter = SriovArbiter(
            resource,
            lambda name: self._pools.get(name),
            self._held,
            lambda: self._node.vhost_net,
            self._files,
            self._on_answered,
            self._neighbours,
            uses_cdi=self._settings.sriov.uses_cdi,
        )
        return ResourcePlugin(resource, self.devices, arbiter, self._metrics, self._on_refused, checks_starts=False)


def held_devices(pods: Sequence[api_pb2.PodResources]) -> dict[str, str]:
    """By id, the resource as which a container holds it, of all that are not GPUs."""
    return {
        id_: devices.resource_name
        for pod in pods
        for container in pod.containers
        for devices in container.devices
        if not is_gpu_resource(devices.resource_name)
        for id_ in devices.device_ids
    }


def sriov_tree(settings: AgentSettings) -> SriovTree:
    """Where the host's files are."""
    return SriovTree(*(on_host(settings, Path(path)) for path in ("/sys", "/dev", "/proc/1/net")))


def sriov_text(path: Path, node: str) -> bytes:
    """The file; of a folder the node's own, or `CONFIG_NAME`. Raises `SriovConfigError`. Blocks."""
    try:
        if path.is_dir():
            own = path / node
            path = own if own.is_file() else path / CONFIG_NAME
        return read_head(path, MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SriovConfigError(f"the SR-IOV configuration cannot be read: {error}") from error


def pool_devices(pool: SriovPool) -> Iterator[KubeletDevice]:
    """A pool's devices as kubelet's. What a container holds is listed even if it is gone: kubelet that restarts rejects
    pods whose devices it does not know."""
    for each in pool.members:
        numa = each.device.numa_node
        nodes = () if numa is None or pool.config.exclude_topology else (numa,)
        yield KubeletDevice(each.device.id, not each.trouble, nodes, pool.resource)
    for id_ in pool.missing:
        yield KubeletDevice(id_, healthy=False, resource=pool.resource)


def _unhealthy_message(pool: SriovPool) -> str:
    by_trouble: dict[str, list[str]] = {}
    for each in pool.members:
        if each.trouble:
            by_trouble.setdefault(each.trouble, []).append(each.device.id)
    if pool.missing:
        by_trouble["no longer present on the node"] = list(pool.missing)
    if not by_trouble:
        return ""
    parts = [f"{some(ids, named=4)}: {trouble}" for trouble, ids in by_trouble.items()]
    total = len(pool.members) + len(pool.missing)
    failed = sum(map(len, by_trouble.values()))
    return f"{pool.resource}: {portion(failed, total, 'device')} closed to new pods. {'; '.join(parts)}"
