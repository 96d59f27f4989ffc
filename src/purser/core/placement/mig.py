"""MIG: which profile a request gets, and where on the card it goes.

A card has memory slices; a profile occupies a run of them and may start only at certain places. Facts: NVML's
possible placements; the choice is HAMi's, whose rule keeps the large profiles' places free for longest.
"""

from collections.abc import Iterable, Sequence

import msgspec


class MigPlacement(msgspec.Struct, frozen=True):
    """A run of memory slices of a card."""

    start: int
    size: int

    def overlaps(self, other: "MigPlacement") -> bool:
        """Whether the two share a slice."""
        return self.start < other.start + other.size and other.start < self.start + self.size


class MigProfile(msgspec.Struct, frozen=True):
    """One kind of instance a card can be cut into."""

    name: str
    memory_mib: int
    cores_percent: int
    placements: tuple[MigPlacement, ...]


class MigChoice(msgspec.Struct, frozen=True):
    """An instance to create; its profile's memory and compute are what is charged."""

    profile: MigProfile
    placement: MigPlacement


def choose_profile(profiles: Iterable[MigProfile], memory_mib: int, taken: Sequence[MigPlacement]) -> MigChoice | None:
    """The smallest profile with enough memory that still has a place, None when there is none."""
    large_enough = (profile for profile in profiles if profile.memory_mib >= memory_mib)
    for profile in sorted(large_enough, key=lambda p: (p.memory_mib, p.name)):
        placement = free_placement(profile, taken)
        if placement is not None:
            return MigChoice(profile, placement)
    return None


def free_placement(profile: MigProfile, taken: Sequence[MigPlacement]) -> MigPlacement | None:
    """Where an instance of this profile goes: 1g and 3g as high as possible, the others as low as possible."""
    free = [place for place in profile.placements if not any(place.overlaps(other) for other in taken)]
    end = max if profile.name.startswith(("1g.", "3g.")) else min
    return end(free, key=lambda place: place.start, default=None)


def feasible(wanted: Sequence[MigProfile], taken: Sequence[MigPlacement] = ()) -> bool:
    """Whether all these instances fit one card together, in some arrangement."""
    if not wanted:
        return True
    first, rest = wanted[0], wanted[1:]
    return any(
        feasible(rest, (*taken, place))
        for place in first.placements
        if not any(place.overlaps(other) for other in taken)
    )
