"""HAMi's device plugin and scheduler as a node and a pod meet them, by what its v2.10 does with annotations. They share
no code with Purser but the API client, and decode and encode as HAMi does."""

import asyncio
import json
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc

from purser.agent.kubeletapi.deviceplugin.v1beta1 import api_pb2
from purser.kube import Client, ConflictError
from purser.kube.objects import Node, Pod
from purser.kube.resources import NODES, PODS
from purser.lab.nodes import EmulatedNode
from tests.contract.client import until
from tests.lab.nvidia import NvidiaPlugin

REGISTER, HANDSHAKE, LOCK = "hami.io/node-nvidia-register", "hami.io/node-handshake", "hami.io/mutex.lock"
NODE, PHASE, BIND_TIME = "hami.io/vgpu-node", "hami.io/bind-phase", "hami.io/bind-time"
TO_ALLOCATE, ALLOCATED = "hami.io/vgpu-devices-to-allocate", "hami.io/vgpu-devices-allocated"
SCHEDULER = "hami-scheduler"
SLOTS, MEMORY_MIB = 10, 15360
Devices = list[tuple[str, str, int, int]]


def decoded(text: str) -> list[Devices]:
    """By container, and one more for the last semicolon."""
    containers = [[device.split(",") for device in part.split(":") if "," in device] for part in text.split(";")]
    return [[(uuid, word, int(mib), int(cores)) for uuid, word, mib, cores in each] for each in containers]


def encoded(containers: list[Devices]) -> str:
    return "".join("".join(",".join(map(str, each)) + ":" for each in devices) + ";" for devices in containers)


async def annotate(client: Client, pod: Pod, annotations: dict[str, str]) -> None:
    await client.patch_merge(
        PODS, pod.metadata.name, {"metadata": {"annotations": annotations}}, pod.metadata.namespace
    )


async def unlock(client: Client, node: str, pod: Pod) -> None:
    there = (await client.get(NODES, node)).metadata.annotations.get(LOCK, "")
    if there.endswith(f",{pod.metadata.namespace},{pod.metadata.name}"):
        await client.patch_merge(NODES, node, {"metadata": {"annotations": {LOCK: None}}})


class HamiPlugin(NvidiaPlugin):
    """The device plugin of one node: it finds by the lock for whom kubelet asks, and heeds no ids."""

    def __init__(self, node: EmulatedNode, kubelet: Path, client: Client) -> None:
        """``kubelet``: the node's folder of kubelet."""
        super().__init__(node, kubelet)
        self._client = client
        self._one_at_a_time = asyncio.Lock()
        self.failures: list[str] = []

    @property
    def ids(self) -> list[str]:
        return [f"{uuid}-{slot}" for uuid in self._node.driver.uuids for slot in range(SLOTS)]

    async def start(self) -> None:
        gpus = [
            {
                "id": uuid,
                "count": SLOTS,
                "devmem": MEMORY_MIB,
                "devcore": 100,
                "type": "NVIDIA-Tesla T4",
                "health": True,
            }
            | ({"index": index} if index else {})
            | {"mode": "hami-core"}
            for index, uuid in enumerate(self._node.driver.uuids)
        ]
        await super().start()
        patch = {"metadata": {"annotations": {REGISTER: json.dumps(gpus)}}}
        await self._client.patch_merge(NODES, self._node.name, patch)

    async def Allocate(self, request: Any, context: Any) -> Any:
        async with self._one_at_a_time:
            pod = await self._pending()
            if pod is None:
                self.failures.append("no pod")
                await context.abort(grpc.StatusCode.UNKNOWN, f"no binding pod found on node {self._node.name}")
            responses, left = [], decoded(pod.metadata.annotations[TO_ALLOCATE])
            for asked in request.container_requests:
                place = next((at for at, devices in enumerate(left) if devices), None)
                if place is None or len(left[place]) != len(asked.devices_ids):
                    self.failures.append(pod.metadata.name)
                    await self._finish(pod, "failed")
                    await context.abort(grpc.StatusCode.UNKNOWN, "device number not matched")
                devices, left[place] = left[place], []
                env = {"NVIDIA_VISIBLE_DEVICES": ",".join(uuid for uuid, *_ in devices)}
                env |= {f"CUDA_DEVICE_MEMORY_LIMIT_{at}": f"{each[2]}m" for at, each in enumerate(devices)}
                responses.append(api_pb2.ContainerAllocateResponse(envs=env))
            await annotate(self._client, pod, {TO_ALLOCATE: encoded(left)})
            if not any(left):
                await self._finish(pod, "success")
            return api_pb2.AllocateResponse(container_responses=responses)

    async def _pending(self) -> Pod | None:
        node = await self._client.get(NODES, self._node.name)
        _, _, owner = node.metadata.annotations.get(LOCK, "").partition(",")
        if owner:
            namespace, _, name = owner.partition(",")
            return await self._client.get(PODS, name, namespace)
        pods = (await self._client.list(PODS)).items
        mine = [pod for pod in pods if pod.spec.node_name == self._node.name and pod.status.phase == "Pending"]
        known = [pod for pod in mine if BIND_TIME in pod.metadata.annotations]
        return next((pod for pod in known if pod.metadata.annotations.get(PHASE) in ("allocating", "success")), None)

    async def _finish(self, pod: Pod, phase: str) -> None:
        await annotate(self._client, pod, {PHASE: phase})
        await unlock(self._client, self._node.name, pod)


