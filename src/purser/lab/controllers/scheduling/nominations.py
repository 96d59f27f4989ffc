"""Pods that are nominated to nodes (kube-scheduler's nominator), and the filters with them."""

from purser.lab.controllers.scheduling.filters import NodeMismatch, PodInfo, check
from purser.lab.controllers.scheduling.nodes import NodeInfo
from purser.lab.controllers.scheduling.requests import Raw, priority_of


class PodNominator:
    """Waiting pods by the node that is nominated for them, by whomever."""

    def __init__(self) -> None:
        self._nodes: dict[str, str] = {}
        self._pods: dict[str, Raw] = {}

    def nominate(self, pod: Raw, node: str) -> None:
        """Take a nomination before the informer has it; empty: none any more."""
        uid = pod["metadata"]["uid"]
        if node:
            self._nodes[uid], self._pods[uid] = node, pod
        else:
            self.remove(pod)

    def update(self, old: Raw, pod: Raw) -> None:
        """A waiting pod changed. One that was and is not named by it stays: the API server does not know of it yet."""
        if nominated_node(old) or nominated_node(pod):
            self.nominate(pod, nominated_node(pod))

    def remove(self, pod: Raw) -> None:
        """The pod is bound, or gone."""
        uid = pod["metadata"]["uid"]
        self._nodes.pop(uid, None)
        self._pods.pop(uid, None)

    def node_of(self, pod: Raw) -> str:
        """Where a pod is nominated to; empty: nowhere."""
        return self._nodes.get(pod["metadata"]["uid"], "")

    def lower(self, node: str, priority: int) -> list[Raw]:
        """The pods of lower priority that are nominated to a node."""
        return [pod for pod in self._pods_on(node) if priority_of(pod) < priority]

    def check(self, view: PodInfo, node: NodeInfo) -> NodeMismatch | None:
        """The filters, with nominated pods of the same or of higher priority on the node, and without them."""
        own, uid = priority_of(view.pod), view.pod["metadata"]["uid"]
        before = [pod for pod in self._pods_on(node.name) if priority_of(pod) >= own and pod["metadata"]["uid"] != uid]
        unfit = check(view, node.plus(before)) if before else None
        return unfit or check(view, node)

    def _pods_on(self, node: str) -> list[Raw]:
        return [self._pods[uid] for uid, name in self._nodes.items() if name == node]


def nominated_node(pod: Raw) -> str:
    """What the pod itself says."""
    return (pod.get("status") or {}).get("nominatedNodeName") or ""
