"""Tells pods by a condition that a GPU that they hold is unhealthy, for as long as it is.

Nodes report which of their GPUs are unhealthy and why; the ledger has who holds them. The agent writes an event on the
pod when a GPU's health changes (``HeldGpuUnhealthy``), but events expire, and controllers and `kubectl wait` read
conditions. Agents may not write the status of pods, so the scheduler does.
"""

from collections.abc import Callable, Mapping

import structlog

from purser.core.decoding import brief
from purser.core.model import Device
from purser.core.names import HEALTH_CONDITION, UNSERVED_REASONS
from purser.kube.client import Client
from purser.kube.clock import timestamp
from purser.kube.errors import ConflictError, NotFoundError
from purser.kube.informer import Informer
from purser.kube.objects import Node, Pod
from purser.kube.pod_details import POD_SUMMARIES, PodSummary
from purser.kube.pods import is_terminal
from purser.kube.resources import PODS, key_of
from purser.kube.workqueue import WorkQueue, run_workers
from purser.scheduler.cache import ClusterCache
from purser.scheduler.leadership_gate import INACTIVE_RECHECK_PERIOD_S

log = structlog.get_logger("purser.scheduler")

REASON = "HeldGpuUnhealthy"
"""Of the condition, as of the agent's event."""

_ALL_PODS_KEY = ""
"""A key in the queue: what other replicas or earlier processes wrote is to be read."""

MAX_NAMED_GPUS = 4
"""In one message."""


class HeldGpus:
    """Keeps the condition `HEALTH_CONDITION` of pods what their nodes report."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        pods: Informer[Pod],
        nodes: Informer[Node],
        is_active: Callable[[], bool],
    ) -> None:
        """``is_active``: whether this replica is the one that acts."""
        self._client = client
        self._cache = cache
        self._pods = pods
        self._nodes = nodes
        self._is_active = is_active
        self._queue: WorkQueue[str] = WorkQueue(clock=cache.clock)
        self._unhealthy: dict[str, frozenset[tuple[str, str]]] = {}
        """By node: the unhealthy GPUs, each with its reason; nodes without any are left out."""
        self._written: dict[str, str] = {}
        """By uid of pods: the message of the condition as it was last seen or written; empty: without the condition."""

    async def run(self) -> None:
        """Follow nodes and pods until cancelled."""
        self._nodes.add_handler(self._put_node, lambda _, node: self._put_node(node), self._remove_node)
        self._pods.add_handler(self._put_pod, lambda _, pod: self._put_pod(pod), self._remove_pod)
        self._queue.add(_ALL_PODS_KEY)
        await run_workers(self._queue, self._reconcile, on_failure=self._failed)

    def _failed(self, key: str, error: Exception) -> None:
        if pod := self._pods.store.get(key):
            self._client.failures.failed(PODS, pod, error)

    def _put_node(self, node: Node) -> None:
        name = node.metadata.name
        devices = self._cache.ledger.devices(name)
        unhealthy = frozenset(
            (device.uuid, device.unhealthy_reason) for device in devices.values() if _is_unhealthy(device)
        )
        if unhealthy == self._unhealthy.get(name, frozenset()):
            return
        self._unhealthy[name] = unhealthy
        if not unhealthy:
            del self._unhealthy[name]
        self._queue_holders(name)

    def _remove_node(self, node: Node) -> None:
        self._unhealthy.pop(node.metadata.name, None)

    def _put_pod(self, pod: Pod) -> None:
        if pod.spec.node_name in self._unhealthy and pod.metadata.uid not in self._written:
            self._queue.add(key_of(pod))

    def _remove_pod(self, pod: Pod) -> None:
        self._written.pop(pod.metadata.uid, None)

    async def _reconcile(self, key: str) -> None:
        if not self._is_active():
            self._queue.add_after(_ALL_PODS_KEY, INACTIVE_RECHECK_PERIOD_S)
            return
        if key == _ALL_PODS_KEY:
            await self._read_all()
            return
        pod = self._pods.store.get(key)
        if pod is None or not pod.spec.node_name or is_terminal(pod):
            return
        message = self._message_for(pod)
        if message is None or message == self._written.get(pod.metadata.uid):
            return
        try:
            await self._write(pod, message)
        except (NotFoundError, ConflictError):
            return  # it is gone, or another pod has its name

    async def _read_all(self) -> None:
        listed = (await self._client.list(POD_SUMMARIES)).items
        self._written = {pod.metadata.uid: message for pod in listed if (message := _message_of(pod))}
        for pod in listed:
            if pod.metadata.uid in self._written:
                self._queue.add(key_of(pod))
        for node in self._unhealthy:
            self._queue_holders(node)

    def _queue_holders(self, node: str) -> None:
        for grant in self._cache.ledger.grants(node):
            self._queue.add(grant.key)

    async def _write(self, pod: Pod, message: str) -> None:
        name, namespace, uid = pod.metadata.name, pod.metadata.namespace, pod.metadata.uid
        there = await self._client.get(POD_SUMMARIES, name, namespace)
        if there.metadata.uid == uid and _message_of(there) != message:
            entry = {"type": HEALTH_CONDITION} | ({"$patch": "delete"} if not message else self._condition(message))
            patch = {"metadata": {"uid": uid}, "status": {"conditions": [entry]}}
            await self._client.patch_merge(PODS, name, patch, namespace, subresource="status", strategic=True)
            log.info("Updated the GPU health in a pod's status", pod=key_of(pod), unhealthy=message)
        self._written[uid] = message

    def _condition(self, message: str) -> dict[str, str]:
        now = timestamp(self._cache.clock.now())
        return {"status": "True", "reason": REASON, "message": message, "lastTransitionTime": now}

    def _message_for(self, pod: Pod) -> str | None:
        """The condition's message; empty: the pod is to have none. None: nobody reports on all that the pod holds, so
        what was written stays."""
        devices = self._cache.ledger.devices(pod.spec.node_name)
        held = self._cache.ledger.held(pod.metadata.uid)
        return message_for({uuid: devices.get(uuid) for uuid in held})


def message_for(held: Mapping[str, Device | None]) -> str | None:
    """What is wrong with these devices, by uuid; empty: nothing. None: nothing is known to be wrong, but some are gone
    or not served now."""
    unhealthy = sorted((d for d in held.values() if d and _is_unhealthy(d)), key=lambda d: (d.index, d.uuid))
    if unhealthy:
        named = [
            f"GPU {each.index} ({each.uuid}): {brief(each.unhealthy_reason)}" for each in unhealthy[:MAX_NAMED_GPUS]
        ]
        more = f"; and {len(unhealthy) - MAX_NAMED_GPUS} more" if len(unhealthy) > MAX_NAMED_GPUS else ""
        return "; ".join(named) + more + ". If you recreate the pod, the new pod gets other GPUs"
    return "" if all(device and device.healthy for device in held.values()) else None


def _is_unhealthy(device: Device) -> bool:
    return not device.healthy and device.unhealthy_reason not in UNSERVED_REASONS


def _message_of(pod: PodSummary) -> str:
    return next((each.message for each in pod.status.conditions if each.type == HEALTH_CONDITION), "")
