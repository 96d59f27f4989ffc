"""The Node object as kubelet keeps it: registered at start, its status on every change, its lease every ten seconds."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from purser.kube.client import Client
from purser.kube.clock import Clock, micro_timestamp, timestamp
from purser.kube.errors import AlreadyExistsError, ApiError, ApiUnavailableError
from purser.kube.resources import LEASES, NODES
from purser.lab.kubelet.devicemanager import DeviceManager

STATUS_PERIOD_S = 10.0
LEASE_PERIOD_S = 10.0
LEASE_NAMESPACE = "kube-node-lease"

_log = structlog.get_logger("purser.lab.kubelet")


@dataclass(frozen=True)
class NodeSettings:
    """What a node is, besides its devices."""

    name: str
    kubelet_version: str = "v1.36.2"
    labels: Mapping[str, str] = field(default_factory=dict)
    cpus: int = 128
    memory_gib: int = 1024
    pods: int = 250
    ip: str = "127.0.0.1"
    kubelet_port: int = 0
    """Of kubelet's HTTPS API; 0: it has none."""

    @property
    def version(self) -> tuple[int, int]:
        """Major and minor of the kubelet's version."""
        major, minor = self.kubelet_version.removeprefix("v").split(".")[:2]
        return int(major), int(minor)


class NodeReporter:
    """Writes one Node and its Lease."""

    def __init__(self, settings: NodeSettings, client: Client, manager: DeviceManager, clock: Clock) -> None:
        self._settings = settings
        self._client = client
        self._manager = manager
        self._clock = clock
        self._changed = asyncio.Event()
        self._ready_since = timestamp(clock.now())

    def changed(self) -> None:
        """The devices changed: report at once."""
        self._changed.set()

    async def register(self, *, reset_extended_resources: bool) -> None:
        """Create the Node, or take over the one that is there; without a checkpoint its old devices count as gone."""
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
                self._manager.removed.update(name for name in node.status.capacity if "/" in name)
        await self._report()

    async def run(self) -> None:
        """Report on every change and every ten seconds, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_reporting())
            group.create_task(self._keep_lease())

    async def _keep_reporting(self) -> None:
        while True:
            try:
                async with asyncio.timeout(STATUS_PERIOD_S):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            try:
                await self._report()
            except (ApiError, ApiUnavailableError) as error:
                _log.warning("node status was not updated", node=self._settings.name, error=str(error))

    async def _report(self) -> None:
        await self._client.patch_merge(NODES, self._settings.name, {"status": self._status()}, subresource="status")

    def _status(self) -> dict[str, Any]:
        settings = self._settings
        own = {
            "cpu": str(settings.cpus),
            "memory": f"{settings.memory_gib}Gi",
            "pods": str(settings.pods),
            "ephemeral-storage": "1Ti",
        }
        devices = self._manager.capacity(self._clock.monotonic())
        return {
            "capacity": own | {name: str(n) for name, n in devices.capacity.items()},
            "allocatable": own | {name: str(n) for name, n in devices.allocatable.items()},
            "conditions": [self._ready()],
            "addresses": [
                {"type": "InternalIP", "address": settings.ip},
                {"type": "Hostname", "address": settings.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": settings.kubelet_port}},
            "nodeInfo": {
                "kubeletVersion": settings.kubelet_version,
                "containerRuntimeVersion": "lab://1",
                "osImage": "Purser lab",
                "operatingSystem": "linux",
                "architecture": "amd64",
                "kernelVersion": "0.0.0",
                "machineID": settings.name,
                "systemUUID": settings.name,
                "bootID": settings.name,
                "kubeProxyVersion": settings.kubelet_version,
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

    async def _keep_lease(self) -> None:
        while True:
            try:
                await self._renew()
            except (ApiError, ApiUnavailableError) as error:
                _log.warning("node lease was not renewed", node=self._settings.name, error=str(error))
            await self._clock.sleep(LEASE_PERIOD_S)

    async def _renew(self) -> None:
        name = self._settings.name
        body = {
            "metadata": {"name": name, "namespace": LEASE_NAMESPACE},
            "spec": {
                "holderIdentity": name,
                "leaseDurationSeconds": 40,
                "renewTime": micro_timestamp(self._clock.now()),
            },
        }
        try:
            await self._client.create(LEASES, body, LEASE_NAMESPACE)
        except AlreadyExistsError:
            await self._client.patch_merge(LEASES, name, {"spec": body["spec"]}, LEASE_NAMESPACE)
