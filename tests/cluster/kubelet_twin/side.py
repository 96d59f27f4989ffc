"""One kubelet with what a scenario gave it: plugins and pods."""

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc

from purser.agent.kubeletapi.podresources.v1 import api_pb2, api_pb2_grpc
from purser.core.kubelet.cpuset import format_cpuset
from purser.core.kubelet.devicemanager import checkpoint
from purser.core.kubelet.errors import CheckpointError
from purser.kube.client import Client
from purser.kube.resources import NODES, PODS

from .kubelets import CHECKPOINT, CPU_STATE, NodeKubelet
from .plugin import CHANNEL_OPTIONS, Plugin

DOMAIN = "twin.test/"
_STEP_TIMEOUT_S = 60.0
_POLL_S = 0.1

_ENDPOINT = re.compile(r"endpoint .* has been stopped")

Raw = dict[str, Any]


@dataclass
class Side:
    """A kubelet, and the scenario's view of it."""

    kubelet: NodeKubelet
    client: Client
    namespace: str
    plugins: dict[str, Plugin] = field(default_factory=dict)
    """By resource, without its domain."""
    uids: dict[str, str] = field(default_factory=dict)
    """Name of every pod that was in this scenario, by uid: files may still tell of those of the one before."""
    said: list[str] = field(default_factory=list)
    """What calls of this scenario were answered with: errors of Register, of PodResources."""

    async def until(self, what: str, probe: Callable[[], Awaitable[Any]]) -> Any:
        """Poll until the probe gives something true, and return that."""
        deadline = time.monotonic() + _STEP_TIMEOUT_S
        while True:
            if found := await probe():
                return found
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.kubelet.node}: not {what}; it is {await self.observe()}")
            await asyncio.sleep(_POLL_S)

    async def pod(self, name: str) -> Raw:
        """A pod as the API has it."""
        return await self.client.get(PODS.raw(), name, self.namespace)

    async def nudge(self, name: str) -> None:
        """kubelet looks at a pod again when it changed, else only now and then."""
        patch = {"metadata": {"annotations": {"twin.test/changed": str(time.monotonic())}}}
        await self.client.patch_merge(PODS, name, patch, self.namespace)

    async def pods(self) -> list[Raw]:
        """All of the scenario."""
        return (await self.client.list(PODS.raw(), self.namespace)).items

    async def offers(self) -> dict[str, tuple[int, int]]:
        """Capacity and allocatable of the node, by resource of the plugins."""
        status = (await self.client.get(NODES.raw(), self.kubelet.node))["status"]
        return {
            name.removeprefix(DOMAIN): (int(amount), int(status["allocatable"].get(name, -1)))
            for name, amount in sorted(status["capacity"].items())
            if name.startswith(DOMAIN)
        }

    async def listed(self) -> list[api_pb2.PodResources]:
        """The pods of the scenario as PodResources lists them."""
        async with self.pod_resources() as stub_channel:
            lister = api_pb2_grpc.PodResourcesListerStub(stub_channel)
            answer = await lister.List(api_pb2.ListPodResourcesRequest(), wait_for_ready=True, timeout=30)
        return [pod for pod in answer.pod_resources if pod.namespace == self.namespace]

    def pod_resources(self) -> grpc.aio.Channel:
        """A connection to the PodResources API."""
        target = f"unix:{self.kubelet.folder / 'pod-resources' / 'kubelet.sock'}"
        return grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)

    async def observe(self) -> Raw:
        """Everything that both kubelets must agree on."""
        pods = sorted(await self.pods(), key=lambda pod: pod["metadata"]["name"])
        return {
            "pods": {pod["metadata"]["name"]: self._verdict(pod) for pod in pods},
            "pod_resources": {pod.name: _listed_containers(pod) for pod in await self.listed()},
            "device_checkpoint": self._device_checkpoint(),
            "cpu_manager_state": self._cpu_state(),
            "node": await self.offers(),
            "calls": {name: _settled(plugin.calls) for name, plugin in sorted(self.plugins.items())},
            "said": list(self.said),
        }

    def _verdict(self, pod: Raw) -> Any:
        """Whether kubelet took the pod, which does not depend on how far its containers are."""
        status = pod["status"]
        if status.get("phase") == "Failed":
            return {"refused": status.get("reason"), "message": self._message(status.get("message", ""))}
        waiting = {
            container["name"]: self._message(container["state"]["waiting"].get("message", ""))
            for kind in ("initContainerStatuses", "containerStatuses")
            for container in status.get(kind) or ()
            if container["state"].get("waiting", {}).get("reason") == "CreateContainerConfigError"
        }
        return {"admitted": is_decided(status)} | ({"cannot be created": waiting} if waiting else {})

    def _message(self, message: str) -> str:
        """Without what is another one for each pod, and without the fields of its endpoint, pointers and all, that
        kubelet prints where a plugin is to be named."""
        for uid, name in self.uids.items():
            message = message.replace(uid, f"<uid of {name}>")
        return _ENDPOINT.sub("endpoint ... has been stopped", message)

    def registered(self, resource: str) -> set[str]:
        """The healthy devices of a resource in kubelet's checkpoint; empty where there is none to read."""
        try:
            found = checkpoint.decode((self.kubelet.folder / CHECKPOINT).read_bytes())
        except (FileNotFoundError, CheckpointError):
            return set()
        return set(found.registered.get(DOMAIN + resource, ()))

    def _device_checkpoint(self) -> Any:
        path = self.kubelet.folder / CHECKPOINT
        try:
            found = checkpoint.decode(path.read_bytes())
        except FileNotFoundError:
            return "absent"
        except CheckpointError as error:
            return str(error)
        held = {
            (self.uids[uid], container, resource.removeprefix(DOMAIN)): {
                "devices": {node: frozenset(ids) for node, ids in allocation.devices_per_numa.items()},
                "response": allocation.response,
            }
            for (uid, container), of_container in found.held.items()
            if uid in self.uids
            for resource, allocation in of_container.items()
        }
        return {
            "held": dict(sorted(held.items())),
            "registered": {name: frozenset(ids) for name, ids in sorted(found.registered.items())},
        }

    def _cpu_state(self) -> Any:
        try:
            found = json.loads((self.kubelet.folder / CPU_STATE).read_bytes())
        except FileNotFoundError:
            return "absent"
        found.pop("checksum")
        if data := found.pop("data", None):  # since 1.37; the checksum is of a string with uids
            found = {"is_summed": bool(found.pop("dataChecksum")), "data": self._named(json.loads(data)), **found}
        return self._named(found)

    def _named(self, found: Raw) -> Raw:
        """With the pods' names instead of their uids."""
        entries = found.get("entries") or {}
        return {**found, "entries": {self.uids[uid]: entries[uid] for uid in entries if uid in self.uids}}


