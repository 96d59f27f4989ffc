"""Sets of NUMA nodes as ints: bit n stands for node n (kubelet's bitmask package)."""

from collections.abc import Iterable, Iterator
from itertools import combinations

Mask = int


def mask_of(nodes: Iterable[int]) -> Mask:
    """The mask with these nodes."""
    mask = 0
    for node in nodes:
        mask |= 1 << node
    return mask


def nodes_of(mask: Mask) -> tuple[int, ...]:
    """The nodes of a mask, ascending."""
    nodes = []
    while mask:
        lowest = mask & -mask
        nodes.append(lowest.bit_length() - 1)
        mask ^= lowest
    return tuple(nodes)


def is_narrower(mask: Mask, other: Mask) -> bool:
    """Whether a mask has fewer nodes, or as many and a smaller value (kubelet's IsNarrowerThan)."""
    return (mask.bit_count(), mask) < (other.bit_count(), other)


def all_masks(nodes: Iterable[int]) -> Iterator[Mask]:
    """Every non-empty mask of some nodes: by width, then by the nodes in the order given (IterateBitMasks)."""
    bits = [1 << node for node in nodes]
    for width in range(1, len(bits) + 1):
        for chosen in combinations(bits, width):
            yield sum(chosen)
