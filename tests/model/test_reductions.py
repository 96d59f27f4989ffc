"""What is left out of an exploration hides nothing: in the small, everything is explored as well, and compared."""

import random
from functools import cache
from typing import Any, NamedTuple

import pytest

from tests import tiers
from tests.model.agent import Agents, Answer
from tests.model.cluster import NodeState, Objects, Settled, Size
from tests.model.moves_of_nodes import heard
from tests.model.search import all_states
from tests.model.space import Space
from tests.model.world import World

SMALL = (
    Size(faults=0),
    Size(kinds=frozenset({"kubelet"})),
    Size(gpus=1, kinds=frozenset({"scheduler"})),
)
LARGER = (
    Size(pods=3, faults=0),
    Size(nodes=2, gpus=1, schedulers=2, faults=0),
    *(Size(kinds=frozenset({each})) for each in ("agent", "away", "ids", "net")),
    *(Size(gpus=1, kinds=frozenset({each})) for each in ("deface", "delete", "replace")),
    Size(gpus=1, schedulers=2, kinds=frozenset({"lease"})),
)
LARGEST = (
    Size(),
    Size(gpus=1, schedulers=2, faults=2, kinds=frozenset({"delete", "lease"})),
    Size(nodes=2, gpus=2, pods=3, schedulers=2, faults=0),
    Size(nodes=2, gpus=1, kinds=frozenset({"agent", "deface", "delete", "replace", "scheduler"})),
    Size(gpus=1, faults=2, kinds=frozenset({"net", "scheduler", "agent"})),
    Size(gpus=1, schedulers=2, faults=2, kinds=frozenset({"deface", "lease"})),
)


def _words(size: Size) -> str:
    kinds = f"{size.faults} of {'+'.join(sorted(size.kinds))[:30]}" if size.faults else "no faults"
    return f"{size.nodes}x{size.gpus}, {size.pods} pods, {size.schedulers} schedulers, {kinds}"


world_of = cache(World)
"""What its code did is looked up by the next test of the size."""


class Compared(NamedTuple):
    """A full exploration with a reduced one."""

    states: int
    """Of the full one."""
    become: set[int]
    """What these are by the measure of the reduced one."""
    left: set[int]
    """The states of the reduced one."""


def compared(world: World, *, is_symmetric: bool, is_eager: bool) -> Compared:
    full = Space(world, is_symmetric=False, is_eager=False)
    reduced = Space(world, is_symmetric=is_symmetric, is_eager=is_eager)
    states, become = 0, set[int]()
    for layer in all_states(full):
        states += len(layer)
        become |= set(reduced.hashes(reduced.taken_from(full, layer)).tolist())
    left = {each for layer in all_states(reduced) for each in reduced.hashes(layer).tolist()}
    return Compared(states, become, left)


def hide_nothing(size: Size) -> None:
    """Nor do they show what cannot be reached: each alone, and both together."""
    for is_symmetric, is_eager in ((True, False), (False, True), (True, True)):
        found = compared(world_of(size), is_symmetric=is_symmetric, is_eager=is_eager)
        assert found.become == found.left
        assert len(found.left) < found.states or not (is_symmetric or world_of(size).settled)


@pytest.mark.parametrize("size", SMALL, ids=_words)
def test_names_say_nothing_and_hearing_at_once_hides_nothing(size):
    hide_nothing(size)


def test_hearing_of_everything_at_once_would_hide_something():
    """The test of the test: an agent may hear of a pod late, and what it then does may be another thing."""

    def hears_of_all(node: NodeState, objects: Objects) -> NodeState:
        memory = node.memory
        for name in {each.name for each in (*objects.pods, *memory.heard)}:
            now = objects.pod(name)
            memory = heard(memory, name, now if now is not None and now.node == node.name else None)
        return node.remembers(memory) if node.runs else node

    world = World(Size(gpus=1, kinds=frozenset({"delete"})))
    world.settled = (Settled("node0", ("node0", "objects"), hears_of_all),)
    found = compared(world, is_symmetric=False, is_eager=True)
    assert found.become - found.left


class OddAgents(Agents):
    """They refuse one of the GPUs."""

    def allocate(self, *asks: Any) -> tuple[Answer, ...]:
        answers = super().allocate(*asks)
        return tuple(each._replace(gpu="", why="odd") if each.gpu.endswith("gpu1") else each for each in answers)


def test_names_would_say_something_if_gpus_were_not_alike():
    """The test of the test."""
    found = compared(World(Size(pods=1, faults=0), agents=OddAgents), is_symmetric=True, is_eager=False)
    assert found.become - found.left


@pytest.mark.parametrize("size", (Size(), Size(nodes=2, pods=3, schedulers=2, faults=2)), ids=("small", "large"))
def test_what_is_looked_up_is_what_the_code_does(size):
    world, dice = World(size), random.Random(3)
    space, state = Space(world, is_symmetric=False, is_eager=False), world.first()
    for _ in range(40):
        by_code = {after for _, after in world.steps(state)}
        assert {space.state(row) for row in space.after(space.row(state)).rows} == by_code
        if not by_code:
            break
        state = dice.choice(sorted(by_code, key=repr))


@pytest.mark.gate
@pytest.mark.parametrize("size", LARGER + LARGEST * (tiers.TIER is tiers.Tier.SOAK), ids=_words)
def test_reductions_hide_nothing_with_more_faults(size):
    hide_nothing(size)
