"""Which devices a row of containers takes, when each later one is handed the devices of those before it.

kubelet hands the devices of init containers on to the containers after them before it asks for new ones (its device
manager's ``devicesToReuse``). So the devices of a row of init containers and of the container that follows them are
nested sets, and are chosen together: the innermost devices must suit all of them. A single container is a row of one.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from purser.core.model import Device
from purser.core.placement.order import numa_nodes

Pick = Callable[[Sequence[int], int, Sequence[int]], tuple[int, ...]]
"""(candidates, most preferred first; how many; those already taken) -> the chosen, those taken first."""


class Level(msgspec.Struct, frozen=True):
    """One container of the row."""

    count: int
    order: tuple[int, ...]
    """Positions of the devices, most preferred first, that suit this container and all those after it."""
    numa_bind: bool = False
    required: tuple[int, ...] = ()
    """Positions that must be among the chosen."""


def first_come(candidates: Sequence[int], count: int, taken: Sequence[int]) -> tuple[int, ...]:
    """The most preferred ones."""
    fresh = [candidate for candidate in candidates if candidate not in taken]
    return (*taken, *fresh[: count - len(taken)])


def choose(levels: Sequence[Level], devices: Sequence[Device], pick: Pick = first_come) -> list[tuple[int, ...]] | None:
    """The devices of each container of the row, None when there is no such choice.

    A bound container has all its devices on one NUMA node, and so have those before it. The NUMA nodes are tried in the
    order of preference of their best devices until one has enough: a set that exists is found. (HAMi instead walks the
    devices once and throws away what it collected whenever the NUMA node changes.)
    """
    last_bound = max((place for place, level in enumerate(levels) if level.numa_bind), default=-1)
    if last_bound < 0:
        return _fill(levels, pick)
    for home in _homes(levels[last_bound].order, devices):
        inside = frozenset(place for place, device in enumerate(devices) if home in numa_nodes(device))
        bound = [_within(level, inside) if place <= last_bound else level for place, level in enumerate(levels)]
        chosen = _fill(bound, pick)
        if chosen is not None:
            return chosen
    return None


def _homes(order: Sequence[int], devices: Sequence[Device]) -> Iterator[int]:
    return iter(dict.fromkeys(numa for place in order for numa in numa_nodes(devices[place])))


def _within(level: Level, inside: frozenset[int]) -> Level:
    return msgspec.structs.replace(level, order=tuple(place for place in level.order if place in inside))


def _fill(levels: Sequence[Level], pick: Pick) -> list[tuple[int, ...]] | None:
    """Each level extends the one before. Enough for every level alone is enough for all: the orders are nested."""
    chosen: list[tuple[int, ...]] = []
    taken: tuple[int, ...] = ()
    for level in levels:
        taken = (*level.required, *(place for place in taken if place not in level.required))
        size = max(level.count, len(taken))
        if len(level.order) < size or len(level.required) > level.count or not set(taken) <= set(level.order):
            return None
        taken = pick(level.order, size, taken)
        chosen.append(taken[: level.count])
    return chosen
