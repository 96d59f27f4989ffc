"""What users, nodes and neighbours of the network do who mean harm, within what a cluster lets them do."""

import asyncio
import contextlib
import json
import random
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from purser.core.names import (
    GRANT_ANNOTATION,
    GRANT_SIGNATURE_ANNOTATION,
    INIT_RESOURCES_ANNOTATION,
    INVENTORY_ANNOTATION,
    KUBELET_ANNOTATION,
    MIG_RESULT_ANNOTATION,
    NODE_FACTS_ANNOTATION,
)
from purser.kube.errors import AlreadyExistsError, KubeError
from purser.kube.resources import NODES, PODS
from purser.lab.cluster import Lab
from tests.scenarios.actions import RAW_PODS, pods
from tests.scenarios.cluster import Cluster
from tests.scenarios.pods import GPU, Raw, pod, share, whole

DEEP = '{"x":' + "[" * 20_000 + "]" * 20_000 + "}"
IGNORED = {"purser.dev/webhook": "ignore"}
NODE = "hostile-node"
MAX_PODS = 12
_NODE_ANNOTATIONS = (
    INVENTORY_ANNOTATION,
    KUBELET_ANNOTATION,
    NODE_FACTS_ANNOTATION,
    MIG_RESULT_ANNOTATION,
    "hami.io/node-nvidia-register",
)


