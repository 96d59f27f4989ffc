"""One node's next step, and what all nodes' steps come to together."""

from collections.abc import Mapping

import msgspec

from purser.operator.merging import changes
from purser.operator.model import DeletePod, Evict, Moves, NodeView, PatchNode, Say

ASK_AGAIN_S = 5.0
"""After which time pods that did not leave are asked again."""

UNKNOWN_PODS = "nobody knows yet what runs there"

Texts = dict[str, str | None]


def patch(
    node: NodeView,
    why: str,
    *,
    labels: Texts | None = None,
    annotations: Texts | None = None,
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
    says: tuple[Say, ...] = ()
    waits: str = ""
    """What the node waits for, in one sentence's end."""
    until: float | None = None
    """When time alone changes something."""


def to(made: PatchNode | None, *says: Say) -> NodeStep:
    """A step that is one write."""
    return NodeStep(patch=made, says=says)


def event(reason: str, node: NodeView, message: str, *, warning: bool = False) -> Say:
    """An event on a node."""
    return Say("Node", node.name, node.uid, reason, message, warning)


def ask_again(now: float, until: float | None) -> float:
    """When pods that stay are asked the next time: before the deadline, if there is one."""
    return now + ASK_AGAIN_S if until is None else min(now + ASK_AGAIN_S, until)


def waits_of(steps: Mapping[str, NodeStep]) -> dict[str, str]:
    """By node: what it waits for."""
    return {name: each.waits for name, each in steps.items() if each.waits}


def moves_of(steps: Mapping[str, NodeStep], now: float, until: float | None = None) -> Moves:
    """All steps of a round, by node; ``until``: when time changes something for nodes that have no step."""
    times = [each for each in (until, *(step.until for step in steps.values())) if each is not None]
    return Moves(
        patches={name: each.patch for name, each in steps.items() if each.patch is not None},
        deletions=tuple(deletion for each in steps.values() for deletion in each.deletions),
        evictions=tuple(eviction for each in steps.values() for eviction in each.evictions),
        events=tuple(told for each in steps.values() for told in each.says),
        waits=waits_of(steps),
        look_again_s=max(0.0, min(times) - now) if times else None,
    )
