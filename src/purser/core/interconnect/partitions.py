"""The best partition of some GPUs into sets of one size, and the first set of it, without enumerating partitions.

A partition divides the available GPUs into sets of ``size``; one set is short where the size does not divide. Its
score is the sum over its sets. Of equally good partitions the one wins that go-gpuallocator meets first: it builds
partitions set by set, each set from the earliest GPU that is left together with others in ascending order of their
place among the available ones, a short set after all full ones that begin alike.

The best score of what is left depends only on which GPUs are left, not on how one came there, and neither on the order
of the available ones. So it is computed once for each subset that is met (`PartitionScores`), and the first of the best
partitions is read off it set by set. Sets of GPUs are bit masks: bit i is position i of the topology.
"""

from collections.abc import Iterator
from typing import Any, Protocol

Bits = list[int]
"""Single-bit masks in the order of the available GPUs."""


class Masks(Protocol):
    """Sets in the order in which they are met: a list, or an array of numpy."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __getitem__(self, place: int, /) -> Any: ...


class PartitionScores(Protocol):
    """The best scores of partitions into sets of one size on one topology."""

    size: int

    def score(self, mask: int) -> int:
        """The score of one set."""

    def sets(self, fixed: int, others: Bits, missing: int) -> Masks:
        """Every set of ``fixed`` and ``missing`` of the others, in ascending order of the others' places."""

    def first_best(self, whole: int, sets: Masks) -> tuple[int, int]:
        """The best score of a partition of ``whole`` that holds one of the sets, and the first set that is in one."""

    def all_best(self, whole: int, sets: Masks) -> Masks:
        """The sets which a partition of ``whole`` with that best score holds."""

    def beside(self, whole: int, one: int, ties: Masks) -> Masks:
        """Those of the ties that share a best partition with the set ``one``.

        The ties are equally good sets: for each there is a best partition of ``whole`` that holds it.
        """

    def first_set_beside(self, left: Bits, length: int, ties: Masks) -> int | None:
        """The first set of that length with the earliest GPU left that shares a best partition with any of the ties."""


def best_set(values: PartitionScores, available: Bits, required: int) -> int:
    """The first best set of the first best partition that has all of ``required`` in one full set.

    There are at least ``values.size`` available, and ``required`` is among them and no larger.
    """
    if required:
        return _set_of_required(values, available, required)
    full = (each for each in _first_partition(values, available) if each.bit_count() == values.size)
    return max(full, key=values.score)


def _first_partition(values: PartitionScores, left: Bits) -> Iterator[int]:
    while left:
        chosen = _first_set(values, left)
        yield chosen
        left = _without_members(left, chosen)


def _first_set(values: PartitionScores, left: Bits) -> int:
    """The first set of the first best partition of what is left."""
    if len(left) <= values.size:
        return sum(left)
    whole, low, others = sum(left), left[0], left[1:]
    best, chosen = values.first_best(whole, values.sets(low, others, values.size - 1))
    short = len(left) % values.size
    if short:
        best_short, chosen_short = values.first_best(whole, values.sets(low, others, short - 1))
        if best_short > best or (best_short == best and comes_first(chosen_short, chosen, left)):
            return chosen_short
    return chosen


def _set_of_required(values: PartitionScores, left: Bits, required: int) -> int:
    """The set with the required ones that is in the first best partition.

    Usually only one such set is in any best partition. Where several are, the partitions are compared by the sets
    before it, one after another.
    """
    free = _without_members(left, required)
    ties = values.all_best(sum(left), values.sets(required, free, values.size - required.bit_count()))
    while len(ties) > 1 and not left[0] & required:
        first = _first_beside(values, left, ties)
        holding = next((tie for tie in ties if tie & left[0]), None)
        if first is None or (holding is not None and comes_first(holding, first, left)):
            return int(holding if holding is not None else ties[0])
        ties = values.beside(sum(left), first, ties)
        left = _without_members(left, first)
    return int(ties[0])


def _first_beside(values: PartitionScores, left: Bits, ties: Masks) -> int | None:
    """The first set with the earliest GPU left that is beside one of the ties in a best partition."""
    short_length = len(left) % values.size
    full = values.first_set_beside(left, values.size, ties)
    short = values.first_set_beside(left, short_length, ties) if short_length else None
    if full is not None and short is not None:
        return short if comes_first(short, full, left) else full
    return short if full is None else full


def _without_members(left: Bits, mask: int) -> Bits:
    return [bit for bit in left if not bit & mask]


def comes_first(one: int, other: int, order: Bits) -> bool:
    """Whether go-gpuallocator meets ``one`` before ``other``: it holds the earliest GPU in which they differ.

    A short set that ends where the other goes on is met later: the padding it holds instead comes after all GPUs.
    """
    return next((bool(bit & one) for bit in order if bit & (one ^ other)), False)
