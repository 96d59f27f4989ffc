"""Geometry: ten thousand creations and deletions (fewer in the fast tier), and small cases by trying everything."""

from itertools import combinations_with_replacement, product
from random import Random

import pytest
from tests.tiers import IS_LONG

from purser.core.mig import (
    MIG_KINDS,
    MigGeometry,
    MigGeometryError,
    MigKind,
    MigPlacement,
    free_starts,
    pack_instances,
)
from purser.core.mig.choice import chooser, room_table

KINDS = list(MIG_KINDS.values())
A30, A100 = MIG_KINDS["A30"], MIG_KINDS["A100-40GB"]
STEPS = 10_000 if IS_LONG else 300


def slices(kind: MigKind, placement: MigPlacement) -> set[int | str]:
    """What an instance takes, without masks."""
    profile = kind.profile(placement.profile)
    assert profile is not None
    taken: set[int | str] = {*range(placement.start, placement.start + profile.memory_slices)}
    return taken | ({"media"} if profile.name.endswith("+me") else set())


def fit(kind: MigKind, placements: tuple[MigPlacement, ...]) -> bool:
    taken = [each for placement in placements for each in slices(kind, placement)]
    return len(taken) == len(set(taken))


@pytest.mark.parametrize("kind", [A30, A100], ids=lambda kind: kind.name)
def test_nothing_overlaps_and_nothing_leaks(kind: MigKind) -> None:
    chance, table = Random(1), room_table(kind)
    choices = chooser(kind, {profile.name: chance.random() for profile in kind.profiles})
    geometry, refused = MigGeometry(kind), 0
    for _ in range(STEPS):
        if geometry.instances and chance.random() < 0.45:
            geometry = geometry.destroyed(chance.choice(geometry.instances))
        else:
            column = chance.randrange(len(kind.profiles))
            profile = kind.profiles[column]
            placement = choices.choose(profile.name, geometry.mask)
            more = [MigPlacement(profile.name, start) for start in profile.starts]
            beside = [each for each in more if fit(kind, (*geometry.instances, each))]
            assert (placement is not None) is bool(beside) is bool(table[geometry.mask, column])
            refused += placement is None
            if placement is not None:
                assert placement in beside
                geometry = geometry.created(placement)
        assert fit(kind, geometry.instances)
        assert MigGeometry.of(kind, geometry.instances) == geometry
        computes = [found.compute_slices for each in geometry.instances if (found := kind.profile(each.profile))]
        assert sum(computes) <= min(kind.slices, 7)
    assert refused > STEPS / 20
    for each in geometry.instances:
        geometry = geometry.destroyed(each)
    assert geometry == MigGeometry(kind)


@pytest.mark.parametrize("kind", [A30, A100], ids=lambda kind: kind.name)
def test_room_is_what_can_be_created(kind: MigKind) -> None:
    for column, profile in enumerate(kind.profiles):
        places = [kind.bits(profile, start) for start in profile.starts]
        for mask in Random(2).sample(range(kind.masks), 30):
            sets = [chosen for chosen in product((0, 1), repeat=len(places)) if disjoint(mask, places, chosen)]
            assert room_table(kind)[mask, column] == max(map(sum, sets))
            assert len(free_starts(kind, profile, mask)) == sum(sum(chosen) == 1 for chosen in sets)


def disjoint(mask: int, places: list[int], chosen: tuple[int, ...]) -> bool:
    for bits in (bits for bits, is_chosen in zip(places, chosen, strict=True) if is_chosen):
        if mask & bits:
            return False
        mask |= bits
    return True


@pytest.mark.parametrize(("kind", "most"), [(A30, 4 + IS_LONG), (A100, 2 + IS_LONG)], ids=["A30", "A100"])
def test_packed_finds_places_wherever_there_are_any(kind: MigKind, most: int) -> None:
    for size in range(most + 1):
        for wanted in combinations_with_replacement(kind.profiles, size):
            names = tuple(profile.name for profile in wanted)
            ways = product(*([MigPlacement(profile.name, start) for start in profile.starts] for profile in wanted))
            found = pack_instances(kind, names)
            assert (found is not None) is any(fit(kind, way) for way in ways), names
            if found is not None:
                assert fit(kind, found)
                assert tuple(each.profile for each in found) == names


def test_packed_beside_what_is_taken() -> None:
    seven = ["1g.5gb"] * 7
    assert pack_instances(A100, seven) is not None
    assert pack_instances(A100, seven, mask=1) is None
    assert pack_instances(A100, ["3g.20gb", "2g.10gb"], mask=0b0000_0100) == (
        MigPlacement("3g.20gb", 4),
        MigPlacement("2g.10gb", 0),
    )


@pytest.mark.parametrize(
    ("placement", "complaint"),
    [
        (MigPlacement("1g.10gb+me", 0), "has no profile 1g.10gb.me: it has 1g.5gb,"),
        (MigPlacement("1g.5gb", 7), "1g.5gb begins at 0, 1, 2, 3, 4, 5, 6, not at 7"),
        (MigPlacement("3g.20gb", 4), "3g.20gb at 4 overlaps with 2g.10gb at 4$"),
        (MigPlacement("1g.5gb+me", 6), "overlaps"),
    ],
)
def test_what_is_impossible_is_named(placement: MigPlacement, complaint: str) -> None:
    there = MigGeometry.of(A100, [MigPlacement("2g.10gb", 4), MigPlacement("1g.5gb+me", 0)])
    with pytest.raises(MigGeometryError, match=complaint):
        there.created(placement)
    with pytest.raises(MigGeometryError):
        there.destroyed(placement)
