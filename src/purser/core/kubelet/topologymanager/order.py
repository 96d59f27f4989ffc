"""Which of two masks is better: sort keys, the smaller the better. All end in the mask, so that none are equal."""

from collections.abc import Callable, Mapping

from purser.core.kubelet.masks import Mask, nodes_of

Distances = Mapping[int, tuple[int, ...]]
"""By NUMA node: the distances to node 0, 1, 2 and so on."""

Key = tuple[float, ...]
Fitness = Callable[[Mask], Key]


def narrowness(mask: Mask) -> Key:
    """Fewer nodes first, then the smaller value (kubelet's IsNarrowerThan)."""
    return mask.bit_count(), mask


def closeness(distances: Distances) -> Fitness:
    """Fewer nodes first, then the smaller average distance, then the smaller value (NUMAInfo.Closest)."""

    def closer(mask: Mask) -> Key:
        return mask.bit_count(), average_distance(distances, mask), mask

    return closer


def average_distance(distances: Distances, mask: Mask) -> float:
    """The mean over all ordered pairs of nodes of a mask, each node's distance to itself included; 0 for no nodes.

    A distance that the machine does not report counts as 0; kubelet panics there.
    """
    nodes = nodes_of(mask)
    if not nodes:
        return 0.0
    return sum(_distance(distances, one, other) for one in nodes for other in nodes) / len(nodes) ** 2


def _distance(distances: Distances, one: int, other: int) -> int:
    row = distances.get(one, ())
    return row[other] if other < len(row) else 0


def nearness(best_count: int, fitness: Fitness) -> Fitness:
    """Of hints that are not preferred: exactly ``best_count`` nodes first, then the widest of the narrower ones, then
    the narrowest of the wider ones."""

    def nearer(mask: Mask) -> Key:
        count = mask.bit_count()
        if count == best_count:
            return 0, 0, *fitness(mask)
        return (1, -count, *fitness(mask)) if count < best_count else (2, count, *fitness(mask))

    return nearer
