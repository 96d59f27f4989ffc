"""What has to be done on one GPU so that grants have their instances, and what is left over. Pure."""

from collections.abc import Collection, Iterable

import msgspec

from purser.agent.nvml.driver import GpuInstance
from purser.core.mig import MigKind, MigPlacement, bits_of


class BlockedError(Exception):
    """The place of an instance is taken; the message says by what."""


class ExistingInstance(msgspec.Struct, frozen=True):
    """A GPU instance that is there, in the words of grants."""

    placement: MigPlacement
    id: int
    """NVML's."""
    computes: int
    is_known: bool = True
    """Whether the kind has its profile; otherwise the placement is one that takes as much."""


class PartitioningPlan(msgspec.Struct, frozen=True):
    """Steps, in this order."""

    destroy: tuple[ExistingInstance, ...] = ()
    fill: tuple[ExistingInstance, ...] = ()
    """That lack their compute instance."""
    create: tuple[MigPlacement, ...] = ()


def existing_instances(kind: MigKind, instances: Iterable[GpuInstance]) -> tuple[ExistingInstance, ...]:
    """The instances of a GPU. One whose profile the kind does not have, such as one for graphics, is as much as it
    takes: the profile of its size, or several of one memory slice."""
    names = {profile.number: profile for profile in kind.profiles}
    found = []
    for each in instances:
        profile = names.get(each.number)
        if profile is not None and each.start in profile.starts:
            found.append(ExistingInstance(MigPlacement(profile.name, each.start), each.id, each.computes))
        else:
            found += [
                ExistingInstance(it, each.id, each.computes, is_known=False) for it in _covering_profile(kind, each)
            ]
    return tuple(found)


def _covering_profile(kind: MigKind, instance: GpuInstance) -> list[MigPlacement]:
    plain = [profile for profile in kind.profiles if not profile.takes_media]
    for profile in plain:
        if profile.memory_slices == instance.size and instance.start in profile.starts:
            return [MigPlacement(profile.name, instance.start)]
    taken = ((1 << instance.size) - 1) << instance.start
    found = []
    for profile in sorted(plain, key=lambda each: each.memory_slices):
        for start in profile.starts:
            if taken & kind.bits(profile, start):
                found.append(MigPlacement(profile.name, start))
                taken &= ~kind.bits(profile, start)
    return found


def plan(
    kind: MigKind,
    there: Collection[ExistingInstance],
    owned: Collection[MigPlacement],
    wanted: Iterable[MigPlacement],
    named: Collection[MigPlacement],
) -> PartitioningPlan:
    """The steps to the wanted instances.

    ``owned`` are the agent's own; ``named`` are those that containers were given, which are left alone. Others of the
    agent's own are destroyed where they are in the way, even for one of the same profile, so that no data stays in
    memory; NVML refuses that while processes run on them. Raises `BlockedError` where anything else is in the way, and
    `MigGeometryError` for what the kind does not offer.
    """
    destroy: dict[int, ExistingInstance] = {}
    fill: list[ExistingInstance] = []
    create: list[MigPlacement] = []
    for placement in wanted:
        bits = bits_of(kind, placement)
        overlapping = [each for each in there if bits_of(kind, each.placement) & bits]
        exact = next((each for each in overlapping if each.placement == placement and each.is_known), None)
        if exact is not None and placement in owned and placement in named and exact.computes <= 1:
            if not exact.computes:
                fill.append(exact)
            continue
        for each in overlapping:
            _check_free(each, placement, owned, named)
            destroy[each.id] = each
        create.append(placement)
    return PartitioningPlan(tuple(destroy.values()), tuple(fill), tuple(create))


def _check_free(
    each: ExistingInstance, wanted: MigPlacement, owned: Collection[MigPlacement], named: Collection[MigPlacement]
) -> None:
    where = f"{wanted.profile} at memory slice {wanted.start}"
    what = f"GPU instance {each.id} ({each.placement.profile} at memory slice {each.placement.start})"
    if not each.is_known or each.placement not in owned:
        raise BlockedError(f"no room for {where}: its place is taken by {what}, which Purser did not create")
    if each.placement in named and each.placement != wanted:
        raise BlockedError(f"no room for {where}: {what} is allocated to another container")


def leftover_instances(
    there: Iterable[ExistingInstance], owned: Collection[MigPlacement], named: Collection[MigPlacement]
) -> tuple[ExistingInstance, ...]:
    """The agent's own that no grant names."""
    return tuple(each for each in there if each.is_known and each.placement in owned and each.placement not in named)
