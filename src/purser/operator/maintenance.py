"""Maintenance of one node for which pods have to leave: what driver upgrades and MIG changes share.

Both take a node through a few steps, each one write; both evict pods before they touch a GPU, by the same rules and
disruption budgets; both mark the cordons that they set, and lift only their own; and both respect one bound of
unavailable nodes (`NodeWork`).

Not here: the machines (``upgrade``, ``mig``), which import nothing of one another, and writing of any kind.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from purser.core.kubernetes.selectors import SelectorError, of_object, parse
from purser.core.names import CORDONED_BY_ANNOTATION
from purser.core.wording import counted, some
from purser.operator.model import (
    Budget,
    DeletePod,
    EmitEvent,
    Evict,
    NodeProgress,
    NodeView,
    NodeWorkload,
    PatchNode,
    PlannedChanges,
    changes,
)
from purser.operator.names import LABEL_TRUE, UPGRADE_DRAIN_SKIP_LABEL
from purser.operator.policy.driver import Drain, PodDeletion, UpgradePolicy
from purser.operator.reasons import OperatorReason

EVICTION_RETRY_PERIOD_S = 5.0
"""After which time pods that did not leave are asked again."""

UNKNOWN_PODS = "the node's pods have not been listed yet"

DAEMON_SET = "DaemonSet"


# --- disruption budgets


class DisruptionLedger:
    """What disruption budgets allow within one round: each pod that is let go counts against all of its own."""

    def __init__(self, budgets: Iterable[Budget]) -> None:
        self._budgets: dict[str, list[Budget]] = defaultdict(list)
        self._left: dict[tuple[str, str], int] = {}
        for budget in budgets:
            self._budgets[budget.namespace].append(budget)
            self._left[budget.namespace, budget.name] = budget.allowed

    def try_evict(self, workload: NodeWorkload) -> str:
        """Count a pod's eviction; or say why it cannot be now, and count nothing."""
        # The API server asks no budget for these.
        if workload.terminating or workload.phase in ("Pending", "Succeeded", "Failed"):
            return ""
        concerned = [each for each in self._budgets[workload.namespace] if _covers(each, workload)]
        if len(concerned) > 1:  # the API server refuses these whatever is left
            names = ", ".join(sorted(b.name for b in concerned))
            return f"is covered by {len(concerned)} PodDisruptionBudgets, which eviction does not support: {names}"
        for budget in concerned:
            if not workload.ready and _allows_unready(budget):
                continue
            if self._left[budget.namespace, budget.name] <= 0:
                return f"is protected by PodDisruptionBudget {budget.name}"
            self._left[budget.namespace, budget.name] -= 1
        return ""


def _allows_unready(budget: Budget) -> bool:
    """Whether the API server lets a pod that is not ready go beside this budget: always, if the budget says so, and
    otherwise while enough others are healthy. (Rules of kubernetes/pkg/registry/core/pod/storage/eviction.go.)"""
    return budget.unhealthy_may_go or budget.current_healthy >= budget.desired_healthy > 0


def _covers(budget: Budget, workload: NodeWorkload) -> bool:
    try:
        return of_object(budget.selector).matches(workload.labels)
    except SelectorError:
        return True  # an operator that is not known here: what it protects is not put at risk


# --- requests


class Rules(msgspec.Struct, frozen=True):
    """Which pods are not asked to leave because something would be lost with them."""

    force: bool = False
    delete_empty_dir: bool = False

    @classmethod
    def of(cls, section: PodDeletion | Drain) -> "Rules":
        """As a section of the policy says."""
        return cls(section.force, section.delete_empty_dir)

    def eviction_obstacle(self, workload: NodeWorkload) -> str:
        """Why a pod is not evicted, in a sentence's end; empty: it may be."""
        if workload.mirror:
            return "is a static pod and cannot be evicted"
        if not workload.controller and not self.force:
            return "has no controller and would not be recreated (force is off)"
        if workload.empty_dir and not self.delete_empty_dir:
            return "has an emptyDir volume that would be lost (deleteEmptyDir is off)"
        return ""


class EvictionPlan(msgspec.Struct, frozen=True):
    """What is asked of the pods that have to leave."""

    evictions: tuple[Evict, ...] = ()
    staying: tuple[str, ...] = ()
    """Why each pod that is not asked stays, in one sentence."""

    def describe(self, leaving: Sequence[NodeWorkload]) -> str:
        """What keeps a node waiting, in one sentence."""
        if self.staying:
            return some(self.staying, "pod", named=1)
        names = sorted(f"{pod.namespace}/{pod.name}" for pod in leaving)
        return f"waiting for pod{'s' * (len(names) > 1)} {some(names, 'pod')} to terminate"


