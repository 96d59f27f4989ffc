"""What lies where on a GPU that is cut by MIG, what is legal, and what still fits."""

from collections.abc import Iterable, Sequence

import msgspec

from purser.core.mig.profiles import MigKind, MigProfile
from purser.core.model import MigPlacement as MigPlacement


class MigGeometryError(ValueError):
    """An instance that cannot be there; the message says why."""


class MigGeometry(msgspec.Struct, frozen=True):
    """The instances of one GPU. No two ever overlap: there is no other way to make one."""

    kind: MigKind
    instances: tuple[MigPlacement, ...] = ()
    mask: int = 0
    """What they take."""

    @classmethod
    def of(cls, kind: MigKind, instances: Iterable[MigPlacement]) -> "MigGeometry":
        """Of instances that are said to be there, in their order. Raises `MigGeometryError`."""
        found = cls(kind)
        for each in instances:
            found = found.created(each)
        return found

    def created(self, placement: MigPlacement) -> "MigGeometry":
        """With one more. Raises `MigGeometryError` for what the GPU does not offer, and where something is."""
        taken = bits_of(self.kind, placement)
        if taken & self.mask:
            where = f"{placement.profile} at {placement.start}"
            there = [each for each in self.instances if taken & bits_of(self.kind, each)]
            raise MigGeometryError(f"{self.kind.name}: {where} overlaps with {_listed(there)}")
        return MigGeometry(self.kind, (*self.instances, placement), self.mask | taken)

    def destroyed(self, placement: MigPlacement) -> "MigGeometry":
        """Without it. Raises `MigGeometryError` where it is not there."""
        if placement not in self.instances:
            where = f"there is no {placement.profile} at {placement.start}"
            raise MigGeometryError(f"{self.kind.name}: {where} (instances: {_listed(self.instances)})")
        left = tuple(each for each in self.instances if each != placement)
        return MigGeometry(self.kind, left, self.mask & ~bits_of(self.kind, placement))


def _listed(instances: Sequence[MigPlacement]) -> str:
    return ", ".join(f"{each.profile} at {each.start}" for each in instances) or "none"


def bits_of(kind: MigKind, placement: MigPlacement) -> int:
    """What an instance takes, as a mask. Raises `MigGeometryError` for what these GPUs do not offer."""
    profile = offered_profile(kind, placement.profile)
    if placement.start not in profile.starts:
        starts = ", ".join(map(str, profile.starts))
        raise MigGeometryError(f"{kind.name}: {profile.name} begins at {starts}, not at {placement.start}")
    return kind.bits(profile, placement.start)


def offered_profile(kind: MigKind, name: str) -> MigProfile:
    """The profile of that name. Raises `MigGeometryError` where these GPUs offer none."""
    if (found := kind.profile(name)) is None:
        offered = ", ".join(each.name for each in kind.profiles)
        raise MigGeometryError(f"{kind.name} has no profile {name}: it has {offered}")
    return found


def free_starts(kind: MigKind, profile: MigProfile, mask: int) -> tuple[int, ...]:
    """Where one more of the profile may begin, ascending."""
    return tuple(start for start in profile.starts if not kind.bits(profile, start) & mask)


def pack_instances(kind: MigKind, profiles: Sequence[str], mask: int = 0) -> tuple[MigPlacement, ...] | None:
    """Places for all of these at once, beside what is taken; None: there are none, whatever the order.

    In the order in which they are named. Raises `MigGeometryError` for a profile that these GPUs do not offer.
    """
    order = sorted(
        (offered_profile(kind, name) for name in profiles), key=lambda each: (-each.memory_slices, each.name)
    )
    starts = _starts_for(kind, order, mask, 0, set())
    if starts is None:
        return None
    found: dict[str, list[int]] = {}
    for profile, start in zip(order, starts, strict=True):
        found.setdefault(profile.name, []).append(start)
    return tuple(MigPlacement(name, found[name].pop(0)) for name in profiles)


def _starts_for(
    kind: MigKind, order: Sequence[MigProfile], mask: int, at: int, dead_ends: set[tuple[int, int]]
) -> tuple[int, ...] | None:
    """Starts for all from ``at`` on; what is known to lead nowhere is not tried again."""
    if at == len(order):
        return ()
    if (mask, at) in dead_ends:
        return None
    for start in free_starts(kind, order[at], mask):
        more = _starts_for(kind, order, mask | kind.bits(order[at], start), at + 1, dead_ends)
        if more is not None:
            return (start, *more)
    dead_ends.add((mask, at))
    return None
