"""Explores: all states, the nearest first, so that the first violation has the shortest story; or at random."""

import random
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from tests.model.cluster import State
from tests.model.holds import broken, rules
from tests.model.space import Rows, RuleTable, Space, pages
from tests.model.world import World

_PAGE = 1 << 16
"""Rows at a time."""

Sorted = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Found:
    """What an exploration found."""

    states: int
    steps: int
    is_whole: bool
    """Whether there is no other state."""
    depth: int
    seconds: float
    problem: str = ""
    story: tuple[str, ...] = ()

    def __str__(self) -> str:
        how = "all" if self.is_whole else "not all"
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        text = (
            f"{self.states} states ({how}), {self.steps} steps, depth {self.depth}, {self.seconds:.1f} s,"
            f" {peak:.0f} MiB at the most so far"
        )
        if not self.problem:
            return f"{text}, 0 violations"
        lines = (f"  {number}. {each}" for number, each in enumerate(self.story, 1))
        return "\n".join((f"{text}: {self.problem}", *lines))


class Seen:
    """Hashes of states, in few sorted arrays: each at least twice as long as the next."""

    def __init__(self) -> None:
        self._runs: list[Sorted] = []
        self.count = 0

    def new(self, hashes: Sorted) -> npt.NDArray[np.int64]:
        """The places of those that were not seen, one of each; they are from now on."""
        different, places = np.unique(hashes, return_index=True)
        for run in self._runs:
            at = np.searchsorted(run, different)
            is_new = run[np.minimum(at, len(run) - 1)] != different
            different, places = different[is_new], places[is_new]
        if len(different):
            self.count += len(different)
            self._runs.append(different)
            while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
                last = self._runs.pop()
                merged = np.concatenate((self._runs.pop(), last))
                merged.sort(kind="stable")
                self._runs.append(merged)
        return places


def explore(space: Space, most: int) -> Found:
    """So many states at the most, breadth first.

    Of a state that was seen its hash is kept. That two states have one hash, so that one of them is passed over, has a
    chance of about n² in 2⁶⁵: one in 300 000 for ten million states, one in 3 000 for a hundred million.
    """
    began = time.monotonic()
    walk = _Walk(space)
    tables = [RuleTable(space, each) for each in rules(space.world)]
    while len(walk.layer):
        for fresh in walk.pages():
            odd = [int(each) for table in tables for each in table.broken(fresh)[:1]]
            if odd:
                problem, story = _story(space, fresh[odd[0]], walk.depth + 1)
                return Found(walk.states, walk.steps, False, len(story), time.monotonic() - began, problem, story)
            if walk.states >= most:
                return Found(walk.states, walk.steps, False, walk.depth, time.monotonic() - began)
    return Found(walk.states, walk.steps, True, walk.depth - 1, time.monotonic() - began)


class _Walk:
    """Through all states, from layer to layer: those of a layer are equally far from the first."""

    def __init__(self, space: Space) -> None:
        self._space, self._seen = space, Seen()
        self.layer = space.row(space.world.first())
        self._seen.new(space.hashes(self.layer))
        self.steps = self.depth = 0

    @property
    def states(self) -> int:
        return self._seen.count

    def pages(self) -> Iterator[Rows]:
        """The states of the next layer, which then is this one."""
        following = []
        for page in pages(self.layer, _PAGE):
            found = self._space.after(page)
            self.steps += len(found.rows)
            fresh = found.rows[self._seen.new(self._space.hashes(found.rows))]
            following.append(fresh)
            yield fresh
        self.layer = np.concatenate(following)
        self.depth += 1


def all_states(space: Space) -> Iterator[Rows]:
    """Layer by layer."""
    walk = _Walk(space)
    while len(walk.layer):
        yield walk.layer
        for _ in walk.pages():
            pass


def _story(space: Space, last: Rows, depth: int) -> tuple[str, tuple[str, ...]]:
    """What does not hold in that state, and how it came to that. Explored once more, for layers take room."""
    layers = list(islice(all_states(space), depth))
    hashes = [int(space.hashes(last[None])[0])]
    for layer in reversed(layers):
        hashes.append(_before(space, layer, hashes[-1]))
    state, texts = space.world.first(), []
    for wanted in reversed(hashes[:-1]):
        text, state = next(each for each in _settled_steps(space, state) if _hash(space, each[1]) == wanted)
        texts.append(text)
    return broken(space.world, state), tuple(texts)


def _before(space: Space, layer: Rows, wanted: int) -> int:
    """A state of this layer from which a step leads there."""
    for page in pages(layer, _PAGE):
        found = space.after(page)
        places = np.flatnonzero(space.hashes(found.rows) == np.uint64(wanted))
        if len(places):
            return int(space.hashes(page[found.origins[places[0]]][None])[0])
    raise LookupError("no step of the layer before leads there")


def _settled_steps(space: Space, state: State) -> Iterator[tuple[str, State]]:
    for text, after in space.world.steps(state):
        yield text, space.state(space.row(after)[0])


def _hash(space: Space, state: State) -> int:
    return int(space.hashes(space.row(state))[0])


def wander(world: World, walks: int, length: int, seed: int) -> Found:
    """So many histories of so many steps, at random."""
    dice, began, steps = random.Random(seed), time.monotonic(), 0
    seen: set[State] = set()
    for _ in range(walks):
        state, story = world.first(), []
        for _ in range(length):
            choices = list(world.steps(state))
            if not choices:
                break
            text, state = dice.choice(choices)
            story.append(text)
            steps += 1
            if state not in seen and (problem := broken(world, state)):
                return Found(len(seen), steps, False, len(story), time.monotonic() - began, problem, tuple(story))
            seen.add(state)
    return Found(len(seen), steps, False, length, time.monotonic() - began)