def request_evictions(pods: Iterable[NodeWorkload], rules: Rules, ledger: DisruptionLedger, why: str) -> EvictionPlan:
    """Evict those that may be; terminating ones are left to end.

    As long as one of them may not be evicted at all, none is: the others would die for a node that is not emptied.
    """
    there = sorted((pod for pod in pods if not pod.terminating), key=lambda each: (each.namespace, each.name))
    forbidden = [_stays(pod, problem) for pod in there if (problem := rules.eviction_obstacle(pod))]
    if forbidden:
        return EvictionPlan(staying=tuple(forbidden))
    problems = [(pod, ledger.try_evict(pod)) for pod in there]
    return EvictionPlan(
        evictions=tuple(Evict(pod, why) for pod, problem in problems if not problem),
        staying=tuple(_stays(pod, problem) for pod, problem in problems if problem),
    )


def _stays(pod: NodeWorkload, problem: str) -> str:
    return f"pod {pod.namespace}/{pod.name} {problem}"


def next_eviction_time(now: float, until: float | None) -> float:
    """When pods that stay are asked the next time: before the deadline, if there is one."""
    return now + EVICTION_RETRY_PERIOD_S if until is None else min(now + EVICTION_RETRY_PERIOD_S, until)


# --- pods


def is_active(workload: NodeWorkload) -> bool:
    """It has not ended: it may hold a GPU."""
    return workload.phase not in ("Succeeded", "Failed")


def gpu_pods(workloads: Iterable[NodeWorkload]) -> list[NodeWorkload]:
    """Pods that use a GPU; idle ones do, too: they hold the driver's files open."""
    return [pod for pod in workloads if pod.uses_gpu and is_active(pod)]


def evictable_gpu_pods(workloads: Iterable[NodeWorkload]) -> list[NodeWorkload]:
    """GPU pods that do not come back to a cordoned node. Those of DaemonSets do, until the device plugin is gone."""
    return [pod for pod in gpu_pods(workloads) if pod.controller != DAEMON_SET]


def jobs(workloads: Iterable[NodeWorkload], selector: str) -> list[NodeWorkload]:
    """Pods that an upgrade waits for."""
    wanted = parse(selector)
    return [pod for pod in workloads if is_active(pod) and wanted.matches(pod.labels)]


def drained_pods(workloads: Iterable[NodeWorkload], selector: str) -> list[NodeWorkload]:
    """Pods that a drain evicts."""
    wanted = parse(selector)
    return [pod for pod in workloads if _is_evicted_by_drain(pod) and wanted.matches(pod.labels)]


def _is_evicted_by_drain(pod: NodeWorkload) -> bool:
    is_skipped = pod.labels.get(UPGRADE_DRAIN_SKIP_LABEL) == LABEL_TRUE
    return is_active(pod) and pod.controller != DAEMON_SET and not pod.mirror and not is_skipped


# --- what a step is decided from


class NodeWork(msgspec.Struct, frozen=True, kw_only=True):
    """What driver upgrades and MIG changes have to know alike."""

    now: float
    policy: UpgradePolicy
    """It bounds how many nodes are unavailable, and says how GPU pods leave: for MIG changes, too."""
    node_progress: tuple[NodeProgress, ...]
    workloads: Mapping[str, tuple[NodeWorkload, ...]] = {}
    """By node; of a node that is not there nothing is known."""
    budgets: tuple[Budget, ...] = ()
    busy: frozenset[str] = frozenset()
    """Nodes where something else is under way (an upgrade, a MIG change, a reboot): not begun."""

    @property
    def max_unavailable(self) -> int:
        """How many GPU nodes may be unavailable; a percentage is rounded up."""
        bound = self.policy.max_unavailable
        return (
            bound if isinstance(bound, int) else math.ceil(len(self.node_progress) * int(bound.removesuffix("%")) / 100)
        )

    @property
    def unavailable_limit_text(self) -> str:
        """Why a node that is available does not begin once so many are not."""
        return f"no more than {counted(self.max_unavailable, 'GPU node')} may be unavailable (maxUnavailable)"

    @property
    def rules(self) -> Rules:
        """Which GPU pods may be asked to leave."""
        return Rules.of(self.policy.gpu_pod_deletion)


# --- steps


NodeTexts = dict[str, str | None]


