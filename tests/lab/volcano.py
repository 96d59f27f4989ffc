"""Volcano's scheduler as nodes and pods meet it: what its ``gpushare`` does with amounts of nodes and annotations
of pods, for memory and for GPUs by number alike, and its ``vgpu`` with what nodes register. It shares no code with
Purser but the API client, and errs as Volcano does: ``gpushare``'s GPUs have numbers without gaps and equal memory, and
pods of others are not counted."""

import asyncio
import time
from contextlib import suppress
from datetime import datetime, timedelta

from purser.kube import Client, ConflictError
from purser.kube.errors import NotFoundError
from purser.kube.objects import Container, Node, Pod
from purser.kube.resources import NODES, PODS

MEMORY, NUMBER = "volcano.sh/gpu-memory", "volcano.sh/gpu-number"
INDEX, TIME = "volcano.sh/gpu-index", "volcano.sh/predicate-time"
VNUMBER, VMEMORY, VCORES = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"
REGISTER, IDS = "volcano.sh/node-vgpu-register", "volcano.sh/vgpu-ids-new"
HANDSHAKE, HANDSHAKE_TIME = "volcano.sh/node-vgpu-handshake", "%Y.%m.%d %H:%M:%S"
SCHEDULER = "volcano"
_ENDED = ("Succeeded", "Failed")


class Volcano:
    """Places the pods that name it, one after the other. It keeps nothing between two looks, as after a restart.

    ``patience_s``: as its releases up to 1.14.2, and 1.15.0, it asks nodes with vGPUs for a sign of life, drops those
    that do not answer for so long, and writes a pod's record before it binds the pod. None: as those after them.
    """

    def __init__(self, client: Client, every_s: float = 0.02, patience_s: float | None = None) -> None:
        self._client, self._every_s, self._patience_s = client, every_s, patience_s
        self.asked = 0
        """How often it asked nodes for a sign of life."""

    async def run(self) -> None:
        while True:
            pods = (await self._client.list(PODS)).items
            for pod in pods:
                if pod.spec.scheduler_name == SCHEDULER and not pod.spec.node_name:
                    await self._place(pod, pods)
            await asyncio.sleep(self._every_s)

    async def _place(self, pod: Pod, pods: list[Pod]) -> None:
        for node in (await self._client.list(NODES)).items:
            record = dict[str, str]()
            if indices := self._chosen(pod, node, pods):
                record = {INDEX: ",".join(map(str, indices)), TIME: str(time.time_ns())}
            elif (ids := vgpus(pod, node, pods)) and await self._lives(node):
                now = str(int(time.time()))
                record = {
                    "volcano.sh/vgpu-node": meta_name(node),
                    "volcano.sh/vgpu-time": now,
                    IDS: ids,
                    "volcano.sh/devices-to-allocate": ids,
                    "volcano.sh/bind-phase": "allocating",
                    "volcano.sh/bind-time": now,
                }
            else:
                continue
            meta = pod.metadata
            with suppress(ConflictError, NotFoundError):
                if self._patience_s is not None:
                    await self._client.patch_merge(
                        PODS, meta.name, {"metadata": {"annotations": record}}, meta.namespace
                    )
                    record = {}
                await self._client.bind(
                    meta.namespace, meta.name, meta.uid, meta_name(node), {**meta.annotations, **record}
                )
            return

    async def _lives(self, node: Node) -> bool:
        """``NewGPUDevices``, which does the same each time it looks at a node."""
        if self._patience_s is None:
            return True
        said = node.metadata.annotations.get(HANDSHAKE)
        if said is None or "Deleted" in said:
            return False
        if "Requesting" not in said:
            self.asked += 1
            await self._write(node, "Requesting")
            return True
        since = datetime.strptime(said.split("_")[1], HANDSHAKE_TIME)
        lives = datetime.now() < since + timedelta(seconds=self._patience_s)
        if not lives:
            await self._write(node, "Deleted")
        return lives

    async def _write(self, node: Node, word: str) -> None:
        said = {HANDSHAKE: f"{word}_{datetime.now():{HANDSHAKE_TIME}}"}
        await self._client.patch_merge(NODES, meta_name(node), {"metadata": {"annotations": said}})

    def _chosen(self, pod: Pod, node: Node, pods: list[Pod]) -> list[int]:
        capacity = node.status.capacity
        count = int(str(capacity.get(NUMBER, 0)))
        if not count:
            return []
        size = _value(capacity.get(MEMORY, 0)) // count
        here = [each for each in pods if each.spec.node_name == meta_name(node) and each.status.phase not in _ENDED]
        on = {index: [each for each in here if index in _indices(each)] for index in range(count)}
        if memory := _asked(pod, MEMORY):
            fit = [index for index, held in on.items() if size - sum(_asked(each, MEMORY) for each in held) >= memory]
            return sorted(fit)[:1]
        idle = [index for index, held in on.items() if not held]
        number = _asked(pod, NUMBER)
        return idle[-number:][::-1] if number and len(idle) >= number else []


