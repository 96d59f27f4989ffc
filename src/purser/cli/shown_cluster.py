"""What `purser get` shows, wherever it was read: nodes with what is taken of their GPUs, and what pods hold."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from purser.core.fleet import Fleet, NodeState
from purser.core.model import Grant
from purser.core.node.listing import with_listing
from purser.kube.nodes import readiness
from purser.kube.objects import Node

_CORDONED = "SchedulingDisabled"


@dataclass(frozen=True)
class ShownCluster:
    """Nodes and grants, as plain data."""

    nodes: Mapping[str, NodeState]
    """Those with GPUs, by name."""
    grants: tuple[Grant, ...]
    """By namespace, pod and uid."""
    states: Mapping[str, str]
    """How far grants are, by the pod's uid."""
    status: Mapping[str, str]
    """Of nodes, as `kubectl get nodes` has it; a node whose Node is not known is not in it."""

    def is_cordoned(self, node: str) -> bool:
        """Whether the node as a whole takes no new pods."""
        return _CORDONED in self.status.get(node, "")

    @property
    def known_nodes(self) -> frozenset[str]:
        """Nodes with GPUs, and those where pods hold some."""
        return frozenset((*self.nodes, *(grant.node for grant in self.grants)))


def shown_of_fleet(fleet: Fleet, nodes: Mapping[str, Node]) -> ShownCluster:
    """What was read of the API server. ``nodes``: those that were listed, by name."""
    grants = tuple(sorted(fleet.ledger.grants(), key=_place))
    return ShownCluster(
        nodes={node.name: _with_listing(node, nodes) for node in fleet},
        grants=grants,
        states={grant.pod_uid: str(fleet.ledger.state(grant.pod_uid)) for grant in grants},
        status={name: node_status(node) for name, node in nodes.items()},
    )


def _with_listing(state: NodeState, nodes: Mapping[str, Node]) -> NodeState:
    node = nodes.get(state.name)
    if node is None:
        return state
    devices = tuple(with_listing(each, node.status.allocatable) for each in state.devices)
    return msgspec.structs.replace(state, devices=devices)


def node_status(node: Node) -> str:
    """``Ready,SchedulingDisabled`` and the like, as kubectl's STATUS."""
    return status_words(readiness(node), is_cordoned=node.spec.unschedulable)


def status_words(ready: str, *, is_cordoned: bool) -> str:
    """The same of its parts. ``ready``: empty where it is not known."""
    return ",".join(filter(None, (ready, _CORDONED if is_cordoned else "")))


def _place(grant: Grant) -> tuple[str, str, str]:
    return grant.namespace, grant.pod, grant.pod_uid
