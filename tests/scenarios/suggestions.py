"""What `purser why` suggests for pods that wait, done with the API: each pod is then bound, where it said.

Nodes and pods are drawn at random and changed again and again. Nothing of what is done here asks Purser what it means:
a pod is created as its author would write it instead, pods are deleted, nodes and quotas patched.
"""

import asyncio
import copy
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from purser.adapters.nodes import inventory_of
from purser.adapters.objects import ClusterObjects, read_objects
from purser.core.dialects import selectors
from purser.core.kubernetes.quantities import quantity_ceil
from purser.core.names import CORDONED_GPUS_ANNOTATION, ENFORCEMENT_ANNOTATION, GPU_POLICY_ANNOTATION
from purser.core.node.amounts import AMOUNTS
from purser.kube.errors import NotFoundError
from purser.kube.resource_quotas import RESOURCE_QUOTAS
from purser.kube.resources import NODES, PODS
from purser.scheduler.explaining import ChangeKind, Explainer, Explanation, Suggestion
from tests.scenarios.actions import create, eventually, gone, pod_named, pods
from tests.scenarios.cluster import Cluster
from tests.unit.scheduler.explaining.applied import change_pod
from tests.unit.scheduler.explaining.listed import ANY, amounts_listed

Raw = dict[str, Any]
APP = {"app": "a"}
TAINTS = [{"key": key, "value": "", "effect": "NoSchedule"} for key in ("red", "blue")]
OBSTACLES = (
    *("gpu memory", "gpu memory", "gpus", "gpus", "cores", "cpu", "memory", "container", "init container"),
    *("selector", "affinity", "other pods", "spread", "annotation"),
)
ANNOTATIONS = (
    {selectors.USE_GPUTYPE: "H100"},
    {selectors.NOUSE_GPUTYPE: "T4"},
    {selectors.USE_GPUUUID: "GPU-none"},
    {GPU_POLICY_ANNOTATION: "mutex"},
    {selectors.NUMA_BIND: "true"},
    {ENFORCEMENT_ANNOTATION: "required"},
)
PER_STATE = 16
"""Pods that wait before nodes and other pods are drawn anew."""

_MOST_PER_STATE = 32
"""Pods that are tried meanwhile: there may be room for many."""

_OF_CLUSTER = frozenset((ChangeKind.QUOTA, ChangeKind.UNCORDON_GPU, ChangeKind.UNCORDON_NODE, ChangeKind.END))