def meta_name(node: Node) -> str:
    return node.metadata.name


def _indices(pod: Pod) -> list[int]:
    text = pod.metadata.annotations.get(INDEX, "")
    return [int(each) for each in text.split(",") if each]


def _asked(pod: Pod, resource: str) -> int:
    def of(container: Container) -> int:
        return _value(container.resources.limits.get(resource, 0))

    inits = max((of(each) for each in pod.spec.init_containers), default=0)
    return max(inits, sum(of(each) for each in pod.spec.containers))


def _value(amount: object) -> int:
    text = str(amount)
    return int(text.removesuffix("k")) * (1000 if text.endswith("k") else 1)


class _Card:
    """A GPU as ``decodeNodeDevices`` reads it."""

    def __init__(self, text: str) -> None:
        self.uuid, number, memory, self.type, *_ = text.split(",")
        self.number, self.memory = int(number), int(memory)
        self.held: list[tuple[int, int]] = []

    def takes(self, memory: int, cores: int) -> bool:
        """``checkNodeGPUSharingPredicateAndScore``."""
        used = sum(each for _, each in self.held)
        return (
            len(self.held) < self.number
            and self.memory - sum(each for each, _ in self.held) >= memory
            and used + cores <= 100
            and not (cores == 100 and self.held)
            and not (used == 100 and not cores)
            and "NVIDIA" in self.type
        )


def vgpus(pod: Pod, node: Node, pods: list[Pod]) -> str:
    """The value of `IDS` for a pod on this node; empty: it does not fit, or asks for none."""
    listed = node.status.allocatable
    if not all(_value(listed.get(each, 0)) for each in (VNUMBER, VMEMORY, VCORES)):
        return ""
    cards = [_Card(each) for each in node.metadata.annotations.get(REGISTER, "").split(":") if "," in each]
    for other in pods:
        if other.spec.node_name == meta_name(node) and other.status.phase not in _ENDED:
            for uuid, _, memory, cores in _decoded(other.metadata.annotations.get(IDS, "")):
                for card in cards:
                    if card.uuid in uuid:
                        card.held.append((int(memory), int(cores)))
    texts = [_container(each, cards) for each in pod.spec.containers if _asks(each)]
    return ";".join(texts) if all(texts) else ""


def _decoded(text: str) -> list[list[str]]:
    return [each.split(",") for of_one in text.split(";") for each in of_one.split(":") if "," in each]


def _asks(container: Container) -> bool:
    return any(each in container.resources.limits for each in (VNUMBER, VMEMORY))


def _container(container: Container, cards: list[_Card]) -> str:
    """Without a policy Volcano tries the last GPU first."""
    limits = container.resources.limits
    count, cores, text = _value(limits.get(VNUMBER, 1)), _value(limits.get(VCORES, 0)), ""
    for card in reversed(cards):
        memory = _value(limits.get(VMEMORY, 0)) or card.memory
        if count and card.takes(memory, cores):
            card.held.append((memory, cores))
            text += f"{card.uuid},NVIDIA,{memory},{cores}:"
            count -= 1
    return "" if count else text
