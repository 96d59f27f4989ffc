"""Preemption by priority: whom to evict so that a pod fits (kube-scheduler's DefaultPreemption, without budgets)."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from purser.lab.controllers.scheduling.filters import NodeMismatch, fit_error
from purser.lab.controllers.scheduling.nodes import NodeInfo
from purser.lab.controllers.scheduling.requests import Raw, priority_of

NEVER_PREEMPTS = "not eligible due to preemptionPolicy=Never."
TERMINATING = "not eligible due to a terminating pod on the nominated node."
NO_CANDIDATE = "no candidate node for preemption"

_NOT_HELPFUL_MISMATCH = NodeMismatch(("Preemption is not helpful for scheduling",), False)
_NO_VICTIMS_MISMATCH = NodeMismatch(("No preemption victims found for incoming pod",), False)

Check = Callable[[NodeInfo], NodeMismatch | None]


@dataclass(frozen=True)
class PreemptionCandidate:
    """A node, and the pods that would have to go."""

    node: str
    victims: tuple[Raw, ...]


@dataclass
class DryRun:
    """What came of looking for victims on every node."""

    candidates: dict[str, PreemptionCandidate] = field(default_factory=dict)
    unfits: dict[str, NodeMismatch] = field(default_factory=dict)
    """Why others are none."""
    errors: list[str] = field(default_factory=list)
    """Nodes that fit without victims: an extender refused them, and it is not asked."""

    @property
    def message(self) -> str:
        """Why there is no candidate."""
        return ", ".join(self.errors) or fit_error(len(self.unfits), self.unfits.values())


def why_not_eligible(pod: Raw, nominated: NodeInfo | None) -> str:
    """Why the pod may not evict others (any more); empty where it may. ``nominated`` is the node that is nominated for
    it, if there is room to be made on it."""
    if str(pod["spec"].get("preemptionPolicy")) == "Never":
        return NEVER_PREEMPTS
    there = nominated.pods.values() if nominated is not None else ()
    own = priority_of(pod)
    return TERMINATING if any(priority_of(other) < own and _is_preempted(other) for other in there) else ""


def dry_run(pod: Raw, nodes: Iterable[NodeInfo], unfits: Mapping[str, NodeMismatch], check: Check) -> DryRun:
    """Look for victims on every node where the filters, or extenders, refused the pod for what others hold there."""
    found = DryRun()
    for node in nodes:
        if (unfit := unfits.get(node.name)) is None or not unfit.is_resolvable:
            found.unfits[node.name] = _NOT_HELPFUL_MISMATCH
        else:
            _on_node(pod, node, check, found)
    return found


def best(found: Mapping[str, PreemptionCandidate]) -> PreemptionCandidate | None:
    """The candidate with the least important victims, then the fewest, then by name."""

    def cost(candidate: PreemptionCandidate) -> tuple[int, int, int, str]:
        priorities = [priority_of(pod) for pod in candidate.victims]
        return max(priorities, default=0), sum(priorities), len(priorities), candidate.node

    return min(found.values(), key=cost, default=None)


def _on_node(pod: Raw, node: NodeInfo, check: Check, found: DryRun) -> None:
    """Take away every pod of lower priority, then spare as many as possible, the most important first."""
    own = priority_of(pod)
    lower = [other for other in node.pods.values() if priority_of(other) < own]
    gone = {other["metadata"]["uid"] for other in lower}
    if not lower:
        found.unfits[node.name] = _NO_VICTIMS_MISMATCH
        return
    if (unfit := check(node.without(gone))) is not None:
        found.unfits[node.name] = unfit
        return
    for other in sorted(lower, key=_importance, reverse=True):
        spared = gone - {other["metadata"]["uid"]}
        if check(node.without(spared)) is None:
            gone = spared
    if gone:
        victims = tuple(other for other in lower if other["metadata"]["uid"] in gone)
        found.candidates[node.name] = PreemptionCandidate(node.name, victims)
    else:
        found.errors.append(f'expected at least one victim pod on node "{node.name}"')


def _importance(pod: Raw) -> tuple[int, str]:
    return priority_of(pod), str(pod["metadata"]["uid"])


def _is_preempted(pod: Raw) -> bool:
    """Whether a pod is going because a scheduler asked it to."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    asked = any(c.get("type") == "DisruptionTarget" and c.get("reason") == "PreemptionByScheduler" for c in conditions)
    return asked and bool(pod["metadata"].get("deletionTimestamp"))
