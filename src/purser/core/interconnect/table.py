"""Best scores of partitions, thousands of subsets at a time: for nodes with up to sixteen GPUs.

The same recursion as `memo`, over arrays. The masks of one call have equally many bits, so that each is a row of that
many columns, and all its sets are one product of the rows with a matrix of combinations. Sums of distinct powers of
two up to 2^15 are exact in 32-bit floats, for which that product is fast.
"""

from functools import cache, lru_cache
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from purser.core.interconnect.partitions import Bits, Masks
from purser.core.interconnect.topology import Scores

MAX_TABLE_DEVICES = 16
"""Beyond that not even all subsets can be held."""

Array = NDArray[np.int32]

_UNKNOWN = np.iinfo(np.int32).min
_CHUNK = 1 << 14
"""Sets looked at together: few enough for a core's cache, and for a product so small that BLAS starts no threads for it
(on a busy machine waiting for these takes ten times as long as the work)."""


class ScoreTable:
    """`PartitionScores` over arrays. What has once been found is kept: nothing depends on which GPUs are available."""

    def __init__(self, scores: Array, size: int) -> None:
        self.size = size
        counts = np.bitwise_count(np.arange(len(scores)))
        # A set of that size, or the short one, is its own best partition.
        self._best = np.where(counts <= size, scores, np.int32(_UNKNOWN))

    def score(self, mask: int) -> int:
        """The score of one set."""
        return int(self._best[mask])

    def sets(self, fixed: int, others: Bits, missing: int) -> Array:
        """Every set of ``fixed`` and ``missing`` of the others, in ascending order of the others' places."""
        bits = np.array(others, dtype=np.float32)
        return (_product(bits, _combinations(len(others), missing)) + fixed).astype(np.int32)

    def first_best(self, whole: int, sets: Masks) -> tuple[int, int]:
        """The best score of a partition of ``whole`` that holds one of the sets, and the first set that is in one."""
        worth = self._set_values(whole, np.asarray(sets))
        first = int(worth.argmax())
        return int(worth[first]), int(sets[first])

    def all_best(self, whole: int, sets: Masks) -> Array:
        """The sets which a partition of ``whole`` with that best score holds."""
        array = np.asarray(sets)
        worth = self._set_values(whole, array)
        found: Array = array[worth == worth.max()]
        return found

    def beside(self, whole: int, one: int, ties: Masks) -> Array:
        """Those of the ties that share a best partition with the set ``one``."""
        array = np.asarray(ties)
        apart: Array = array[array & one == 0]
        rests = whole ^ apart
        found: Array = apart[self._best[one] + self._values(rests ^ one) == self._values(rests)]
        return found

    def first_set_beside(self, left: Bits, length: int, ties: Masks) -> int | None:
        """The first set of that length with the earliest GPU left that shares a best partition with any of the ties.

        From the last ties on, which leave the earliest GPUs to others: where many sets are equally good that soon
        meets one that no other can come before.
        """
        others = len(left) - self.size - 1
        if others < length - 1:
            return None
        array = np.asarray(ties)
        common = int(np.bitwise_and.reduce(array))
        unbeatable = sum([bit for bit in left if not bit & common][:length])
        apart = array[array & left[0] == 0][::-1]
        rows, first = 1 + _CHUNK // comb(others, length - 1), None
        for start in range(0, len(apart), rows):
            found = self._sets_beside_each(left, length, apart[start : start + rows])
            first = _first(found if first is None else np.append(found, np.int32(first)), left)
            if first == unbeatable:
                break
        return first

    def _sets_beside_each(self, left: Bits, length: int, ties: Array) -> Array:
        """For each of the ties the first set beside it, where there is one. No tie holds the earliest GPU left."""
        bits = np.array(left[1:], dtype=np.int32)
        others = np.broadcast_to(bits, (len(ties), len(bits)))[(ties[:, None] & bits) == 0].reshape(len(ties), -1)
        combined = _combinations(others.shape[1], length - 1)
        sets = (_product(others.astype(np.float32), combined) + left[0]).astype(np.int32)
        rests = (sum(left) ^ ties)[:, None]
        agree = self._best.take(sets) + self._values(rests ^ sets) == self._values(rests)
        some = agree.any(axis=1)
        found: Array = sets[some, agree.argmax(axis=1)[some]]
        return found

    def _set_values(self, whole: int, sets: Array) -> Array:
        worth: Array = self._best.take(sets) + self._values(whole ^ sets)
        return worth

    def _values(self, masks: Array) -> Array:
        """The best scores of partitions of subsets, all of which have equally many bits."""
        values = self._best.take(masks)
        unknown = values == _UNKNOWN
        if not unknown.any():
            return values
        wanted = np.zeros(len(self._best), dtype=bool)
        wanted[masks[unknown]] = True
        self._find(wanted.nonzero()[0].astype(np.int32))
        return self._best.take(masks)

    def _find(self, masks: Array) -> None:
        count = int(masks[0]).bit_count()
        bits = (np.float32(1) * (1 << _bits(masks).nonzero()[1])).reshape(len(masks), count)
        short = count % self.size
        # One set of each partition identifies it: the short one, or the one with the lowest bit.
        fixed, others, missing = (bits[:, :0], bits, short) if short else (bits[:, :1], bits[:, 1:], self.size - 1)
        combined = _combinations(others.shape[1], missing)
        rows = 1 + _CHUNK // combined.shape[1]
        for start in range(0, len(masks), rows):
            part = slice(start, start + rows)
            sets = (_product(others[part], combined) + fixed[part].sum(axis=1, keepdims=True)).astype(np.int32)
            self._best[masks[part]] = (self._best.take(sets) + self._values(masks[part, None] ^ sets)).max(axis=1)


def _first(sets: Array, order: Bits) -> int | None:
    """The one that go-gpuallocator meets first: with its GPUs' places as digits, the earliest the highest."""
    if not len(sets):
        return None
    digits = 1 << np.arange(len(order))[::-1]
    return int(sets[((sets[:, None] & np.array(order)) != 0).dot(digits).argmax()])


def _bits(masks: Array) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (masks[:, None] >> np.arange(MAX_TABLE_DEVICES)) & 1 == 1
    return found


def _product(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
    """The product of two matrices of finite numbers."""
    with np.errstate(invalid="ignore"):  # BLAS sets the flag for some of these, too (numpy's issue 24067)
        found: NDArray[np.float32] = left @ right
    return found


@cache
def _combinations(count: int, chosen: int) -> NDArray[np.float32]:
    """A column for each way to choose, in lexicographic order: ones in the rows chosen. At most some MiB in all."""
    places = np.array(list(combinations(range(count), chosen)), dtype=np.intp).reshape(comb(count, chosen), chosen)
    matrix = np.zeros((count, len(places)), dtype=np.float32)
    matrix[places.T, np.arange(len(places))] = 1
    return matrix


@lru_cache(maxsize=64)
def table_of(scores: Scores, size: int) -> ScoreTable:
    """The values of a topology (256 KiB for 16 GPUs), kept because it hardly ever changes."""
    return ScoreTable(_subset_scores(scores), size)


@lru_cache(maxsize=16)
def _subset_scores(scores: Scores) -> Array:
    """The score of every subset."""
    found = np.zeros(1, dtype=np.int32)
    for place, row in enumerate(scores):
        to_this = np.zeros(1, dtype=np.int32)
        for score in row[:place]:
            to_this = np.concatenate((to_this, to_this + np.int32(score)))
        found = np.concatenate((found, found + to_this))
    return found
