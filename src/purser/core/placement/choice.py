"""Which devices a row of containers takes, when each later one is handed the devices of those before it.

kubelet hands the devices of init containers on to the containers after them before it asks for new ones (its device
manager's ``devicesToReuse``). So the devices of a row of init containers and of the container that follows them are
nested sets, and are chosen together: the innermost devices must suit all of them. A single container is a row of one.
"""

from collections.abc import Callable, Collection, Iterator, Sequence

import msgspec

from purser.core.interconnect import Ask, Topology, aligned
from purser.core.model import Device
from purser.core.placement.order import numa_nodes

Pick = Callable[[Sequence[int], int, Sequence[int]], tuple[int, ...]]
"""(candidates, most preferred first; how many; those already taken) -> the chosen, those taken first."""


class ContainerStep(msgspec.Struct, frozen=True):
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


def choose(
    steps: Sequence[ContainerStep], devices: Sequence[Device], pick: Pick = first_come
) -> list[tuple[int, ...]] | None:
    """The devices of each container of the row, None when there is no such choice.

    A bound container has all its devices on one NUMA node, and so have those before it. The NUMA nodes are tried in the
    order of preference of their best devices until one has enough: a set that exists is found. (HAMi instead walks the
    devices once and throws away what it collected whenever the NUMA node changes.)
    """
    last_bound = max((place for place, step in enumerate(steps) if step.numa_bind), default=-1)
    if last_bound < 0:
        return _fill(steps, pick)
    for home in _homes(steps[last_bound].order, devices):
        inside = frozenset(place for place, device in enumerate(devices) if home in numa_nodes(device))
        bound = [_within(step, inside) if place <= last_bound else step for place, step in enumerate(steps)]
        chosen = _fill(bound, pick)
        if chosen is not None:
            return chosen
    return None


def _homes(order: Sequence[int], devices: Sequence[Device]) -> Iterator[int]:
    return iter(dict.fromkeys(numa for place in order for numa in numa_nodes(devices[place])))


def _within(step: ContainerStep, inside: frozenset[int]) -> ContainerStep:
    return msgspec.structs.replace(step, order=tuple(place for place in step.order if place in inside))


def _fill(steps: Sequence[ContainerStep], pick: Pick) -> list[tuple[int, ...]] | None:
    """Each step extends the one before. Enough for every step alone is enough for all: the orders are nested."""
    chosen: list[tuple[int, ...]] = []
    taken: tuple[int, ...] = ()
    for step in steps:
        taken = (*step.required, *(place for place in taken if place not in step.required))
        size = max(step.count, len(taken))
        if len(step.order) < size or len(step.required) > step.count or not set(taken) <= set(step.order):
            return None
        taken = pick(step.order, size, taken)
        chosen.append(taken[: step.count])
    return chosen


def connected(
    candidates: Sequence[int], count: int, taken: Sequence[int], topology: Topology, opened: Collection[int] = ()
) -> tuple[int, ...]:
    """The pick of topology-aware: ``count`` candidates that are well connected, and leave well connected ones behind
    (`purser.core.interconnect`), those already taken among them and first; the earlier candidates win ties.

    What HAMi does by an exhaustive search for the best single set is done by dividing up the candidates, so that what
    is left divides well too; and a share goes to a GPU that is open already.

    ``opened`` are the devices that hold shares already: they are preferred.
    """
    chosen = aligned(topology, Ask(tuple(candidates), count, tuple(taken), frozenset(opened)))
    return (*taken, *(place for place in chosen.devices if place not in taken))
