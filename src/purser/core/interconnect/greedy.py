"""A good set among more GPUs than can be divided up: grown from each GPU in turn, with a bound on what is given up."""

from purser.core.interconnect.ask import Ask, GpuSet
from purser.core.interconnect.topology import Scores, Topology


def greedy(topology: Topology, ask: Ask) -> GpuSet:
    """The best of the sets grown from the required GPUs, or else from each available one.

    A set grows by the GPU that adds the highest score; of equals by the one with the weaker ties to all that is
    available, which leaves good groups whole; then by the earlier one. The same holds between finished sets.

    What is given up: that the rest divides well, and that no other set scores more. By how much at worst one could is
    told by `GpuSet.at_most`; where all pairs are equal, as NVLinks are in an NVL72, that is not at all.
    """
    scores, available = topology.scores, ask.available
    ties = {place: sum(scores[place][other] for other in available) for place in available}
    seeds = [ask.required] if ask.required else [(place,) for place in available]
    best = max((_grown(scores, ask, seed, ties) for seed in seeds), key=lambda found: _merit(topology, found, ties))
    return GpuSet(tuple(place for place in available if place in best), _at_most(scores, ask))


def _merit(topology: Topology, found: tuple[int, ...], ties: dict[int, int]) -> tuple[int, int]:
    return topology.score(found), -sum(ties[place] for place in found)


def _grown(scores: Scores, ask: Ask, seed: tuple[int, ...], ties: dict[int, int]) -> tuple[int, ...]:
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
