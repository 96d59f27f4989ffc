"""What is asked of a policy, and what it answers."""

from collections.abc import Callable, Iterable

import msgspec

from purser.core.interconnect.topology import Topology

NOT_THERE = -1
"""The position of a device that the topology does not have."""


class Ask(msgspec.Struct, frozen=True):
    """Which set is wanted. Devices are positions in a `Topology`."""

    available: tuple[int, ...]
    """Distinct; where two sets are equally good their order decides, the earlier ones first."""
    size: int
    required: tuple[int, ...] = ()
    """These must be in the set."""
    opened: frozenset[int] = frozenset()
    """Where GPUs are shared: those that already hold a share. Only `aligned` looks at it."""

    @property
    def possible(self) -> bool:
        """Whether there is any set at all."""
        required = set(self.required)
        return 0 < self.size <= len(self.available) and len(required) <= self.size and required <= set(self.available)


class GpuSet(msgspec.Struct, frozen=True):
    """A policy's answer."""

    devices: tuple[int, ...] = ()
    """Empty: no such set."""
    at_most: int | None = None
    """None: this is exactly the set that the policy's rule defines. Otherwise it was too costly to find: the set is a
    good one, and no set of its size has a score (`Topology.score`) above this."""


Policy = Callable[[Topology, Ask], GpuSet]
"""A pure function; whatever it is asked it answers, with an empty set if need be."""

NO_SET = GpuSet()


def ask_by_uuid(
    topology: Topology,
    available: Iterable[str],
    size: int,
    required: Iterable[str] = (),
    opened: Iterable[str] = (),
) -> Ask:
    """An `Ask` in uuids, as kubelet's GetPreferredAllocation has it.

    What is available but lost or unknown to the topology is left out: one GPU that fell off the bus must not cost the
    others their set. A required one that is lost makes the ask impossible.
    """
    place = {uuid: position for position, uuid in enumerate(topology.uuids) if position not in topology.lost}
    return Ask(
        available=tuple(dict.fromkeys(place[uuid] for uuid in available if uuid in place)),
        size=size,
        required=tuple(dict.fromkeys(place.get(uuid, NOT_THERE) for uuid in required)),
        opened=frozenset(place[uuid] for uuid in opened if uuid in place),
    )


def uuids_of(topology: Topology, chosen: GpuSet) -> tuple[str, ...]:
    """The set in uuids."""
    return tuple(topology.uuids[position] for position in chosen.devices)