class Suggested:
    """Draws states of a cluster and pods that wait there, and does what is suggested for them."""

    def __init__(self, cluster: Cluster, chance: random.Random, *, all_filters: bool) -> None:
        """``all_filters``: whether kube-scheduler has those that look at other pods; the lab's stand-in has not."""
        self._cluster, self._chance, self._all_filters = cluster, chance, all_filters
        self._client, self._namespace = cluster.client, cluster.namespace
        self._number = 0
        self._nodes: tuple[str, ...] = ()
        self.done: Counter[str] = Counter()
        """Suggestions by kind; ``waiting``: pods that waited, ``nothing``: of these for which there was none."""

    async def play(self, waiting: int) -> None:
        """Until so many pods have waited."""
        found = (await self._client.list(NODES)).items
        self._nodes = tuple(sorted(each.metadata.name for each in found))
        while self.done["waiting"] < waiting:
            async with self._state():
                until = min(self.done["waiting"] + PER_STATE, waiting)
                for _ in range(_MOST_PER_STATE):
                    if self.done["waiting"] < until:
                        await self._one()

    @asynccontextmanager
    async def _state(self) -> AsyncIterator[None]:
        """Other pods, and what people have done to nodes and the namespace."""
        holders = [self._body(f"held-{self._next()}", self._holder()) for _ in range(self._chance.choice((6, 10, 14)))]
        for each in holders:
            each["metadata"]["labels"] = self._chance.choice(({}, APP))
        await create(self._cluster, *holders)
        names = {each["metadata"]["name"] for each in holders}
        await eventually(self._cluster, "the first pods are placed", lambda: self._settled(names))
        # Those that wait would take the room that is made for another pod.
        await self._delete(*(each["metadata"]["name"] for each in await pods(self._cluster) if _is_refused(each)))
        await asyncio.gather(*(self._change_node(name) for name in self._nodes))
        quota = self._chance.random() < 0.25
        if quota:
            hard = {"limits.nvidia.com/gpumem": str(self._chance.choice((30000, 60000, 120000)))}
            hard["limits.nvidia.com/gpucores"] = str(self._chance.choice((100, 400)))
            body = {"metadata": {"name": "q", "namespace": self._namespace}, "spec": {"hard": hard}}
            await self._client.create(RESOURCE_QUOTAS, body)
        try:
            yield
        finally:
            await asyncio.gather(*(self._restore_node(name) for name in self._nodes))
            if quota:
                await self._client.delete(RESOURCE_QUOTAS, "q", self._namespace)
            await self._delete(*(each["metadata"]["name"] for each in await pods(self._cluster)))

    async def _settled(self, names: set[str]) -> bool:
        found = [each for each in await pods(self._cluster) if each["metadata"]["name"] in names]
        return all(each["spec"].get("nodeName") or _is_refused(each) for each in found)

    def _holder(self) -> Raw:
        memory = self._chance.choice((4000, 7000, 9000, 14000))
        if self._chance.random() < 0.2:
            return {"nvidia.com/gpu": "1"}
        return {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory), "nvidia.com/gpucores": "20", "cpu": "8"}

    async def _change_node(self, name: str) -> None:
        chance = self._chance
        labels = {"zone": chance.choice(("z1", "z2")), "rack": chance.choice(("r1", "r2"))}
        annotations, spec = {}, {}
        if chance.random() < 0.25:
            spec["taints"] = chance.sample(TAINTS, chance.choice((1, 2)))
        elif chance.random() < 0.15:
            spec["unschedulable"] = True
        if chance.random() < 0.25:
            inventory = inventory_of(await self._client.get(NODES, name))
            uuids = [] if inventory is None else [each.uuid for each in inventory.devices]
            annotations[CORDONED_GPUS_ANNOTATION] = (
                ",".join(chance.sample(uuids, chance.randint(0, len(uuids)))) or None
            )
        await self._client.patch_merge(
            NODES, name, {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}
        )

    async def _restore_node(self, name: str) -> None:
        annotations = {CORDONED_GPUS_ANNOTATION: None}
        await self._client.patch_merge(
            NODES, name, {"metadata": {"annotations": annotations}, "spec": {"taints": None, "unschedulable": None}}
        )

    # --- one pod

    async def _one(self) -> None:
        body = self._drawn(f"p-{self._next()}")
        name = body["metadata"]["name"]
        if await self._is_bound_or_refused(body):
            self.done["placed at once"] += 1
            await self._delete(name)
            return
        found = await self._explained(name)
        if found.fits:
            # what it was refused for has gone meanwhile
            await eventually(self._cluster, f"{name} is bound, as it fits {found.fits}", lambda: self._node_of(name))
            self.done["placed later"] += 1
        elif found.objection:
            self.done["objections"] += 1
        else:
            self.done["waiting"] += 1
            self.done["nothing"] += not found.suggestions
            for each in found.suggestions:
                await self._follow(body, each)
                self.done[each.kind] += 1
        await self._delete(name)

    async def _is_bound_or_refused(self, body: Raw) -> str:
        """The node it is bound to; empty where kube-scheduler found none."""
        await create(self._cluster, body)
        name = body["metadata"]["name"]

        async def probe() -> tuple[str] | None:
            pod = await pod_named(self._cluster, name)
            node = str(pod["spec"].get("nodeName") or "")
            return (node,) if node or _is_refused(pod) else None

        return (await eventually(self._cluster, f"{name} was tried", probe))[0]

    async def _explained(self, name: str) -> Explanation:
        objects = await eventually(self._cluster, "agents have seen everything", self._at_rest)
        return Explainer(objects).explain(self._namespace, name)

    async def _at_rest(self) -> ClusterObjects:
        """What there is, once agents list what nodes have left: else room comes or goes after it was read."""
        found = await read_objects(self._client)
        for node in found.nodes:
            allocatable = node.status.allocatable
            listed = {word: quantity_ceil(allocatable.get(word, "0")) for word in AMOUNTS}
            wanted = {word: int(amount) for word, amount in amounts_listed(node, found.pods).items()}
            if ANY in allocatable:
                assert listed == wanted, f"{node.metadata.name} lists {listed}, and not {wanted}"
        return found

    async def _follow(self, body: Raw, suggestion: Suggestion) -> None:
        """Do what a suggestion says, see that the pod is bound where it says, and undo it. Raises AssertionError."""
        try:
            if suggestion.kind in _OF_CLUSTER:
                await self._follow_on_cluster(body, suggestion)
            else:
                await self._follow_on_pod(body, suggestion)
        except AssertionError as error:
            error.add_note(f"{suggestion}\nfor {body}")
            raise

    async def _follow_on_pod(self, body: Raw, suggestion: Suggestion) -> None:
        changed = copy.deepcopy(body)
        changed["metadata"]["name"] = name = f"{body['metadata']['name']}-{self._next()}"
        change_pod(changed, suggestion.kind, suggestion.change)
        await create(self._cluster, changed)
        await self._bound_there(name, suggestion)
        await self._delete(name)

    async def _follow_on_cluster(self, body: Raw, suggestion: Suggestion) -> None:
        """The pod waits meanwhile."""
        name, change = body["metadata"]["name"], suggestion.change
        ended = [await pod_named(self._cluster, each.split("/")[1]) for each in change.pods]
        await self._delete(*(each["metadata"]["name"] for each in ended))
        quotas = {name: await self._hard(name) for name in change.quotas}
        for quota, hard in change.quotas.items():
            await self._patch_quota(quota, hard)
        before = await self._client.get(NODES.raw(), change.node) if change.node else {}
        if change.node:
            left = _cordoned(before) - set(change.gpus)
            annotations = {CORDONED_GPUS_ANNOTATION: ",".join(sorted(left)) or None} if change.gpus else {}
            spec = {} if change.gpus else {"unschedulable": None}
            await self._client.patch_merge(NODES, change.node, {"metadata": {"annotations": annotations}, "spec": spec})
        await self._bound_there(name, suggestion)
        for pod in ended:
            again = _written(pod)
            if f"{self._namespace}/{pod['metadata']['name']}" in change.moves:
                await create(self._cluster, again)
                again_name = again["metadata"]["name"]
                await eventually(self._cluster, f"{again_name} moves", lambda n=again_name: self._node_of(n))
                self.done["moves"] += 1
        if suggestion.kind is ChangeKind.END:
            return  # it is the last one
        await self._delete(name)
        for quota, hard in quotas.items():
            await self._patch_quota(quota, hard)
        if change.node:
            annotations = {CORDONED_GPUS_ANNOTATION: ",".join(sorted(_cordoned(before))) or None}
            spec = {"unschedulable": before["spec"].get("unschedulable")}
            await self._client.patch_merge(NODES, change.node, {"metadata": {"annotations": annotations}, "spec": spec})
        await self._is_bound_or_refused(body)

    async def _patch_quota(self, name: str, hard: dict[str, str]) -> None:
        await self._client.patch_merge(RESOURCE_QUOTAS, name, {"spec": {"hard": hard}}, self._namespace)

    async def _hard(self, name: str) -> dict[str, str]:
        found = await self._client.get(RESOURCE_QUOTAS, name, self._namespace)
        return {word: str(amount) for word, amount in found.spec.hard.items()}

    async def _bound_there(self, name: str, suggestion: Suggestion) -> None:
        node = await eventually(self._cluster, f"{name} is bound", lambda: self._node_of(name))
        assert suggestion.fits > len(suggestion.examples) or node in suggestion.examples, node

    async def _node_of(self, name: str) -> str:
        return str((await pod_named(self._cluster, name))["spec"].get("nodeName") or "")

    async def _delete(self, *names: str) -> None:
        await asyncio.gather(*map(self._end, names))
        await gone(self._cluster, *names)

    async def _end(self, name: str) -> None:
        with suppress(NotFoundError):
            await self._client.delete(PODS, name, self._namespace, grace_period_seconds=0)

    # --- what is drawn

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _body(self, name: str, limits: Raw, **spec: Any) -> Raw:
        container = {
            "name": "c",
            "image": self._cluster.image,
            "resources": {"limits": limits, "requests": dict(limits)},
        }
        container["command"] = ["sh", "-c", "sleep 36000"]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": self._namespace},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [container], **spec},
        }

    def _drawn(self, name: str) -> Raw:
        """A pod with one to three obstacles in its way."""
        some = self._chance.choice
        obstacles = frozenset(self._chance.sample(OBSTACLES, some((1, 1, 2, 3))))
        limits = self._limits(obstacles)
        limits["cpu"] = some(("60", "90")) if "cpu" in obstacles else "1"
        limits["memory"] = "900Gi" if "memory" in obstacles else "1Gi"
        body = self._body(name, limits)
        spec, meta = body["spec"], body["metadata"]
        if "container" in obstacles:
            spec["containers"].append({**copy.deepcopy(spec["containers"][0]), "name": "d"})
        if "init container" in obstacles:
            spec["initContainers"] = [{**copy.deepcopy(spec["containers"][0]), "name": "i", "command": ["true"]}]
        if "selector" in obstacles:
            spec["nodeSelector"] = some(({"zone": "z1"}, {"zone": "z1", "rack": "r3"}, {"zone": "z3", "rack": "r3"}))
        if "affinity" in obstacles:
            expression = {"key": "zone", "operator": "In", "values": [some(("z1", "z3"))]}
            terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
            spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        if "other pods" in obstacles and self._all_filters:
            term = {"labelSelector": {"matchLabels": APP}, "topologyKey": some(("zone", "rack"))}
            kind = some(("podAffinity", "podAntiAffinity", "podAntiAffinity"))
            spec["affinity"] = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        if "spread" in obstacles and self._all_filters:
            meta["labels"] = APP
            constraint = {"maxSkew": 1, "topologyKey": some(("zone", "rack")), "whenUnsatisfiable": "DoNotSchedule"}
            spec["topologySpreadConstraints"] = [{**constraint, "labelSelector": {"matchLabels": APP}}]
        if "annotation" in obstacles:
            meta["annotations"] = dict(some(ANNOTATIONS))
        if self._chance.random() < 0.2:
            spec["tolerations"] = [{"operator": "Exists", "key": "red"}]
        return body

    def _limits(self, obstacles: frozenset[str]) -> Raw:
        some = self._chance.choice
        count = some(("2", "4", "5")) if "gpus" in obstacles else "1"
        memory = some(("12000", "15000", "30000")) if "gpu memory" in obstacles else "3000"
        cores = {"nvidia.com/gpucores": some(("30", "90", "100"))} if "cores" in obstacles else {}
        share = {"nvidia.com/gpu": count, "nvidia.com/gpumem": memory, **cores}
        percent = {"nvidia.com/gpu": count, "nvidia.com/gpumem-percentage": "20" if memory == "3000" else "90", **cores}
        volcano = {"volcano.sh/vgpu-number": count, "volcano.sh/vgpu-memory": memory}
        return dict(some((share, share, share, percent, {"nvidia.com/gpu": count, **cores}, volcano)))


def _is_refused(pod: Raw) -> bool:
    """Whether kube-scheduler tried it and found no node."""
    conditions = pod["status"].get("conditions") or ()
    return any(each["type"] == "PodScheduled" and each.get("reason") == "Unschedulable" for each in conditions)


def _cordoned(node: Raw) -> set[str]:
    return set(filter(None, (node["metadata"].get("annotations") or {}).get(CORDONED_GPUS_ANNOTATION, "").split(",")))


def _written(pod: Raw) -> Raw:
    """A pod as its author wrote it, to be created again."""
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    meta = {key: pod["metadata"][key] for key in ("namespace", "labels") if key in pod["metadata"]}
    meta["name"] = f"{pod['metadata']['name']}-again"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
