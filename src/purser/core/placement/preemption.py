"""Preemption: which pods of lower priority have to go from a node for a pod to fit, and on which node that costs least.

kube-scheduler's rules (SelectVictimsOnNode and pickOneNodeForPreemption, the same from 1.20 to 1.36), asked of
Purser's book: kube-scheduler's own dry run counts ``nvidia.com/gpu`` and knows neither memory nor which GPU a share
is on. Whether a pod fits once some are gone is for the caller to say.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from purser.core.kubernetes.selectors import Selector

_MAX_INT32 = 2**31
"""Added to every priority when they are summed up, so that many pods of negative priority do not cost less than few."""


class Occupant(msgspec.Struct, frozen=True):
    """A pod of lower priority that holds devices of a node, and is not leaving it anyway."""

    uid: str
    namespace: str = ""
    name: str = ""
    priority: int = 0
    started_at: float = math.inf
    """Seconds since the epoch; of two that are equally important the one that runs longer stays."""
    labels: Mapping[str, str] = {}

    @property
    def key(self) -> str:
        """As informers key pods."""
        return f"{self.namespace}/{self.name}"


class DisruptionRule(msgspec.Struct, frozen=True):
    """What a PodDisruptionBudget spares."""

    namespace: str
    selector: Selector
    """One without conditions is about no pod, as kube-scheduler reads it."""
    allowed: int = 0
    """How many pods may go now."""
    already_disrupted: Collection[str] = frozenset()
    """Names of pods whose going has been counted already."""

    def covers(self, pod: Occupant) -> bool:
        """Whether the pod's going counts against it."""
        return (
            pod.namespace == self.namespace
            and pod.name not in self.already_disrupted
            and bool(self.selector.requirements)
            and self.selector.matches(pod.labels)
        )


class Victims(msgspec.Struct, frozen=True):
    """The pods that have to go from a node, the most important first; never none."""

    node: str
    pods: tuple[Occupant, ...]
    violations: int = 0
    """How many of them budgets would spare."""

    @property
    def uids(self) -> frozenset[str]:
        """Who they are."""
        return frozenset(pod.uid for pod in self.pods)


def least(
    node: str,
    lower: Iterable[Occupant],
    fits: Callable[[frozenset[str]], bool],
    rules: Sequence[DisruptionRule] = (),
    needed: Collection[str] = (),
) -> Victims | None:
    """The fewest pods that make room on a node; None where removing all would not suffice, and where none has to go.

    ``lower`` are all candidates, ``fits`` says whether the pod has room once some are gone. All of them are removed,
    and then reprieved one by one: those that a budget protects first, and of either kind the most important first.
    ``needed`` are not reprieved: kube-scheduler needs what else they free.
    """
    pods = sorted(lower, key=_importance_key)
    gone = frozenset(pod.uid for pod in pods)
    if not pods or not fits(gone):
        return None
    protected = find_violations(pods, rules)
    for pod in sorted(pods, key=lambda pod: pod.uid not in protected):
        spared = gone - {pod.uid}
        if pod.uid not in needed and fits(spared):
            gone = spared
    if not gone:
        return None
    return Victims(node, tuple(pod for pod in pods if pod.uid in gone), len(gone & protected))


def find_violations(pods: Iterable[Occupant], rules: Sequence[DisruptionRule]) -> frozenset[str]:
    """Of pods that would go in this order, those whom a budget no longer lets go."""
    left = [rule.allowed for rule in rules]
    by_namespace: dict[str, list[int]] = defaultdict(list)
    for number, rule in enumerate(rules):
        by_namespace[rule.namespace].append(number)
    found = set()
    for pod in pods:
        for number in by_namespace.get(pod.namespace, ()):
            if rules[number].covers(pod):
                left[number] -= 1
                if left[number] < 0:
                    found.add(pod.uid)
    return frozenset(found)


def cheapest_victims(candidates: Iterable[Victims]) -> Victims | None:
    """Where the fewest budgets are violated; then where the most important victim is least important, where they are
    least important together, where they are fewest, where the most important of them started last; then by name."""
    return min(candidates, key=_cost, default=None)


def _importance_key(pod: Occupant) -> tuple[int, float, str]:
    """Smaller is more important (MoreImportantPod)."""
    return (-pod.priority, pod.started_at, pod.uid)


def _cost(victims: Victims) -> tuple[int, int, int, int, float, str]:
    highest = max(pod.priority for pod in victims.pods)
    together = sum(pod.priority + _MAX_INT32 for pod in victims.pods)
    earliest = min(pod.started_at for pod in victims.pods if pod.priority == highest)
    return (victims.violations, highest, together, len(victims.pods), -earliest, victims.node)
