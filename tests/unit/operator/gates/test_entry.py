"""Whatever keeps an operand out keeps it out at every stage of a node's rollout, and is reported: each cause of
`entry_causes.CAUSES` comes up after each round of it."""

import inspect
import re
from collections.abc import Iterator
from functools import cache

import pytest
from tests.tiers import some
from tests.unit.operator.gates.entry_causes import (
    ALL,
    CAUSES,
    Cause,
    disagreements,
    is_let_in_now,
    seen,
    told_of_those_outside,
)
from tests.unit.operator.world import World

from purser.operator.gates import progress
from purser.operator.model import Action, PatchNode
from purser.operator.order import Operand
from purser.operator.reasons import OperatorReason

ROUNDS_AFTER = 3
H100 = "2330"
"""It can MIG: the node gets every operand."""


@cache
def stages() -> tuple[World, ...]:
    """A node after each round, from its first until nothing is left to do."""
    world = World()
    world.cards["a"] = H100
    world.add_policy(spec=ALL)
    world.add_node("a")
    found = []
    while world.round().actions:
        found.append(world.copy())
        world.tick()
    return (*found, world)


@pytest.mark.parametrize("cause", CAUSES.values(), ids=CAUSES)
def test_what_keeps_an_operand_out_keeps_it_out_at_every_stage_and_is_reported(cause: Cause) -> None:
    told = set()
    for stage in some(stages(), 2):
        world = stage.copy()
        cause.happens(world)
        world.watchers.append(lambda action, world=world: stays_out(cause, world, action))
        for _ in range(ROUNDS_AFTER):
            view = seen(world.snapshot())
            assert not disagreements(view)
            told |= told_of_those_outside(view) if cause.lasts(world) else set()
            world.round()
            world.tick()
    assert told & {(operand, cause.reason) for operand in cause.operands}


def stays_out(cause: Cause, world: World, action: Action) -> None:
    if isinstance(action, PatchNode) and cause.lasts(world):
        new = {each for each in cause.operands if is_let_in_now(world.nodes["a"], dict(action.labels), each)}
        assert not new, action


def test_every_operand_is_let_in_at_some_stage() -> None:
    """Otherwise it shows nothing that it stays out."""
    assert {operand for _, operand in stages()[-1].let_in} == set(Operand)


def test_every_reason_for_which_the_code_keeps_an_operand_out_has_its_cause() -> None:
    assert {cause.reason for cause in CAUSES.values()} == set(reasons_in_the_code())


def reasons_in_the_code() -> Iterator[OperatorReason]:
    for name in re.findall(r"GateBlocker\(OperatorReason\.(\w+)", inspect.getsource(progress)):
        yield OperatorReason[name]
