"""Preemption by priority: whom to evict so that a pod fits (kube-scheduler's DefaultPreemption, without budgets)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from purser.lab.controllers.scheduling.filters import PodView, check
from purser.lab.controllers.scheduling.nodes import NodeInfo
from purser.lab.controllers.scheduling.requests import Raw


@dataclass(frozen=True)
class Candidate:
    """A node, and the pods that would have to go."""

    node: str
    victims: tuple[Raw, ...]


def priority_of(pod: Raw) -> int:
    """The pod's priority, 0 by default."""
    return int(pod["spec"].get("priority") or 0)


def may_preempt(pod: Raw) -> bool:
    """Whether the pod may evict others at all."""
    return str(pod["spec"].get("preemptionPolicy")) != "Never"


def candidates(view: PodView, nodes: Iterable[NodeInfo]) -> dict[str, Candidate]:
    """Nodes on which the pod passes every filter once some pods of lower priority are gone."""
    found = ((node.name, _victims(view, node)) for node in nodes)
    return {name: Candidate(name, victims) for name, victims in found if victims}


def best(found: Mapping[str, Candidate]) -> Candidate | None:
    """The candidate with the least important victims, then the fewest, then by name."""

    def cost(candidate: Candidate) -> tuple[int, int, int, str]:
        priorities = [priority_of(pod) for pod in candidate.victims]
        return max(priorities, default=0), sum(priorities), len(priorities), candidate.node

    return min(found.values(), key=cost, default=None)


def _victims(view: PodView, node: NodeInfo) -> tuple[Raw, ...]:
    """Take away every pod of lower priority, then spare as many as possible, the most important first."""
    own = priority_of(view.pod)
    lower = [pod for pod in node.pods.values() if priority_of(pod) < own]
    gone = {pod["metadata"]["uid"] for pod in lower}
    if not lower or check(view, node.without(gone)) is not None:
        return ()
    for pod in sorted(lower, key=_importance, reverse=True):
        spared = gone - {pod["metadata"]["uid"]}
        if check(view, node.without(spared)) is None:
            gone = spared
    return tuple(pod for pod in lower if pod["metadata"]["uid"] in gone)


def _importance(pod: Raw) -> tuple[int, str]:
    return priority_of(pod), str(pod["metadata"]["uid"])