def patch(
    node: NodeView,
    why: str,
    *,
    labels: NodeTexts | None = None,
    annotations: NodeTexts | None = None,
    unschedulable: bool | None = None,
) -> PatchNode:
    """A patch of what differs from what is there."""
    return PatchNode(
        node=node.name,
        labels=changes(labels or {}, node.labels),
        annotations=changes(annotations or {}, node.annotations),
        unschedulable=None if unschedulable == node.unschedulable else unschedulable,
        why=why,
    )


class NodeStep(msgspec.Struct, frozen=True, kw_only=True):
    """What one node's machine does in one round. All empty: nothing, and nothing is waited for."""

    patch: PatchNode | None = None
    deletions: tuple[DeletePod, ...] = ()
    evictions: tuple[Evict, ...] = ()
    events: tuple[EmitEvent, ...] = ()
    waits: str = ""
    """What the node waits for, in one sentence's end."""
    until: float | None = None
    """When time alone changes something."""


def write_step(made: PatchNode | None, *events: EmitEvent) -> NodeStep:
    """A step that is one write."""
    return NodeStep(patch=made, events=events)


def event(reason: OperatorReason, node: NodeView, message: str, *, warning: bool = False) -> EmitEvent:
    """An event on a node."""
    return EmitEvent("Node", node.name, node.uid, reason, message, warning)


def waits_by_node(steps: Mapping[str, NodeStep]) -> dict[str, str]:
    """By node: what it waits for."""
    return {name: each.waits for name, each in steps.items() if each.waits}


def planned_changes_of(steps: Mapping[str, NodeStep], now: float, until: float | None = None) -> PlannedChanges:
    """All steps of a round, by node; ``until``: when time changes something for nodes that have no step."""
    times = [each for each in (until, *(step.until for step in steps.values())) if each is not None]
    return PlannedChanges(
        patches={name: each.patch for name, each in steps.items() if each.patch is not None},
        deletions=tuple(deletion for each in steps.values() for deletion in each.deletions),
        evictions=tuple(eviction for each in steps.values() for eviction in each.evictions),
        events=tuple(event for each in steps.values() for event in each.events),
        waits=waits_by_node(steps),
        requeue_after_s=max(0.0, min(times) - now) if times else None,
    )


# --- times


MAX_CLOCK_SKEW_S = 60.0
"""Tolerated difference between the clocks of two operators."""


def is_in_future(moment: float, now: float) -> bool:
    """It is later than clocks differ: what is counted from it would never run out."""
    return moment > now + MAX_CLOCK_SKEW_S


def deadline(since: float | None, timeout_s: float) -> float | None:
    """When something has taken too long; None: never (a timeout of 0 is no limit)."""
    return since + timeout_s if timeout_s and since is not None else None


def is_over(until: float | None, now: float) -> bool:
    """A deadline has passed."""
    return until is not None and now >= until


# --- cordons


class CordonOwner(StrEnum):
    """Who of Purser cordons nodes: values of the annotation ``purser.dev/cordoned-by``."""

    UPGRADE = "driver-upgrade"
    MIG = "mig-change"


def is_cordoned_by(node: NodeView, by: CordonOwner) -> bool:
    """The cordon was set by this one, and may be lifted by it."""
    return is_cordoned_by_purser(node) and node.annotations[CORDONED_BY_ANNOTATION] == by


def is_cordoned_by_purser(node: NodeView) -> bool:
    """The node is cordoned, and the mark says that it was Purser."""
    return node.unschedulable and CORDONED_BY_ANNOTATION in node.annotations


def claim(node: NodeView, by: CordonOwner) -> NodeTexts:
    """The mark that a cordon is set with; empty where the node is cordoned already."""
    return {} if node.unschedulable and not is_cordoned_by(node, by) else {CORDONED_BY_ANNOTATION: by.value}


def lift_cordon(node: NodeView, by: CordonOwner) -> tuple[NodeTexts, bool | None]:
    """Mark and cordon afterwards: lifted where it is this one's, left where it is not."""
    return ({CORDONED_BY_ANNOTATION: None}, False) if is_cordoned_by(node, by) else ({}, None)


def clear_stale_cordon_mark(node: NodeView) -> PatchNode | None:
    """Takes a void mark away, with whatever else is written; None where there is none."""
    if node.unschedulable or CORDONED_BY_ANNOTATION not in node.annotations:
        return None
    return PatchNode(
        node=node.name, annotations={CORDONED_BY_ANNOTATION: None}, why="the node was uncordoned by another client"
    )