class HamiScheduler:
    """Its filter, lock and Binding for one pod, with what nodes and pods say at that moment."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._one_at_a_time = asyncio.Lock()

    async def place(self, pod: Pod) -> str:
        """The node where the pod was bound."""
        while True:
            async with self._one_at_a_time:
                found = await self._reserved(pod)
            if found:
                return await self._bind(pod, found)
            await asyncio.sleep(0.05)

    async def _reserved(self, pod: Pod) -> str:
        count, mib, cores = _asked(pod)
        nodes, pods = (await self._client.list(NODES)).items, (await self._client.list(PODS)).items
        for node in sorted(nodes, key=lambda each: each.metadata.name, reverse=True):
            if node.spec.unschedulable or not await self._is_healthy(node):
                continue
            used = _used(node.metadata.name, pods)
            gpus = json.loads(node.metadata.annotations[REGISTER])
            free = [each["id"] for each in gpus if _fits(each, used.get(each["id"], []), mib, cores)]
            if len(free) >= count:
                text = encoded([[(uuid, "NVIDIA", mib, cores) for uuid in free[:count]]])
                await annotate(self._client, pod, {NODE: node.metadata.name, TO_ALLOCATE: text, ALLOCATED: text})
                return node.metadata.name
        return ""

    async def _is_healthy(self, node: Node) -> bool:
        """`CheckHealth`, and what it writes."""
        annotations, name = node.metadata.annotations, node.metadata.name
        if not json.loads(annotations.get(REGISTER, "[]")):
            return False
        asked = annotations.get(HANDSHAKE, "")
        if not asked.startswith("Requesting_"):
            asked = f"Requesting_{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
            await self._client.patch_merge(NODES, name, {"metadata": {"annotations": {HANDSHAKE: asked}}})
        return int(node.status.allocatable.get("nvidia.com/gpu", 0)) > 0

    async def _bind(self, pod: Pod, name: str) -> str:
        now = datetime.now(UTC)
        lock = f"{now:%Y-%m-%dT%H:%M:%SZ},{pod.metadata.namespace},{pod.metadata.name}"

        async def locked() -> bool:
            there = (await self._client.get(NODES, name)).metadata
            patch = {"annotations": {LOCK: lock}, "resourceVersion": there.resource_version}
            with suppress(ConflictError):
                return LOCK not in there.annotations and bool(
                    await self._client.patch_merge(NODES, name, {"metadata": patch})
                )
            return False

        await until(f"{name} is locked for {pod.metadata.name}", locked)
        await annotate(self._client, pod, {PHASE: "allocating", BIND_TIME: str(int(now.timestamp()))})
        await self._client.bind(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid, name, {})
        return name


def _asked(pod: Pod) -> tuple[int, int, int]:
    limits = pod.spec.containers[0].resources.limits
    mib = int(limits.get("nvidia.com/gpumem", MEMORY_MIB))
    return int(limits["nvidia.com/gpu"]), mib, int(limits.get("nvidia.com/gpucores", 0))


def _used(node: str, pods: list[Pod]) -> dict[str, Devices]:
    used: dict[str, Devices] = {}
    for pod in pods:
        annotations = pod.metadata.annotations
        if annotations.get(NODE) == node and pod.status.phase not in ("Succeeded", "Failed"):
            for devices in decoded(annotations[ALLOCATED]):
                for each in devices:
                    used.setdefault(each[0], []).append(each)
    return used


def _fits(gpu: dict[str, Any], used: Devices, mib: int, cores: int) -> bool:
    taken_mib, taken_cores = sum(each[2] for each in used), sum(each[3] for each in used)
    if not gpu.get("health") or len(used) >= gpu["count"] or (cores == 100 and used):
        return False
    return taken_mib + mib <= gpu["devmem"] and taken_cores + cores <= 100 and not (taken_cores == 100 and not cores)