class Attacker:
    """Draws one act after the other; what the cluster refuses is counted, and what it lets in is there for a while."""

    def __init__(self, lab: Lab, cluster: Cluster, honest_namespace: str, dice: random.Random) -> None:
        self._lab = lab
        self._cluster = cluster
        self._honest_namespace = honest_namespace
        self._dice = dice
        self._number = 0
        self.acts: dict[str, int] = {}
        self.refused: dict[str, int] = {}

    async def run(self, every_s: float) -> None:
        """Attack until cancelled."""
        acts: tuple[Callable[[], Awaitable[Any]], ...] = (
            self.defaced_pod,
            self.pod_with_foreign_grant,
            self.gpu_pod_past_the_scheduler,
            self.gpu_pod_then_defaced,
            self.widened_share,
            self.many_containers,
            self.false_mirror_pod,
            self.hostile_node,
            self.broken_webhook_requests,
            self.silent_connections,
            self.force_deleted,
        )
        while True:
            act = self._dice.choice(acts)
            name = act.__name__
            self.acts[name] = self.acts.get(name, 0) + 1
            try:
                await act()
            except (KubeError, aiohttp.ClientError, OSError, TimeoutError):
                self.refused[name] = self.refused.get(name, 0) + 1
            await self._make_room()
            await asyncio.sleep(self._dice.expovariate(1 / every_s))

    async def defaced_pod(self) -> None:
        """A pod without GPUs, on a node with GPUs, with a grant that no decoder should fall over."""
        await self._create(None, labels=IGNORED, annotations=self._bad_grant(), node=self._node())

    async def pod_with_foreign_grant(self) -> None:
        """The grant of an honest pod, word for word."""
        stolen = await self._honest_grant()
        await self._create(whole(), labels=IGNORED, annotations=stolen, node=self._node())

    async def gpu_pod_past_the_scheduler(self) -> None:
        """A GPU pod that names its node, so that kubelet admits it without any grant."""
        await self._create(share(1000, 1), labels=IGNORED, node=self._node())

    async def gpu_pod_then_defaced(self) -> None:
        """A GPU pod by the rules, whose own grant is then taken off or made something else, through pods/status."""
        name = await self._create(share(1000, 1), spec={"nodeSelector": {}, "schedulerName": "purser-scheduler"})
        await asyncio.sleep(self._dice.uniform(0, 2))
        bad = self._dice.choice([dict.fromkeys((GRANT_ANNOTATION, GRANT_SIGNATURE_ANNOTATION)), self._bad_grant()])
        body = {"metadata": {"annotations": bad}}
        await self._cluster.client.patch_merge(PODS, name, body, self._cluster.namespace, subresource="status")

    async def widened_share(self) -> None:
        """A share whose environment asks for all cards."""
        env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, {"name": "CUDA_DEVICE_MEMORY_LIMIT_0", "value": "0"}]
        await self._create(share(1000, 1), env=env, spec={"nodeSelector": {}, "schedulerName": "purser-scheduler"})

    async def many_containers(self) -> None:
        """A pod of thousands of containers."""
        one = {"image": "busybox", "resources": {"limits": {GPU: "1"}}}
        containers = [{"name": f"c{number}", **one} for number in range(5_000)]
        await self._create(None, spec={"nodeSelector": {}, "containers": containers})

    async def false_mirror_pod(self) -> None:
        """A pod that says it is kubelet's own."""
        await self._create(whole(), annotations={"kubernetes.io/config.mirror": "x"}, node=self._node())

    async def hostile_node(self) -> None:
        """A node that says of itself, and of others' cards, what no decoder and no book should fall over."""
        with contextlib.suppress(AlreadyExistsError):
            taint = {"key": "hostile", "effect": "NoSchedule"}
            await self._cluster.client.create(NODES, {"metadata": {"name": NODE}, "spec": {"taints": [taint]}})
        body = {"metadata": {"annotations": {name: await self._bad_node_text() for name in _NODE_ANNOTATIONS}}}
        await self._cluster.client.patch_merge(NODES, NODE, body)

    async def broken_webhook_requests(self) -> None:
        """Anything but an AdmissionReview, at every path of every port that Purser's scheduler has."""
        bodies = (b"", b"{", DEEP.encode(), b'{"request":{"object":1e400}}', b"\xff" * 1000, b"[" * 100_000)
        timeout = aiohttp.ClientTimeout(total=5)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=_blind()), timeout=timeout) as session:
            for path in ("mutate", "validate", "filter", "bind"):
                for port in self._lab.scheduler_ports:
                    url = f"https://127.0.0.1:{port}/{path}"
                    async with session.post(url, data=self._dice.choice(bodies)) as answer:
                        assert answer.status != 500, f"{url} answered 500"

    async def silent_connections(self) -> None:
        """Connections that say nothing, for a while."""
        async with asyncio.timeout(10), contextlib.AsyncExitStack() as stack:
            for _ in range(30):
                for port in self._lab.scheduler_ports:
                    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=_blind())
                    stack.callback(writer.close)
            await asyncio.sleep(3)

    async def force_deleted(self) -> None:
        """A GPU pod that is gone before kubelet admits it."""
        name = await self._create(share(500, 1), spec={"nodeSelector": {}, "schedulerName": "purser-scheduler"})
        await asyncio.sleep(self._dice.uniform(0, 0.4))
        await self._cluster.client.delete(PODS, name, self._cluster.namespace, grace_period_seconds=0)

    async def _create(
        self,
        limits: dict[str, str] | None,
        *,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        node: str = "",
        env: list[Raw] | None = None,
        spec: Raw | None = None,
    ) -> str:
        self._number += 1
        fields = {"env": env} if env else {}
        where = {"nodeName": node, "nodeSelector": {}} if node else {}
        body = pod(
            self._cluster, f"hostile-{self._number}", limits, annotations=annotations, container_fields=fields,
            **{**where, **(spec or {})},
        )  # fmt: skip
        body["metadata"]["labels"] = labels or {}
        await self._cluster.client.create(RAW_PODS, body, self._cluster.namespace)
        return str(body["metadata"]["name"])

    async def _make_room(self) -> None:
        """Hostile pods are a few among many honest ones: the oldest go."""
        with contextlib.suppress(KubeError):
            there = sorted(await pods(self._cluster), key=lambda one: int(one["metadata"]["name"].rpartition("-")[2]))
            for one in there[:-MAX_PODS] if len(there) > MAX_PODS else []:
                name = one["metadata"]["name"]
                await self._cluster.client.delete(PODS, name, self._cluster.namespace, grace_period_seconds=0)

    def _node(self) -> str:
        return self._dice.choice(list(self._lab.nodes))

    def _bad_grant(self) -> dict[str, str]:
        texts = (DEEP, "{", "null", '{"pod_uid":1e400}', "\ud7ff" * 100, "[]" * 5_000, json.dumps({"pod_uid": "x"}))
        signatures = ("é", "", "====", "A" * 10_000, "AAAA")
        return {
            GRANT_ANNOTATION: self._dice.choice(texts),
            GRANT_SIGNATURE_ANNOTATION: self._dice.choice(signatures),
            INIT_RESOURCES_ANNOTATION: self._dice.choice(texts),
            "hami.io/vgpu-devices-allocated": self._dice.choice(texts),
        }

    async def _honest_grant(self) -> dict[str, str]:
        found = (await self._cluster.client.list(RAW_PODS, self._honest_namespace)).items
        granted = [one["metadata"]["annotations"] for one in found if GRANT_ANNOTATION in _annotations(one)]
        return self._dice.choice(granted) if granted else self._bad_grant()

    async def _bad_node_text(self) -> str:
        nodes = (await self._cluster.client.list(NODES)).items
        stolen = [text for node in nodes for text in node.metadata.annotations.values()]
        short_deep = '{"x":' + "[" * 7_000 + "]" * 7_000 + "}"
        own = (short_deep, "{", "1e400", '{"node":"hostile-node","devices":[{"uuid":"x","memory_mib":-1}]}', "\ud7ff")
        return self._dice.choice([*own, *stolen])[:20_000]


def _annotations(one: Raw) -> Raw:
    return one["metadata"].get("annotations") or {}


def _blind() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
