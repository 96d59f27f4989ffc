"""What a round costs, in calls: times differ by machine."""

import sys
from types import FrameType
from typing import Any

from tests.tiers import IS_LONG
from tests.unit.operator.world import World, made_once

from purser.operator.deciding import reconcile
from purser.operator.model import PatchNode, Snapshot, WriteStatus

COUNT = 1000 if IS_LONG else 100
CALLS_PER_NODE = 1000


@made_once
def settled(count: int) -> World:
    world = World()
    world.add_policy()
    for place in range(count):
        world.add_node(f"n{place:04}", os="24.04" if place % 2 else "22.04")
    world.settle(20)
    return world


def calls(snapshot: Snapshot) -> int:
    found = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal found
        found += event == "call"

    sys.setprofile(count)
    try:
        reconcile(snapshot)
    finally:
        sys.setprofile(None)
    return found


def test_many_nodes_become_ready_with_few_writes_each_and_few_rounds() -> None:
    world = settled(COUNT)
    assert world.status()["nodes"]["ready"] == COUNT
    writes = sum(isinstance(each, PatchNode) for each in world.history)
    assert writes <= 6 * COUNT
    assert sum(isinstance(each, WriteStatus) for each in world.history) <= 20
    assert calls(world.snapshot()) < CALLS_PER_NODE * COUNT


def test_a_round_costs_no_more_per_node_on_many_nodes() -> None:
    few, many = settled(COUNT // 10), settled(COUNT)
    assert calls(many.snapshot()) < 12 * calls(few.snapshot())
