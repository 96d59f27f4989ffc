"""One small step on one node: what it is decided from, what is done, and when it has taken too long."""

import math
from collections.abc import Mapping

import msgspec

from purser.operator.maintenance.evictions import Rules
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
from purser.operator.policy.driver import UpgradePolicy
from purser.operator.reasons import OperatorReason

# --- inputs


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
    def no_room(self) -> str:
        """Why a node that is available does not begin once so many are not."""
        return f"no more than {self.max_unavailable} GPU nodes may be unavailable (maxUnavailable)"

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


def to(made: PatchNode | None, *events: EmitEvent) -> NodeStep:
    """A step that is one write."""
    return NodeStep(patch=made, events=events)


def event(reason: OperatorReason, node: NodeView, message: str, *, warning: bool = False) -> EmitEvent:
    """An event on a node."""
    return EmitEvent("Node", node.name, node.uid, reason, message, warning)


def waits_of(steps: Mapping[str, NodeStep]) -> dict[str, str]:
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
        waits=waits_of(steps),
        requeue_after_s=max(0.0, min(times) - now) if times else None,
    )


# --- times


MAX_CLOCK_SKEW_S = 60.0
"""By so much the clocks of two operators may differ."""


def is_to_come(moment: float, now: float) -> bool:
    """It is later than clocks differ: what is counted from it would never run out."""
    return moment > now + MAX_CLOCK_SKEW_S


def deadline(since: float | None, timeout_s: float) -> float | None:
    """When something has taken too long; None: never (a timeout of 0 is no limit)."""
    return since + timeout_s if timeout_s and since is not None else None


def is_over(until: float | None, now: float) -> bool:
    """A deadline has passed."""
    return until is not None and now >= until
