"""A round in spite of nodes that a part of Purser fails on, unexpectedly: they are left out of it, and no others are.

What is decided about nodes, and how, is not known here. Where it fails, it is tried again with fewer nodes, halving
them, until those are found without which it does not fail.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Generic, TypeVar

import msgspec

from purser.core.decoding import brief
from purser.operator.model import IsolatedNode, Snapshot
from purser.operator.order import Operand

T = TypeVar("T")

MAX_ISOLATION_ROUNDS = 24
"""How often one round is decided again. If that does not isolate all failing nodes, the rest is left out with them, and
the next round continues from there."""


def decided(snapshot: Snapshot, decide: Callable[[Snapshot], T]) -> tuple[T, Snapshot]:
    """What ``decide`` comes to, and by which snapshot: of one without the nodes that it fails on, where it does.

    What it fails on whatever the nodes is raised.
    """
    try:
        return decide(snapshot), snapshot
    except Exception as error:  # whatever a part of Purser raises, unexpectedly
        return _Search(snapshot, decide).run(error)


def without(snapshot: Snapshot, nodes: Sequence[IsolatedNode]) -> Snapshot:
    """The same with these nodes left out."""
    names = {each.node.name for each in nodes}
    rest = tuple(node for node in snapshot.nodes if node.name not in names)
    return msgspec.structs.replace(snapshot, nodes=rest, isolated=tuple(nodes))


class _Search(Generic[T]):
    """Adds nodes to those that it does not fail on, as many at once as go."""

    def __init__(self, snapshot: Snapshot, decide: Callable[[Snapshot], T]) -> None:
        self._snapshot = snapshot
        self._decide = decide
        self._tries = MAX_ISOLATION_ROUNDS
        self._nodes = {node.name: node for node in snapshot.nodes}
        self._blamed: dict[str, Exception | None] = {}
        self._ready = {pod.node for pod in snapshot.pods if pod.operand == Operand.DRIVER and pod.ready}

    def run(self, error: Exception) -> tuple[T, Snapshot]:
        if self._try(()) is not None:
            raise error
        suspects = [name for name in self._snapshot.suspects if name in self._nodes]
        others = [name for name in self._nodes if name not in set(suspects)]
        handled = self._isolate_failing([], others, None if suspects else error)
        handled += self._isolate_failing(handled, suspects, error if len(handled) == len(others) else None)
        snapshot = self._snapshot_with(handled)  # what the others were left out for is known only now
        return self._decide(snapshot), snapshot

    def _isolate_failing(self, handled: list[str], group: list[str], known: Exception | None = None) -> list[str]:
        """Those of a group that it does not fail on together with those that are handled already. ``known``: what it
        fails on with the whole group, where that is known."""
        if not group:
            return []
        error = known
        if error is None and self._tries:
            error = self._try([*handled, *group])
            if error is None:
                return group
        if error is None or not self._tries or len(group) == 1:
            self._blamed |= dict.fromkeys(group, error if len(group) == 1 else None)
            return []
        half = len(group) // 2
        first = self._isolate_failing(handled, group[:half])
        # Where nothing of the first half was left out, it has to be the second one that it fails on.
        second = self._isolate_failing([*handled, *first], group[half:], error if len(first) == half else None)
        return first + second

    def _try(self, handled: Collection[str]) -> Exception | None:
        self._tries -= 1
        try:
            self._decide(self._snapshot_with(handled))
        except Exception as error:  # as above
            return error
        return None

    def _snapshot_with(self, handled: Collection[str]) -> Snapshot:
        names = set(handled)
        return without(self._snapshot, [self._isolated_node(name) for name in self._nodes if name not in names])

    def _isolated_node(self, name: str) -> IsolatedNode:
        error = self._blamed.get(name)
        why = "internal error on some nodes; it is not known yet whether this node is affected"
        if error is not None:
            why = brief(f"internal error, node left unchanged: {type(error).__name__}: {error}")
        return IsolatedNode(node=self._nodes[name], why=why, error=error, driver_is_ready=name in self._ready)
