"""Sets of NUMA nodes as ints: bit n stands for node n (kubelet's bitmask package)."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from math import comb

Mask = int

MAX_NUMA_NODE = 1023
"""The largest number of a NUMA node that Linux can be built for."""

MAX_MASKS = (1 << 12) - 1
"""Sets of NUMA nodes that are searched at most, all those of 12 nodes: kubelet itself needs hours for 2^34."""


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


def all_masks(nodes: Iterable[int]) -> Iterator[Mask]:
    """Every non-empty mask of some nodes: by width, then by the nodes in the order given (IterateBitMasks)."""
    bits = [1 << node for node in nodes]
    for width in range(1, len(bits) + 1):
        for chosen in combinations(bits, width):
            yield sum(chosen)


def masks_up_to_limit(nodes: Sequence[int]) -> Iterator[Mask]:
    """`all_masks`; where those are more than `MAX_MASKS`, whole widths up to that limit, and all nodes together."""
    width, left = 0, MAX_MASKS
    while width < len(nodes) and (left := left - comb(len(nodes), width + 1)) >= 0:
        width += 1
    for mask in all_masks(nodes):
        if mask.bit_count() > width:
            yield mask_of(nodes)
            return
        yield mask
