"""The nodes of a decision log: when each was there, and with what.

A node that went and comes again, and one that a file's first records do not name, was away in between.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from purser.backtest.history import HistoryNode
from purser.core.device.limits import exceeded_limits
from purser.core.fleet import node_state
from purser.core.fleet.facts import FleetNodeFacts
from purser.core.fleet.free_resources import NO_LIMIT, FreeResources
from purser.core.fleet.live import links_of, node_facts
from purser.core.model import NodeInventory
from purser.core.placement.shape import PodShape


@dataclass
class _LoggedNode:
    """One node, as the log tells of it."""

    inventory: NodeInventory
    since_s: float
    until_s: float = math.inf
    away: list[tuple[float, float]] = field(default_factory=list)
    most: FreeResources | None = None
    """What is free of it without pods that hold GPUs, when that was the most."""


class LoggedNodes:
    """All of them, by name."""

    def __init__(self) -> None:
        self._nodes: dict[str, _LoggedNode] = {}
        self._unnamed: set[str] = set()
        """While a file's first records are read: those that were there before, and were not named yet."""

    def begin_state(self) -> None:
        """A file begins: its first records name all nodes that are there."""
        self._unnamed = {name for name, node in self._nodes.items() if math.isinf(node.until_s)}

    def end_state(self) -> tuple[str, ...]:
        """They are read: these were not named."""
        gone, self._unnamed = tuple(sorted(self._unnamed)), set()
        return gone

    def add(self, name: str, inventory: NodeInventory, at_s: float, since_s: float) -> None:
        """A node is there, or has other devices; ``since_s``: since when it is, if nothing was heard of it before.
        Raises ValueError for one that cannot be."""
        for problem in exceeded_limits(inventory):
            raise ValueError(f"an inventory {problem}")
        self._unnamed.discard(name)
        node = self._nodes.setdefault(name, _LoggedNode(inventory, since_s))
        node.inventory = msgspec.structs.replace(inventory, node=name)
        if node.until_s < at_s:
            node.away.append((node.until_s, at_s))
        node.until_s = math.inf

    def remove(self, name: str, at_s: float) -> None:
        """It is there no more."""
        if name in self._nodes:
            self._nodes[name].until_s = min(self._nodes[name].until_s, at_s)

    def set_free(self, name: str, free: FreeResources, held: Iterable[PodShape | None]) -> None:
        """What is free of a node beside what pods with GPUs hold of it. Raises ValueError for a node that has not
        come."""
        if (node := self._nodes.get(name)) is None:
            raise ValueError("a node has room before its GPUs are known")
        pods = [shape for shape in held if shape is not None]
        cpu = free.cpu_free_milli + sum(shape.cpu_milli for shape in pods)
        memory = free.memory_free_mib + sum(shape.memory_mib for shape in pods)
        most = node.most or FreeResources(0, 0, 0)
        node.most = FreeResources(
            max(cpu, most.cpu_free_milli),
            max(memory, most.memory_free_mib),
            max(free.pods_free + len(pods), most.pods_free),
        )

    def history(self) -> list[HistoryNode]:
        """All of it."""
        return [
            HistoryNode(_facts(each), each.since_s, each.until_s, tuple(each.away)) for each in self._nodes.values()
        ]


def _facts(node: _LoggedNode) -> FleetNodeFacts:
    state = node_state(node.inventory, {})
    return node_facts(state, node.most or NO_LIMIT, links=links_of(state))
