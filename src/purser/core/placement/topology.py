"""The word topology-aware: devices chosen by `purser.core.interconnect`, in the terms of this room.

What HAMi does by an exhaustive search for the best single set is done by dividing up the candidates, so that what is
left divides well too; and a share goes to a card that is open already.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

from purser.core.interconnect import Ask, Topology, aligned, matrix, topology
from purser.core.model import Device

Pairs = Mapping[tuple[int, int], int]
"""Score of two positions, the smaller first; a missing pair scores 0."""


def pair_scores(devices: Sequence[Device]) -> dict[tuple[int, int], int]:
    """The scores of all pairs of a node's devices that have any, by position."""
    scores = topology(devices).scores
    return {(i, j): scores[i][j] for i, j in combinations(range(len(devices)), 2) if scores[i][j]}


def pick(
    candidates: Sequence[int], count: int, taken: Sequence[int], pairs: Pairs, opened: Collection[int] = ()
) -> tuple[int, ...]:
    """``count`` candidates, those already taken among them and first; the earlier candidates win ties.

    ``opened`` are the devices that hold shares already: they are preferred.
    """
    chosen = aligned(_topology(candidates, pairs), Ask(tuple(candidates), count, tuple(taken), frozenset(opened)))
    return (*taken, *(place for place in chosen.devices if place not in taken))


def _topology(candidates: Sequence[int], pairs: Pairs) -> Topology:
    count = 1 + max((*candidates, *(place for pair in pairs for place in pair)))
    return Topology(tuple(map(str, range(count))), tuple(range(count)), matrix(count, pairs))
