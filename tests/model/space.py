"""States by the million: a state is a row of numbers, one for the value of each column.

What a step depends on are few columns, and few of their values occur together. So each step is taken once by the code
in `world` for all that it depends on, and looked up from then on, for many rows at a time.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tests.model.cluster import Move, Rule, Settled, Source, State, View
from tests.model.symmetry import Hasher, Hashes, ways_to_name
from tests.model.world import World

Rows = npt.NDArray[np.int32]
Ids = npt.NDArray[np.int64]
_ODD = tuple(
    np.uint64(each)
    for each in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F)
)
"""Multipliers that mix the numbers of what is read into one."""


class Values:
    """The values that were seen, by number."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def number(self, value: Any) -> int:
        found = self._numbers.setdefault(value, len(self.all))
        if found == len(self.all):
            self.all.append(value)
        return found


class Column(Values):
    """With the hashes of each value."""

    def __init__(self, hasher: Hasher, ways: int) -> None:
        super().__init__()
        self._hasher = hasher
        self._hashes: Hashes = np.zeros((64, ways), np.uint64)
        self._hashed = 0

    def hashes(self) -> Hashes:
        """A row for each value, a column for each way to give names."""
        if len(self.all) > len(self._hashes):
            grown = np.zeros((max(len(self.all), len(self._hashes) * 3 // 2), self._hashes.shape[1]), np.uint64)
            grown[: self._hashed] = self._hashes[: self._hashed]
            self._hashes = grown
        while self._hashed < len(self.all):
            self._hashes[self._hashed] = self._hasher.of(self.all[self._hashed])
            self._hashed += 1
        return self._hashes


class Numbers:
    """An array that grows."""

    def __init__(self, width: int = 1) -> None:
        self._array = np.zeros((64, width), np.int32)
        self.count = 0

    def add(self, row: Any) -> None:
        if self.count == len(self._array):
            self._array = np.concatenate((self._array, np.zeros_like(self._array)))
        self._array[self.count] = row
        self.count += 1

    def all(self) -> Rows:
        return self._array[: self.count]


class Keys:
    """What rows have in some places, by number. Two that differ have one number with a chance as small as two states
    have one hash."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def numbers(self, columns: list[npt.NDArray[Any]], compute: Callable[[int], None]) -> Ids:
        """Calls ``compute`` with the place of each that is new, in order of their numbers."""
        odds = _ODD[: len(columns)]
        mixed = np.zeros(len(columns[0]), np.uint64)
        for column, odd in zip(columns, odds, strict=True):
            mixed += column.astype(np.uint64) * odd
        different, places, back = np.unique(mixed, return_index=True, return_inverse=True)
        found = np.empty(len(different), np.int64)
        for i, key in enumerate(different.tolist()):
            number = self._numbers.get(key)
            if number is None:
                compute(int(places[i]))
                number = self._numbers[key] = len(self._numbers)
            found[i] = number
        return found[back]


class Found(NamedTuple):
    """The rows that steps lead to."""

    rows: Rows
    origins: Ids
    """For each, the place of the row it came from."""


class Space:
    """Of one world. ``is_symmetric``: of states that differ in names alone one is explored; ``is_eager``: what may as
    well happen at once does."""

    def __init__(self, world: World, *, is_symmetric: bool = True, is_eager: bool = True) -> None:
        self.world = world
        ways = list(ways_to_name(world.size)) if is_symmetric else [{}]
        hasher = Hasher(ways, world.opened)
        self.columns = [Column(hasher, len(ways)) for _ in world.columns]
        self._views: dict[View, _ViewTable] = {}
        self._moves = [_MoveTable(self, move) for move in world.moves]
        self._settled = [_SettledTable(self, each) for each in world.settled] if is_eager else []
        self._least_spans, self._least_ways = Numbers(2), Numbers()

    def row(self, state: State) -> Rows:
        row = [column.number(value) for column, value in zip(self.columns, state, strict=True)]
        return self._settle(np.array([row], np.int32))

    def state(self, row: Any) -> State:
        return tuple(column.all[number] for column, number in zip(self.columns, row, strict=True))

    def taken_from(self, other: "Space", rows: Rows) -> Rows:
        """Rows of another space, as this one has them."""
        numbers = [
            np.array([mine.number(value) for value in theirs.all], np.int32)[rows[:, place]]
            for place, (mine, theirs) in enumerate(zip(self.columns, other.columns, strict=True))
        ]
        return self._settle(np.stack(numbers, axis=1))

    def after(self, rows: Rows) -> Found:
        """All that may come next."""
        found = [table.after(rows) for table in self._moves]
        together = np.concatenate([each.rows for each in found])
        return Found(self._settle(together), np.concatenate([each.origins for each in found]))

    def _settle(self, rows: Rows) -> Rows:
        for table in self._settled:
            table.settle(rows)
        return rows

    def hashes(self, rows: Rows) -> Hashes:
        """The least over the ways to give names, of those that make the API server's objects the least."""
        first, *others = [column.hashes() for column in self.columns]
        self._note_least(first)
        spans, flat = self._least_spans.all()[rows[:, 0]], self._least_ways.all()[:, 0]
        starts, counts = spans[:, 0], spans[:, 1]
        least = np.full(len(rows), np.iinfo(np.uint64).max, np.uint64)
        for turn in range(int(counts.max(initial=0))):
            here = np.flatnonzero(counts > turn)
            ways, of = flat[starts[here] + turn], rows[here]
            total = first[of[:, 0], ways]
            for place, table in enumerate(others, 1):
                total += table[of[:, place], ways]
            least[here] = np.minimum(least[here], total)
        return least

    def _note_least(self, hashes: Hashes) -> None:
        for number in range(self._least_spans.count, len(self.columns[0].all)):
            ways = np.flatnonzero(hashes[number] == hashes[number].min())
            self._least_spans.add((self._least_ways.count, len(ways)))
            for way in ways:
                self._least_ways.add(way)

    def read(self, rows: Rows, source: Source) -> npt.NDArray[Any]:
        """The number of what each row has there."""
        if isinstance(source, str):
            return rows[:, self.world.columns.index(source)]
        return self.values_of(source).read(rows)

    def values_of(self, source: Source) -> Any:
        if isinstance(source, str):
            return self.columns[self.world.columns.index(source)]
        if source not in self._views:
            self._views[source] = _ViewTable(self, source)
        return self._views[source]

    def holding(self, rows: Rows, when: tuple[Source, ...]) -> Ids:
        """The places of the rows for which all of this is true."""
        places = np.arange(len(rows))
        for source in when:
            numbers = self.read(rows[places], source)
            truths = np.array([bool(each) for each in self.values_of(source).all] or [False])
            places = places[truths[numbers]]
        return places


class _Table:
    """What is computed once for all that it reads."""

    def __init__(self, space: Space, reads: tuple[Source, ...]) -> None:
        self._space, self._reads, self._keys = space, reads, Keys()

    def _numbers(self, rows: Rows, compute: Callable[..., None]) -> Ids:
        columns = [self._space.read(rows, each) for each in self._reads]
        values = [self._space.values_of(each).all for each in self._reads]
        pairs = list(zip(values, columns, strict=True))
        return self._keys.numbers(columns, lambda place: compute(*(value[column[place]] for value, column in pairs)))


class _ViewTable(_Table):
    def __init__(self, space: Space, view: View) -> None:
        super().__init__(space, view.reads)
        self._of, self._values, self._results = view.of, Values(), Numbers()

    @property
    def all(self) -> list[Any]:
        return self._values.all

    def read(self, rows: Rows) -> npt.NDArray[Any]:
        numbers = self._numbers(rows, lambda *values: self._results.add(self._values.number(self._of(*values))))
        return self._results.all()[numbers, 0]


class _MoveTable(_Table):
    def __init__(self, space: Space, move: Move) -> None:
        super().__init__(space, move.reads)
        self._when, self._outcomes = move.when, move.outcomes
        self._spans, self._changes = Numbers(2), Numbers(len(space.columns))

    def after(self, rows: Rows) -> Found:
        places = self._space.holding(rows, self._when)
        numbers = self._numbers(rows[places], self._compute)
        spans = self._spans.all()[numbers]
        counts = spans[:, 1].astype(np.int64)
        origins = np.repeat(places, counts)
        offsets = np.arange(len(origins)) - np.repeat(np.cumsum(counts) - counts, counts)
        changes = self._changes.all()[np.repeat(spans[:, 0], counts) + offsets]
        return Found(np.where(changes < 0, rows[origins], changes), origins)

    def _compute(self, *values: Any) -> None:
        names, columns = self._space.world.columns, self._space.columns
        changes = dict.fromkeys(
            tuple(columns[i].number(changed[name]) if name in changed else -1 for i, name in enumerate(names))
            for _, changed in self._outcomes(*values)
        )
        self._spans.add((self._changes.count, len(changes)))
        for change in changes:
            self._changes.add(change)


class _SettledTable(_Table):
    def __init__(self, space: Space, settled: Settled) -> None:
        super().__init__(space, settled.reads)
        self._of, self._results = settled.of, Numbers()
        self._place = space.world.columns.index(settled.column)

    def settle(self, rows: Rows) -> None:
        column = self._space.columns[self._place]
        numbers = self._numbers(rows, lambda *values: self._results.add(column.number(self._of(*values))))
        rows[:, self._place] = self._results.all()[numbers, 0]


class RuleTable(_Table):
    """Which rows break a rule."""

    def __init__(self, space: Space, rule: Rule) -> None:
        super().__init__(space, rule.reads)
        self._when, self._problems, self._results = rule.when, rule.problems, Numbers()

    def broken(self, rows: Rows) -> Ids:
        places = self._space.holding(rows, self._when)
        numbers = self._numbers(rows[places], self._compute)
        return places[self._results.all()[numbers, 0] != 0]

    def _compute(self, *values: Any) -> None:
        self._results.add(any(True for _ in self._problems(*values)))


def pages(rows: Rows, length: int) -> Iterator[Rows]:
    """So many at a time."""
    for start in range(0, len(rows), length):
        yield rows[start : start + length]