def is_decided(status: Raw) -> bool:
    """Whether kubelet has admitted or refused a pod. Soon after their start newer ones report what they refuse as
    Pending, with a start time and without conditions, until they know that nothing of it can run."""
    has_conditions = any(each["type"] == "Ready" for each in status.get("conditions") or ())
    return status.get("phase") == "Failed" or has_conditions


def _listed_containers(pod: api_pb2.PodResources) -> Raw:
    return {
        container.name: {
            "devices": _listed_devices(container),
            "cpus": format_cpuset(sum(1 << cpu for cpu in set(container.cpu_ids))),
        }
        for container in pod.containers
    }


def _listed_devices(container: api_pb2.ContainerResources) -> dict[tuple[Any, ...], frozenset[str]]:
    found: dict[tuple[Any, ...], frozenset[str]] = {}
    for devices in container.devices:
        nodes = tuple(node.ID for node in devices.topology.nodes) if devices.HasField("topology") else None
        key = (devices.resource_name.removeprefix(DOMAIN), nodes)
        found[key] = found.get(key, frozenset()) | frozenset(devices.device_ids)
    return dict(sorted(found.items(), key=str))


def _settled(calls: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """PreStartContainer is tried again for as long as it fails: once is enough to compare. It comes when containers
    start, which is in their own time, so that it stands behind the calls of admission."""
    others = [call for call in calls if call[0] != "PreStartContainer"]
    return others + sorted({call for call in calls if call[0] == "PreStartContainer"}, key=str)
