"""What the static policies share: machines whose good sets are known beforehand, by NVML's indexes."""

from collections.abc import Mapping

from purser.core.interconnect.ask import NO_SET, Ask, GpuSet
from purser.core.interconnect.topology import Topology

ValidSets = Mapping[int, tuple[tuple[int, ...], ...]]
"""By size the only sets that are handed out, in the order in which they are tried."""


def runs(size: int, total: int) -> tuple[tuple[int, ...], ...]:
    """Consecutive indexes: 0 to size-1, size to 2*size-1, ..."""
    return tuple(tuple(range(first, first + size)) for first in range(0, total, size))


def first_valid(topology: Topology, ask: Ask, valid: ValidSets) -> GpuSet:
    """The first valid set that is available and has all required GPUs; these come first in it."""
    if not ask.possible:
        return NO_SET
    place = {topology.indexes[position]: position for position in ask.available}
    for indexes in valid.get(ask.size, ()):
        found = [place[index] for index in indexes if index in place]
        if len(found) == ask.size and set(ask.required) <= set(found):
            return GpuSet(tuple(sorted(found, key=lambda position: position not in ask.required)))
    return NO_SET
