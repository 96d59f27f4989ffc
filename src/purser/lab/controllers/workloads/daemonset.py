"""The DaemonSet controller: one pod on every node that its template fits."""

from typing import Any

from purser.kube.client import Client
from purser.kube.events import EventRecorder
from purser.kube.informer import Informer
from purser.kube.resources import DAEMON_SETS, Raw
from purser.lab.controllers.scheduling.filters import PodView, check
from purser.lab.controllers.scheduling.nodes import NodeInfo
from purser.lab.controllers.workloads.deployment import template_hash
from purser.lab.controllers.workloads.loop import run_controller, write_status
from purser.lab.controllers.workloads.owned import OwnedPods, is_active, is_ready, owner_keys, phase

HASH_LABEL = "controller-revision-hash"
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

    async def reconcile(daemon_set: Raw) -> None:
        revision = template_hash(daemon_set["spec"]["template"])
        wanted = [node["metadata"]["name"] for node in nodes.store.values() if _belongs(daemon_set, node)]
        by_node: dict[str, Raw] = {}
        for pod in owned.of(daemon_set):
            node = _target(pod)
            is_current = (pod["metadata"].get("labels") or {}).get(HASH_LABEL) == revision
            if not is_active(pod):
                if phase(pod) == "Failed" and not pod["metadata"].get("deletionTimestamp"):
                    await owned.delete(pod)
                continue
            if node not in wanted or node in by_node or not is_current:
                await owned.delete(pod)
            else:
                by_node[node] = pod
        for node in wanted:
            if node not in by_node:
                await owned.create(
                    DAEMON_SETS, daemon_set, labels={HASH_LABEL: revision}, spec=_pinned(daemon_set, node)
                )
        await write_status(client, DAEMON_SETS, daemon_set, _status(wanted, by_node))

    await run_controller(
        daemon_sets,
        reconcile,
        (pods, lambda pod: owner_keys(pod, "DaemonSet")),
        (nodes, lambda _node: tuple(daemon_sets.store)),
    )


def _belongs(daemon_set: Raw, node: Raw) -> bool:
    """Whether the template may run there; resources are the scheduler's business."""
    template = daemon_set["spec"]["template"]["spec"]
    spec = {**template, "tolerations": [*(template.get("tolerations") or ()), *_TOLERATIONS]}
    view = PodView({"spec": spec}, {})
    return check(view, NodeInfo(node["metadata"]["name"], node)) is None


def _pinned(daemon_set: Raw, node: str) -> dict[str, Any]:
    """As the real controller does it: the scheduler binds the pod, a node affinity leaves it one choice."""
    spec = daemon_set["spec"]["template"]["spec"]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = {
        **(spec.get("affinity") or {}),
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}},
    }
    return {"affinity": affinity, "tolerations": [*(spec.get("tolerations") or ()), *_TOLERATIONS]}


def _target(pod: Raw) -> str:
    if name := pod["spec"].get("nodeName"):
        return str(name)
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return str(required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])


def _status(wanted: list[str], by_node: dict[str, Raw]) -> dict[str, int]:
    ready = sum(map(is_ready, by_node.values()))
    return {
        "desiredNumberScheduled": len(wanted),
        "currentNumberScheduled": len(by_node),
        "updatedNumberScheduled": len(by_node),
        "numberMisscheduled": 0,
        "numberReady": ready,
        "numberAvailable": ready,
        "numberUnavailable": len(wanted) - ready,
    }
