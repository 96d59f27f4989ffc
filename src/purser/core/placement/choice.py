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
    groups: tuple[frozenset[int], ...] | None = None
    """Positions that go together: the container gets whole groups. None: any."""


def pick_first(candidates: Sequence[int], count: int, taken: Sequence[int]) -> tuple[int, ...]:
    """The most preferred ones."""
    fresh = [candidate for candidate in candidates if candidate not in taken]
    return (*taken, *fresh[: count - len(taken)])


def choose(
    steps: Sequence[ContainerStep], devices: Sequence[Device], pick: Pick = pick_first
) -> list[tuple[int, ...]] | None:
    """The first of `choices`, None when there is none."""
    return next(choices(steps, devices, pick), None)


def choices(
    steps: Sequence[ContainerStep], devices: Sequence[Device], pick: Pick = pick_first
) -> Iterator[list[tuple[int, ...]]]:
    """The devices of each container of the row, the best first: one choice, or one for each NUMA node that will do.

    A bound container has all its devices on one NUMA node, and so have those before it. The NUMA nodes are tried in the
    order of preference of their best devices until one has enough: a set that exists is found. (HAMi instead walks the
    devices once and throws away what it collected whenever the NUMA node changes.) Whole groups are such a set.

    Where a container wants several, all are MIG devices, or none is.
    """
    for same_kind_steps in _single_kind_choice(steps, devices):
        yield from _choices(same_kind_steps, devices, pick)


def _single_kind_choice(steps: Sequence[ContainerStep], devices: Sequence[Device]) -> Iterator[Sequence[ContainerStep]]:
    """The row with MIG devices alone and with others alone, the sort of the most preferred device first."""
    order = steps[-1].order if steps else ()
    kinds = dict.fromkeys(devices[place].is_mig for place in order)
    if len(kinds) < 2 or max(step.count for step in steps) < 2:
        yield steps
        return
    for is_mig in kinds:
        inside = frozenset(place for place in order if devices[place].is_mig is is_mig)
        yield [_within(step, inside) for step in steps]


def _choices(steps: Sequence[ContainerStep], devices: Sequence[Device], pick: Pick) -> Iterator[list[tuple[int, ...]]]:
    last_bound = max((at for at, step in enumerate(steps) if step.numa_bind or step.groups is not None), default=-1)
    if last_bound < 0:
        if (chosen := _fill(steps, pick)) is not None:
            yield chosen
        return
    for inside in _numa_candidates(steps[last_bound], devices):
        bound = [_within(step, inside) if place <= last_bound else step for place, step in enumerate(steps)]
        chosen = _fill(bound, pick)
        if chosen is not None:
            yield chosen


def _numa_candidates(step: ContainerStep, devices: Sequence[Device]) -> Iterator[frozenset[int]]:
    """The positions inside of which a bound container has its devices, most preferred first."""
    if step.groups is not None:
        yield _whole_groups(step.groups, step)
        return
    for numa_node in dict.fromkeys(numa for place in step.order for numa in numa_nodes(devices[place])):
        yield frozenset(place for place, device in enumerate(devices) if numa_node in numa_nodes(device))


def _whole_groups(groups: Sequence[frozenset[int]], step: ContainerStep) -> frozenset[int]:
    """As many as the container needs, most preferred first; where groups overlap those that leave the most of the
    others whole, and then the earliest."""
    rank = {place: at for at, place in enumerate(step.order)}
    free = [group for group in groups if group <= rank.keys()]
    overlaps = [sum(not group.isdisjoint(other) for other in free) for group in free]

    def key(at: int) -> tuple[int, int, list[int]]:
        return overlaps[at], at if overlaps[at] > 1 else 0, sorted(rank[place] for place in free[at])

    chosen: frozenset[int] = frozenset()
    for at in sorted(range(len(free)), key=key):
        if len(chosen) < step.count and chosen.isdisjoint(free[at]):
            chosen |= free[at]
    return chosen


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


def pick_connected(
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
