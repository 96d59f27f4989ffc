"""The Node object as kubelet keeps it: registered at start, its status on every change, its lease every ten seconds."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

from purser.core.kubelet.cpuset import parse_cpuset
from purser.core.kubelet.machine import Machine
from purser.core.kubelet.state import KubeletNode
from purser.core.kubelet.versions import Behaviour, behaviour
from purser.core.kubernetes.quantities import QuantityLike
from purser.kube.client import Client
from purser.kube.clock import Clock, timestamp
from purser.kube.errors import AlreadyExistsError, ApiError, ApiUnavailableError
from purser.kube.resources import NODES
from purser.lab.driver.machine import HUGEPAGES, MEMORY, CpuLayout, machine_of
from purser.lab.kubelet.books import Books
from purser.lab.kubelet.configuration import ConfiguredKubelet, KubeletSection, configure
from purser.lab.kubelet.lease import keep_leases

STATUS_UPDATE_PERIOD_S = 10.0

log = structlog.get_logger("purser.lab.kubelet")


_DEFAULT_MACHINE = machine_of((), CpuLayout())


@dataclass(frozen=True)
class NodeSettings:
    """What a node is, besides its devices."""

    name: str
    machine: Machine = _DEFAULT_MACHINE
    kubelet: ConfiguredKubelet = field(default_factory=lambda: configure(KubeletSection(), _DEFAULT_MACHINE))
    labels: Mapping[str, str] = field(default_factory=dict)
    pods: int = 250
    ip: str = "127.0.0.1"
    kubelet_port: int = 0
    """Of kubelet's HTTPS API; 0: it has none."""

    @property
    def node(self) -> KubeletNode:
        """The node as the admission twin takes it."""
        return KubeletNode(self.kubelet.config, self.machine)

    @property
    def behaviour(self) -> Behaviour:
        """What is special about the kubelet's version."""
        return behaviour(self.kubelet.config.parsed_version)


def capacity_and_allocatable(settings: NodeSettings) -> tuple[dict[str, str], dict[str, str]]:
    """Capacity and allocatable of what comes from the machine, as the Node's status has them.

    Of CPUs and memory kubelet offers what is neither reserved nor, as memory, taken by hugepages.
    """
    totals: dict[str, int] = {}
    for numa_node in settings.machine.numa_nodes:
        for name, amount in numa_node.memory.items():
            totals[name] = totals.get(name, 0) + amount
    hugepages = {name: amount for name, amount in totals.items() if name.startswith(HUGEPAGES)}
    config, cpus = settings.kubelet.config, len(settings.machine.cpus)
    reserved_millis = 1000 * parse_cpuset(config.reserved_cpus).bit_count() or config.reserved_cpu_millis
    offered = totals[MEMORY] - sum(hugepages.values()) - settings.kubelet.reserved_memory_bytes
    same = {"pods": str(settings.pods), "ephemeral-storage": "1Ti"} | {name: _bytes(n) for name, n in hugepages.items()}
    return (
        {"cpu": str(cpus), MEMORY: _bytes(totals[MEMORY]), **same},
        {"cpu": _cores(1000 * cpus - reserved_millis), MEMORY: _bytes(max(0, offered)), **same},
    )


def _bytes(amount: int) -> str:
    """As kubelet writes memory: in Ki where that is exact."""
    return f"{amount // 1024}Ki" if amount and amount % 1024 == 0 else str(amount)


def _cores(millis: int) -> str:
    return str(millis // 1000) if millis % 1000 == 0 else f"{millis}m"


class NodeReporter:
    """Writes one Node and its Lease."""

    def __init__(self, settings: NodeSettings, client: Client, books: Books, clock: Clock) -> None:
        self._settings = settings
        self._client = client
        self._books = books
        self._clock = clock
        self._changed = asyncio.Event()
        self._ready_since = timestamp(clock.now())

    def changed(self) -> None:
        """The devices changed: report at once."""
        self._changed.set()

    async def register(self, *, reset_extended_resources: bool) -> None:
        """Create the Node, or take over the one that is there; without a checkpoint it has 0 of all extended resources
        until they are reported (``reconcileExtendedResource``)."""
        settings = self._settings
        labels = {
            "kubernetes.io/hostname": settings.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            **settings.labels,
        }
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": settings.name, "labels": labels}}
        try:
            await self._client.create(NODES, body)
        except AlreadyExistsError:
            node = await self._client.get(NODES, settings.name)
            if reset_extended_resources:
                zeroed = {name: "0" for name in node.status.capacity if "/" in name}
                patch = {"status": {"capacity": zeroed, "allocatable": zeroed}}
                await self._client.patch_merge(NODES, settings.name, patch, subresource="status")
        await self._report()

    async def run(self) -> None:
        """Report on every change and every ten seconds, until cancelled."""
        async with asyncio.TaskGroup() as group:
            keep_going = self._client.failures.keep_going
            group.create_task(keep_going("node status", self._report_status_forever, self._clock))
            leases = partial(keep_leases, self._client, self._clock, lambda: [self._settings.name])
            group.create_task(keep_going("node lease", leases, self._clock))

    async def _report_status_forever(self) -> None:
        while True:
            try:
                async with asyncio.timeout(STATUS_UPDATE_PERIOD_S):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            try:
                await self._report()
            except (ApiError, ApiUnavailableError) as error:
                log.warning("Failed to update the node status", node=self._settings.name, error=str(error))

    async def _report(self) -> None:
        there = (await self._client.get(NODES, self._settings.name)).status.capacity
        await self._client.patch_merge(
            NODES, self._settings.name, {"status": self._status(there)}, subresource="status"
        )

    def _status(self, there: Mapping[str, QuantityLike]) -> dict[str, Any]:
        """``there``: the capacity that the Node has. What it has of a resource that kubelet does not know (one that an
        administrator wrote, or whose plugin it forgot) stays, and kubelet offers all of it (setters.MachineInfo)."""
        settings = self._settings
        capacity, allocatable = capacity_and_allocatable(settings)
        devices = self._books.forget_expired(self._clock.monotonic())
        unknown = {name: amount for name, amount in there.items() if name not in capacity}
        return {
            "capacity": capacity | {name: str(n) for name, n in devices.capacity.items()},
            "allocatable": allocatable | unknown | {name: str(n) for name, n in devices.allocatable.items()},
            "conditions": [self._ready()],
            "addresses": [
                {"type": "InternalIP", "address": settings.ip},
                {"type": "Hostname", "address": settings.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": settings.kubelet_port}},
            "nodeInfo": {
                "kubeletVersion": settings.kubelet.config.version,
                "containerRuntimeVersion": "lab://1",
                "osImage": "Purser lab",
                "operatingSystem": "linux",
                "architecture": "amd64",
                "kernelVersion": "0.0.0",
                "machineID": settings.name,
                "systemUUID": settings.name,
                "bootID": settings.name,
                "kubeProxyVersion": settings.kubelet.config.version,
            },
        }

    def _ready(self) -> dict[str, str]:
        return {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "kubelet is posting ready status",
            "lastHeartbeatTime": timestamp(self._clock.now()),
            "lastTransitionTime": self._ready_since,
        }
