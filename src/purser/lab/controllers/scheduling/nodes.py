"""The scheduler's cache: nodes, and what their pods take of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from purser.kube.pods import TERMINAL_PHASES
from purser.lab.controllers.scheduling.requests import Amounts, Raw, add, amounts, pod_requests, subtract


@dataclass(slots=True)
class NodeInfo:
    """One node, and the pods that are bound to it or about to be."""

    name: str
    node: Raw = field(default_factory=dict)
    allocatable: Amounts = field(default_factory=dict)
    used: Amounts = field(default_factory=dict)
    pods: dict[str, Raw] = field(default_factory=dict)
    """By uid."""

    @property
    def labels(self) -> dict[str, str]:
        """The node's labels."""
        return dict((self.node.get("metadata") or {}).get("labels") or {})

    @property
    def taints(self) -> list[dict[str, str]]:
        """The node's taints."""
        return list((self.node.get("spec") or {}).get("taints") or ())

    @property
    def is_unschedulable(self) -> bool:
        """Whether the node is cordoned."""
        return bool((self.node.get("spec") or {}).get("unschedulable"))

    def without(self, uids: set[str]) -> "NodeInfo":
        """The node as it would be without some of its pods."""
        kept = {uid: pod for uid, pod in self.pods.items() if uid not in uids}
        used = self.used
        for uid in self.pods.keys() - kept.keys():
            used = subtract(used, pod_requests(self.pods[uid]))
        return NodeInfo(self.name, self.node, self.allocatable, used, kept)

    def plus(self, pods: Iterable[Raw]) -> "NodeInfo":
        """The node as it would be with more pods."""
        there, used = dict(self.pods), self.used
        for pod in pods:
            there[pod["metadata"]["uid"]] = pod
            used = add(used, pod_requests(pod))
        return NodeInfo(self.name, self.node, self.allocatable, used, there)


class NodeCache:
    """Nodes by name. Handlers of informers call it; the loop reads it."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeInfo] = {}
        self._node_of: dict[str, str] = {}
        """By uid of the pod."""

    def set_node(self, node: Raw) -> None:
        """A node is there, or changed."""
        name = node["metadata"]["name"]
        info = self._nodes.setdefault(name, NodeInfo(name))
        info.node = node
        info.allocatable = amounts((node.get("status") or {}).get("allocatable"))

    def remove_node(self, node: Raw) -> None:
        """A node is gone; its pods stay in the ledger until they are gone too."""
        info = self._nodes.get(node["metadata"]["name"])
        if info is not None:
            info.node, info.allocatable = {}, {}

    def set_pod(self, pod: Raw) -> None:
        """A pod is there, or changed; one that ended takes nothing, one that is assumed stays where it is."""
        name = pod["spec"].get("nodeName")
        if not name and pod["metadata"]["uid"] in self._node_of:
            return
        self.remove_pod(pod)
        if name and (pod.get("status") or {}).get("phase") not in TERMINAL_PHASES:
            self._put(pod, name)

    def assume(self, pod: Raw, node: str) -> None:
        """Count a pod on a node before the API server says so."""
        self.remove_pod(pod)
        self._put(pod, node)

    def remove_pod(self, pod: Raw) -> None:
        """A pod is gone."""
        uid = pod["metadata"]["uid"]
        info = self._nodes.get(self._node_of.pop(uid, ""))
        if info is not None and (known := info.pods.pop(uid, None)) is not None:
            info.used = subtract(info.used, pod_requests(known))

    def get(self, name: str) -> NodeInfo | None:
        """A node that exists."""
        info = self._nodes.get(name)
        return info if info is not None and info.node else None

    def __iter__(self) -> Iterator[NodeInfo]:
        """Every node that exists, by name."""
        for name in sorted(self._nodes):
            if self._nodes[name].node:
                yield self._nodes[name]

    def _put(self, pod: Raw, name: str) -> None:
        uid = pod["metadata"]["uid"]
        info = self._nodes.setdefault(name, NodeInfo(name))
        info.pods[uid] = pod
        info.used = add(info.used, pod_requests(pod))
        self._node_of[uid] = name


def scheduling_key(node: Raw) -> tuple[Any, ...]:
    """What of a node can make a waiting pod fit; the rest of it changes with every heartbeat."""
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    conditions = [(c.get("type"), c.get("status")) for c in status.get("conditions") or ()]
    return (
        metadata.get("labels"),
        metadata.get("annotations"),
        spec.get("taints"),
        spec.get("unschedulable"),
        status.get("allocatable"),
        conditions,
    )
