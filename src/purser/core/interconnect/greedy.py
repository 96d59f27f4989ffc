"""A good set among more GPUs than can be divided up, with a bound on what is given up."""

from collections.abc import Iterator

from purser.core.interconnect.ask import Ask, GpuSet
from purser.core.interconnect.topology import Scores, Topology


def greedy(topology: Topology, ask: Ask) -> GpuSet:
    """The best of the sets grown from the required GPUs, or else from each available one that no set before it holds.

    A set grows by the GPU that adds the highest score; of equals by the one with the weaker ties to all that is
    available, which leaves good groups whole; then by the earlier one. The same holds between finished sets.

    Not guaranteed: that the rest divides well, and that no other set scores more. `GpuSet.at_most` bounds the best
    score; where all pairs are equal, as the NVLinks of an NVL72, the set is optimal.
    """
    ties = {place: sum(topology.scores[place][other] for other in ask.available) for place in ask.available}
    grown = _grow_all(topology.scores, ask, ties)
    best = max(grown, key=lambda found: (topology.score(found), -sum(ties[place] for place in found)))
    return GpuSet(tuple(place for place in ask.available if place in best), _at_most(topology.scores, ask))


def _grow_all(scores: Scores, ask: Ask, ties: dict[int, int]) -> Iterator[tuple[int, ...]]:
    if ask.required:
        yield _grow(scores, ask, ask.required, ties)
        return
    seen: set[int] = set()
    for place in ask.available:
        if place not in seen:
            found = _grow(scores, ask, (place,), ties)
            seen.update(found)
            yield found


def _grow(scores: Scores, ask: Ask, seed: tuple[int, ...], ties: dict[int, int]) -> tuple[int, ...]:
    found = list(seed)
    gain = {place: sum(scores[place][m] for m in seed) for place in ask.available if place not in seed}
    while len(found) < ask.size:
        newest = max(gain, key=lambda place: (gain[place], -ties[place]))
        del gain[newest]
        found.append(newest)
        row = scores[newest]
        for place in gain:
            gain[place] += row[place]
    return tuple(found)


def _at_most(scores: Scores, ask: Ask) -> int:
    """No set scores more than if each of its GPUs had its best partners: half the sum of the highest such sums."""
    reach = sorted(
        (sum(sorted((scores[one][other] for other in ask.available if other != one), reverse=True)[: ask.size - 1]))
        for one in ask.available
    )
    return sum(reach[-ask.size :]) // 2
