"""The word topology-aware: devices chosen by `purser.core.interconnect`, in the terms of this room.

What HAMi does by an exhaustive search for the best single set is done by dividing up the candidates, so that what is
left divides well too; and a share goes to a card that is open already.
"""

from collections.abc import Collection, Sequence

from purser.core.interconnect import Ask, Topology, aligned


def pick(
    candidates: Sequence[int], count: int, taken: Sequence[int], topology: Topology, opened: Collection[int] = ()
) -> tuple[int, ...]:
    """``count`` candidates, those already taken among them and first; the earlier candidates win ties.

    ``opened`` are the devices that hold shares already: they are preferred.
    """
    chosen = aligned(topology, Ask(tuple(candidates), count, tuple(taken), frozenset(opened)))
    return (*taken, *(place for place in chosen.devices if place not in taken))
