"""Sets of devices by how well they are connected (policy topology-aware).

A pair's score adds what PCIe and NVLink contribute: by the nearest common ancestor 10 (across CPUs) to 60 (same board),
and 100 for each NVLink. Where the two ends disagree on the number of NVLinks the pair scores 0.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from purser.core.model import Device, Link, PcieLevel

Pairs = Mapping[tuple[int, int], int]
"""Score of two positions, the smaller first; a missing pair scores 0."""

_PCIE = {
    PcieLevel.CROSS_CPU: 10,
    PcieLevel.SAME_CPU: 20,
    PcieLevel.HOST_BRIDGE: 30,
    PcieLevel.MULTI_SWITCH: 40,
    PcieLevel.SINGLE_SWITCH: 50,
    PcieLevel.SAME_BOARD: 60,
}
_NVLINK = 100


def pair_scores(devices: Sequence[Device]) -> dict[tuple[int, int], int]:
    """The scores of all pairs of a node's devices that have any, by position."""
    links = [{link.peer: link for link in device.links} for device in devices]
    scores = {}
    for i, j in combinations(range(len(devices)), 2):
        score = _pair_score(links[i].get(devices[j].uuid), links[j].get(devices[i].uuid))
        if score:
            scores[i, j] = score
    return scores


def _pair_score(there: Link | None, back: Link | None) -> int:
    if there is None or back is None or there.nvlinks != back.nvlinks:
        return 0
    return (_PCIE[there.pcie] if there.pcie is not None else 0) + _NVLINK * there.nvlinks


def pick(candidates: Sequence[int], count: int, taken: Sequence[int], pairs: Pairs) -> tuple[int, ...]:
    """``count`` candidates, those already taken among them; the earlier candidates win ties.

    One device: the one worst connected to the other candidates, which keeps the good ones together for larger requests.
    More: the set with the highest sum of pair scores.
    """
    if len(candidates) <= count:
        return (*taken, *(c for c in candidates if c not in taken))
    if count == 1:
        return tuple(taken) or (_worst_single(candidates, pairs),)
    return _best_set(candidates, count, tuple(taken), pairs)


def _score(i: int, j: int, pairs: Pairs) -> int:
    return pairs.get((i, j) if i < j else (j, i), 0)


def _worst_single(candidates: Sequence[int], pairs: Pairs) -> int:
    return min(candidates, key=lambda c: sum(_score(c, other, pairs) for other in candidates if other != c))


def _best_set(candidates: Sequence[int], count: int, taken: tuple[int, ...], pairs: Pairs) -> tuple[int, ...]:
    """Exhaustive, yet it stops at the first set that no other can beat: at once where all pairs are equal."""
    free = [c for c in candidates if c not in taken]
    best_pair = max((_score(i, j, pairs) for i, j in combinations(candidates, 2)), default=0)
    bound = best_pair * (count * (count - 1) // 2)
    best: tuple[int, ...] = ()
    best_score: int | None = None
    for members, score in _sets(free, count - len(taken), taken, _inside(taken, pairs), pairs):
        if best_score is None or score > best_score:
            best, best_score = members, score
            if score >= bound:
                break
    return best


def _inside(members: Sequence[int], pairs: Pairs) -> int:
    return sum(_score(i, j, pairs) for i, j in combinations(members, 2))


def _sets(
    free: Sequence[int], missing: int, members: tuple[int, ...], score: int, pairs: Pairs
) -> Iterator[tuple[tuple[int, ...], int]]:
    """All completions of ``members`` with their scores, summed up on the way."""
    if not missing:
        yield members, score
        return
    for place in range(len(free) - missing + 1):
        device = free[place]
        gained = sum(_score(device, member, pairs) for member in members)
        yield from _sets(free[place + 1 :], missing - 1, (*members, device), score + gained, pairs)
