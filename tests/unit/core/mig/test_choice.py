"""Where an instance is created: the best place for what is asked next, by trying everything."""

from collections.abc import Mapping
from functools import cache
from random import Random

import pytest

from purser.core.mig import MIG_KINDS, MigGeometryError, MigKind, MigPlacement, MigProfile
from purser.core.mig.choice import LOOKAHEAD, chooser

A30, A100 = MIG_KINDS["A30"], MIG_KINDS["A100-40GB"]


def expected(kind: MigKind, weights: Mapping[str, float], mask: int, more: int) -> float:
    """Memory slices that so many requests get, of a list of all that may be asked and all that may be done."""
    total = sum(weights.values())

    @cache
    def served(mask: int, more: int) -> float:
        return more and sum(
            weights.get(profile.name, 0) / total * best(profile, mask, more) for profile in kind.profiles
        )

    def best(profile: MigProfile, mask: int, more: int) -> float:
        ways = [kind.bits(profile, start) for start in profile.starts]
        placed = [profile.memory_slices + served(mask | bits, more - 1) for bits in ways if not mask & bits]
        return max([served(mask, more - 1), *placed])

    return served(mask, more)


@pytest.mark.parametrize("kind", [A30, A100], ids=lambda kind: kind.name)
def test_the_optimum_for_the_next_requests(kind: MigKind) -> None:
    chance = Random(3)
    weights = {profile.name: chance.choice((0, 1, 2, 5)) for profile in kind.profiles} | {kind.profiles[0].name: 3}
    choices = chooser(kind, weights)
    for mask in chance.sample(range(kind.masks), 12):
        assert choices.values[mask] == pytest.approx(expected(kind, weights, mask, LOOKAHEAD))
        for profile in kind.profiles:
            after = {
                start: expected(kind, weights, mask | bits, LOOKAHEAD)
                for start in profile.starts
                if not mask & (bits := kind.bits(profile, start))
            }
            chosen = choices.choose(profile.name, mask)
            assert (chosen is None) is (not after)
            if chosen is not None:
                assert after[chosen.start] == pytest.approx(max(after.values()))


@pytest.mark.parametrize(
    ("weights", "taken", "profile", "start"),
    [
        ({}, 0, "1g.5gb", 6),  # the slice that nothing but it and the largest uses
        ({}, 0, "2g.10gb", 4),  # 4g has to lie below
        ({}, 0, "3g.20gb", 4),
        ({}, 0b0011_0000, "1g.5gb", 6),
        ({"3g.20gb": 1, "1g.5gb": 3}, 0b0000_0001, "1g.5gb", 3),  # the half that is broken already
        ({}, 0b0000_0001, "4g.20gb", None),
        ({}, 0, "9g.90gb", None),
    ],
)
def test_what_is_left_stays_useful(weights: dict[str, float], taken: int, profile: str, start: int | None) -> None:
    chosen = chooser(A100, weights).choose(profile, taken)
    assert chosen == (None if start is None else MigPlacement(profile, start))


def test_of_several_gpus_the_one_that_loses_least_room() -> None:
    choices = chooser(A100, {"1g.5gb": 1, "3g.20gb": 1})
    assert choices.loss("1g.5gb", 0) == 0.5 * 1 + 0.5 * 4  # a place for 1g, and a half for 3g
    assert choices.loss("1g.5gb", 0b0000_0001) == 0.5 * 1
    assert choices.loss("3g.20gb", 0b0000_0001) == 0.5 * 3 + 0.5 * 4
    assert choices.loss("3g.20gb", 0b0001_0001) is None


def test_a_mix_is_of_what_is_offered() -> None:
    with pytest.raises(MigGeometryError, match=r"A30 does not offer 1g.5gb"):
        chooser(A30, {"1g.5gb": 1})
