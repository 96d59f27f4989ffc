"""Applies the allowed remedies for unhealthy GPUs: taints or cordons the node, resets unused GPUs.

On the node only the taint with `UNHEALTHY_TAINT` and a cordon with `HEALTH_CORDON_ANNOTATION` belong to this agent. A
node that was already cordoned, or was uncordoned by hand, is left as it is.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import structlog

from purser.agent.allocation.book import Book
from purser.agent.allocation.pods import NodePods
from purser.agent.health.monitor import DeviceMonitor
from purser.agent.host.threads import run_in_thread
from purser.agent.inventory.driver_roots import find_place, read_place
from purser.agent.inventory.nvidia_smi import ResetError, reset_gpu
from purser.agent.kubelet.pod_resources import KubeletBooks, KubeletError
from purser.agent.nvml.driver import DriverError, Gpu
from purser.agent.reasons import AgentReason
from purser.agent.settings import AgentSettings
from purser.core.device.ids import uuid_of
from purser.core.health.machine import GpuHealth
from purser.core.health.remedy import AllowedRemedies, Remedies, remedies_for
from purser.core.kubernetes.taints import Taint
from purser.core.ledger import pod_usage
from purser.core.names import HEALTH_CORDON_ANNOTATION, UNHEALTHY_TAINT
from purser.kube.backoff import Backoff
from purser.kube.client import Client
from purser.kube.clock import Clock, SystemClock
from purser.kube.errors import ConflictError, InvalidError, KubeError
from purser.kube.events import EventRecorder
from purser.kube.failures import ObjectFailures
from purser.kube.informer import Informer
from purser.kube.objects import Node
from purser.kube.resources import NODES, node_ref

log = structlog.get_logger("purser.agent")

MIN_RESET_INTERVAL_S = 300.0
"""Between two resets of a GPU, whether the first one helped or not."""

NODE_WRITE_RETRY_S, NODE_WRITE_RETRY_CAP_S = 1.0, 60.0
"""The first and the longest pause after a write of the node failed for another reason than a conflict."""


class NodeChange(msgspec.Struct, frozen=True):
    """A write of the node that is refused where the node changed since."""

    reason: AgentReason
    words: str
    merge: Mapping[str, Any] = {}
    """Fields of a merge patch."""
    operations: tuple[Mapping[str, Any], ...] = ()
    """Of a JSON patch: a merge patch would replace all taints, and what it does not know of them."""


def next_change(node: Node, wanted: Remedies, allowed: AllowedRemedies) -> NodeChange | None:
    """The next write that the node needs; None where it is as it should be."""
    if allowed.taint and wanted.taint is not any(map(_is_own, node.spec.taints)):
        return _taint(node) if wanted.taint else _remove_taint(node)
    is_marked = HEALTH_CORDON_ANNOTATION in node.metadata.annotations
    if not allowed.cordon or wanted.cordon is is_marked or (wanted.cordon and node.spec.unschedulable):
        return None
    reason = AgentReason.GPU_NODE_CORDONED if wanted.cordon else AgentReason.GPU_NODE_RELEASED
    words = "Cordoned" if wanted.cordon else "Uncordoned: no GPU needs a reboot anymore"
    mark = {HEALTH_CORDON_ANNOTATION: "needs-reboot" if wanted.cordon else None}
    metadata = {"annotations": mark, "resourceVersion": node.metadata.resource_version}
    return NodeChange(reason, words, {"metadata": metadata, "spec": {"unschedulable": wanted.cordon or None}})


def _taint(node: Node) -> NodeChange:
    own = {"key": UNHEALTHY_TAINT, "effect": "NoSchedule"}
    operations: tuple[Mapping[str, Any], ...] = ({"op": "add", "path": "/spec/taints/-", "value": own},)
    if not node.spec.taints:
        unchanged = {"op": "test", "path": "/metadata/resourceVersion", "value": node.metadata.resource_version}
        operations = (unchanged, {"op": "add", "path": "/spec/taints", "value": [own]})
    return NodeChange(AgentReason.GPU_NODE_TAINTED, f"Tainted with {UNHEALTHY_TAINT}", operations=operations)


def _remove_taint(node: Node) -> NodeChange:
    path = f"/spec/taints/{next(at for at, taint in enumerate(node.spec.taints) if _is_own(taint))}"
    is_there = {"op": "test", "path": f"{path}/key", "value": UNHEALTHY_TAINT}
    words = f"Taint {UNHEALTHY_TAINT} removed: no GPU is unhealthy anymore"
    return NodeChange(AgentReason.GPU_NODE_RELEASED, words, operations=(is_there, {"op": "remove", "path": path}))


def _is_own(taint: Taint) -> bool:
    return taint.key == UNHEALTHY_TAINT


class RemedyWorker:
    """The remedies of one node."""

    def __init__(
        self,
        settings: AgentSettings,
        client: Client,
        nodes: Informer[Node],
        monitor: DeviceMonitor,
        pods: NodePods,
        book: Book,
        kubelet: KubeletBooks,
        recorder: EventRecorder,
        failures: ObjectFailures,
        clock: Clock | None = None,
        reset: Callable[[Gpu], None] | None = None,
    ) -> None:
        """``reset`` blocks and raises `ResetError`; None: nvidia-smi of the node's driver."""
        self._settings = settings
        self._client = client
        self._nodes = nodes
        self._monitor = monitor
        self._pods = pods
        self._book = book
        self._kubelet = kubelet
        self._recorder = recorder
        self._failures = failures
        self._clock = clock or SystemClock()
        self._reset = reset or self._reset_by_nvidia_smi
        self._allowed = AllowedRemedies(settings.taint_nodes, settings.cordon_nodes, settings.reset_gpus)
        self._look = asyncio.Event()
        self._not_before: dict[str, float] = {}
        """Earliest time of the next attempt, in monotonic seconds, by GPU uuid; of node writes under an empty key."""
        self._write_backoff = Backoff(NODE_WRITE_RETRY_S, NODE_WRITE_RETRY_CAP_S)
        self._reported: dict[str, str] = {}
        """By uuid: why the last reset failed."""
        nodes.add_handler(on_add=lambda _: self._look.set(), on_update=lambda *_: self._look.set())

    async def run(self) -> None:
        """Do what is to be done until cancelled; returns where nothing is allowed."""
        if self._allowed == AllowedRemedies():
            return
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._failures.keep_going("following GPUs' health", self._follow))
            tasks.create_task(self._failures.keep_going("remedies for GPUs", self._act_forever))

    async def _follow(self) -> None:
        condition = self._monitor.condition.value
        while True:
            condition = await self._monitor.condition.wait_for_change(condition)
            self._look.set()

    async def _act_forever(self) -> None:
        while True:
            await self.act()
            try:  # there is no notification of released GPUs, nor of the end of the first probe
                async with asyncio.timeout(self._settings.probe_interval_s):
                    await self._look.wait()
            except TimeoutError:
                pass
            self._look.clear()

    async def act(self) -> None:
        """Once: write the node where that is due, and reset the GPUs that are to be."""
        health = self._monitor.assessed_health
        if health is None:
            return
        await self._write_node(remedies_for(health, set(), self._allowed))
        due = {
            uuid: each
            for uuid, each in health.items()
            if uuid in self._monitor.identified() and self._clock.monotonic() >= self._not_before.get(uuid, 0.0)
        }
        if remedies_for(due, set(), self._allowed).reset:
            await self._reset_unused(due)

    async def _write_node(self, wanted: Remedies) -> None:
        node = self._nodes.store.get(self._settings.node_name)
        change = None if node is None else next_change(node, wanted, self._allowed)
        if node is None or change is None or self._clock.monotonic() < self._not_before.get("", 0.0):
            return
        name = self._settings.node_name
        try:
            if change.operations:
                await self._client.patch_json(NODES, name, change.operations)
            else:
                await self._client.patch_merge(NODES, name, change.merge)
        except (ConflictError, InvalidError):  # its new version comes by the watch
            return
        except KubeError as error:
            self._not_before[""] = self._clock.monotonic() + self._write_backoff.next()
            log.warning("Cannot taint, cordon or uncordon the node", what=change.words, error=str(error))
            return
        self._write_backoff.reset()
        kind = "Normal" if change.reason is AgentReason.GPU_NODE_RELEASED else "Warning"
        condition = self._monitor.condition.value
        cause = f": {condition.message}" if condition is not None and kind == "Warning" else ""
        self._emit_event(change.reason, f"{change.words}{cause}", kind)

    async def _reset_unused(self, due: Mapping[str, GpuHealth]) -> None:
        held = await self._held()
        if held is None:
            return
        for uuid in sorted(remedies_for(due, held, self._allowed).reset):
            gpu = self._monitor.identified().get(uuid)
            if gpu is None or gpu.migs or gpu.is_partitioned or await self._has_processes(uuid):
                continue
            self._not_before[uuid] = self._clock.monotonic() + MIN_RESET_INTERVAL_S
            await self._reset_one(uuid, gpu)

    async def _held(self) -> set[str] | None:
        """GPUs that pods hold, by any of the records; None where kubelet does not answer."""
        try:
            listing = await self._kubelet.list()
        except KubeletError as error:
            log.warning("Not resetting any GPU: cannot read from kubelet which pods hold which GPUs", error=str(error))
            return None
        grants = [*(each.grant for each in self._book.pods.values()), *self._pods.view().grants.values()]
        listed = {uuid_of(held) for pod in listing for ids in pod.containers.values() for held in ids}
        return listed | {uuid for grant in grants for uuid in pod_usage(grant)}

    async def _has_processes(self, uuid: str) -> bool:
        """Where the driver lists none for an ill GPU, nvidia-smi still refuses one that any process has open."""
        driver = self._monitor.driver
        future = run_in_thread(lambda: driver.telemetry(uuid), "purser-processes")
        done, _ = await asyncio.wait({future}, timeout=self._settings.probe_timeout_s)
        return not done or bool(future.result().processes)

    async def _reset_one(self, uuid: str, gpu: Gpu) -> None:
        try:
            await self._monitor.reset(uuid, lambda: self._reset(gpu))
        except (ResetError, DriverError) as error:
            log.warning("A GPU could not be reset", uuid=uuid, error=str(error))
            if self._reported.get(uuid) != str(error):
                self._reported[uuid] = str(error)
                self._emit_event(AgentReason.GPU_RESET_FAILED, f"{gpu.label} could not be reset: {error}", "Warning")
            return
        self._reported.pop(uuid, None)
        self._emit_event(AgentReason.GPU_RESET, f"{gpu.label} was reset", "Normal")

    def _reset_by_nvidia_smi(self, gpu: Gpu) -> None:
        settings = self._settings
        place = read_place(settings.driver_root_file) or find_place(settings.driver_roots, settings.host_root)
        reset_gpu(settings.host_root, place, gpu.pci_bus_id or gpu.uuid or "")

    def _emit_event(self, reason: AgentReason, message: str, kind: str) -> None:
        self._recorder.event(node_ref(self._settings.node_name), reason, message, type=kind)
