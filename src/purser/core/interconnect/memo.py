"""Best scores of partitions, one subset at a time: for nodes with up to eight GPUs, which have at most 256 subsets."""

from functools import lru_cache
from itertools import combinations

from purser.core.interconnect.partitions import Bits, Masks, comes_first
from purser.core.interconnect.topology import Scores

MAX_MEMO_DEVICES = 8
"""Beyond that the subsets are too many to take one by one."""


class PartitionMemo:
    """`PartitionScores` in plain Python: the agent of an 8-GPU node does without numpy's 16 MiB."""

    def __init__(self, scores: list[int], size: int) -> None:
        self.size = size
        self._scores = scores
        self._best: dict[int, int] = {}

    def score(self, mask: int) -> int:
        """The score of one set."""
        return self._scores[mask]

    def sets(self, fixed: int, others: Bits, missing: int) -> Masks:
        """Every set of ``fixed`` and ``missing`` of the others, in ascending order of the others' places."""
        return [fixed + sum(chosen) for chosen in combinations(others, missing)]

    def first_best(self, whole: int, sets: Masks) -> tuple[int, int]:
        """The best score of a partition of ``whole`` that holds one of the sets, and the first set that is in one."""
        worth = self._partition_score(whole, sets)
        best = max(worth)
        return best, sets[worth.index(best)]

    def all_best(self, whole: int, sets: Masks) -> Masks:
        """The sets which a partition of ``whole`` with that best score holds."""
        worth = self._partition_score(whole, sets)
        best = max(worth)
        return [each for each, score in zip(sets, worth, strict=True) if score == best]

    def beside(self, whole: int, one: int, ties: Masks) -> Masks:
        """Those of the ties that share a best partition with the set ``one``."""
        return [tie for tie in ties if self._share_best_partition(whole ^ tie, one)]

    def first_set_beside(self, left: Bits, length: int, ties: Masks) -> int | None:
        """The first set of that length with the earliest GPU left that shares a best partition with any of the ties."""
        whole, low, first = sum(left), left[0], None
        for tie in ties:
            others = [bit for bit in left[1:] if not bit & tie]
            sets = () if low & tie else self.sets(low, others, length - 1)
            found = next((each for each in sets if self._share_best_partition(whole ^ tie, each)), None)
            if found is not None and (first is None or comes_first(found, first, left)):
                first = found
        return first

    def _share_best_partition(self, rest: int, one: int) -> bool:
        """Whether a best partition of the rest holds the set."""
        return one & ~rest == 0 and self._scores[one] + self._best_score(rest ^ one) == self._best_score(rest)

    def _partition_score(self, whole: int, sets: Masks) -> list[int]:
        scores, best_score = self._scores, self._best_score
        return [scores[each] + best_score(whole ^ each) for each in sets]

    def _best_score(self, mask: int) -> int:
        """The best score of a partition of a subset."""
        known = self._best.get(mask)
        if known is None:
            known = self._best[mask] = self._find(mask)
        return known

    def _find(self, mask: int) -> int:
        count = mask.bit_count()
        if count <= self.size:
            return self._scores[mask]
        bits = [bit for bit in _SINGLE_BITS if bit & mask]
        short = count % self.size
        # One set of each partition identifies it: the short one, or the one with the lowest bit.
        sets = self.sets(0, bits, short) if short else self.sets(bits[0], bits[1:], self.size - 1)
        return max(self._partition_score(mask, sets))


_SINGLE_BITS = [1 << place for place in range(MAX_MEMO_DEVICES)]


@lru_cache(maxsize=256)
def memo_of(scores: Scores, size: int) -> PartitionMemo:
    """The values of a topology, kept because it hardly ever changes."""
    return PartitionMemo(_subset_scores(scores), size)


@lru_cache(maxsize=64)
def _subset_scores(scores: Scores) -> list[int]:
    """The score of every subset."""
    found = [0]
    for place, row in enumerate(scores):
        gains = [0]
        for score in row[:place]:
            gains += [sum_so_far + score for sum_so_far in gains]
        found += [without + gained for without, gained in zip(found, gains, strict=True)]
    return found
