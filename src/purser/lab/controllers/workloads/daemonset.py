"""The DaemonSet controller: one pod on every node that its template fits, replaced as its update strategy says."""

import asyncio
from collections.abc import Iterable
from typing import Any

from purser.kube.client import Client
from purser.kube.events import EventRecorder
from purser.kube.informer import Informer
from purser.kube.resources import DAEMON_SETS, Raw, key_of
from purser.lab.controllers.scheduling.filters import PodInfo, check
from purser.lab.controllers.scheduling.nodes import NodeInfo
from purser.lab.controllers.workloads.daemonplan import HASH_LABEL, NodeFit, plan
from purser.lab.controllers.workloads.deployment import template_hash
from purser.lab.controllers.workloads.loop import run_controller, write_status
from purser.lab.controllers.workloads.owned import OwnedPods, owner_keys

_MAX_PARALLEL_WRITES = 16
"""Pods that the controller creates or deletes at the same time."""

_TOLERATIONS = [
    {"key": key, "operator": "Exists", "effect": effect}
    for key, effect in (
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        ("node.kubernetes.io/memory-pressure", "NoSchedule"),
        ("node.kubernetes.io/pid-pressure", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
    )
]


async def run(
    client: Client, daemon_sets: Informer[Raw], pods: Informer[Raw], nodes: Informer[Raw], recorder: EventRecorder
) -> None:
    """Until cancelled."""
    owned = OwnedPods(client, pods, recorder)
    places = _Places(daemon_sets, nodes)
    slots = asyncio.Semaphore(_MAX_PARALLEL_WRITES)

    async def delete(pod: Raw) -> None:
        async with slots:
            await owned.delete(pod)

    async def create(daemon_set: Raw, node: str, revision: str) -> None:
        async with slots:
            await owned.create(
                DAEMON_SETS, daemon_set, labels={HASH_LABEL: revision}, spec=_pin_to_node(daemon_set, node)
            )

    async def reconcile(daemon_set: Raw) -> None:
        revision = template_hash(daemon_set["spec"]["template"])
        there = [pod for pod in owned.of(daemon_set) if not pod["metadata"].get("deletionTimestamp")]
        made = plan(daemon_set, revision, places.of(daemon_set), there, owned.going(daemon_set))
        writes = [*map(delete, made.deletions), *(create(daemon_set, node, revision) for node in made.creations)]
        failures = [each for each in await asyncio.gather(*writes, return_exceptions=True) if each is not None]
        await write_status(client, DAEMON_SETS, daemon_set, made.status)
        if failures:
            raise failures[0]

    await run_controller(
        daemon_sets, reconcile, (pods, lambda pod: owner_keys(pod, "DaemonSet")), (nodes, places.changed_by)
    )


class _Places:
    """The eligible nodes of each DaemonSet. Recomputed only where a node or a template changed."""

    def __init__(self, daemon_sets: Informer[Raw], nodes: Informer[Raw]) -> None:
        self._daemon_sets = daemon_sets
        self._nodes = nodes
        self._known: dict[str, tuple[tuple[str, int], dict[str, NodeFit]]] = {}
        """By key of the DaemonSet: uid and generation, and how the nodes fit."""

    def of(self, daemon_set: Raw) -> dict[str, NodeFit]:
        """By name of the node; nodes where it may not run are not in it."""
        metadata = daemon_set["metadata"]
        key, version = key_of(daemon_set), (metadata["uid"], metadata.get("generation", 1))
        known = self._known.get(key)
        if known is None or known[0] != version:
            fits = {node["metadata"]["name"]: _fit(daemon_set, node) for node in self._nodes.store.values()}
            known = self._known[key] = version, {name: fit for name, fit in fits.items() if fit is not NodeFit.NO}
        return known[1]

    def changed_by(self, node: Raw) -> Iterable[str]:
        """Keys of the DaemonSets that a node, which changed, concerns otherwise than before."""
        name = node["metadata"]["name"]
        is_there = name in self._nodes.store
        for key, daemon_set in self._daemon_sets.store.items():
            fits = self.of(daemon_set)
            before, now = fits.get(name, NodeFit.NO), _fit(daemon_set, node) if is_there else NodeFit.NO
            if now is NodeFit.NO:
                fits.pop(name, None)
            else:
                fits[name] = now
            if before is not now or not is_there:
                yield key


def _fit(daemon_set: Raw, node: Raw) -> NodeFit:
    """Whether the template may run there; resources are the scheduler's business."""
    template = daemon_set["spec"]["template"]["spec"]
    view = PodInfo({"spec": {**template, "tolerations": [*(template.get("tolerations") or ()), *_TOLERATIONS]}}, {})
    info = NodeInfo(node["metadata"]["name"], node)
    if check(view, info) is None:
        return NodeFit.RUNS
    spec = node.get("spec") or {}
    taints = [taint for taint in spec.get("taints") or () if taint.get("effect") == "NoExecute"]
    later = NodeInfo(info.name, {**node, "spec": {**spec, "taints": taints}})
    return NodeFit.STAYS if check(view, later) is None else NodeFit.NO


def _pin_to_node(daemon_set: Raw, node: str) -> dict[str, Any]:
    """As the real controller does it: the scheduler binds the pod, a node affinity leaves it one choice."""
    spec = daemon_set["spec"]["template"]["spec"]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = {
        **(spec.get("affinity") or {}),
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}},
    }
    return {"affinity": affinity, "tolerations": [*(spec.get("tolerations") or ()), *_TOLERATIONS]}
