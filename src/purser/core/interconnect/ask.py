"""What is asked of a policy, and what it answers."""

from collections.abc import Callable

import msgspec

from purser.core.interconnect.topology import Topology


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
