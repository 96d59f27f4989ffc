"""HAMi's MIG choices on an A100-40GB. Source: its device/nvidia/mig_topology_test.go."""

import pytest

from purser.core.placement.mig import MigChoice, MigPlacement, MigProfile, choose_profile, feasible, free_placement


def profile(name: str, memory: int, cores: int, size: int, *starts: int) -> MigProfile:
    return MigProfile(name, memory, cores, tuple(MigPlacement(start, size) for start in starts))


ONE = profile("1g.5gb", 4864, 14, 1, 0, 1, 2, 3, 4, 5, 6)
TWO = profile("2g.10gb", 10240, 28, 2, 0, 2, 4)
THREE = profile("3g.20gb", 20096, 42, 4, 0, 4)
A100 = (THREE, ONE, TWO)


def test_instances_are_placed_where_they_leave_most_room() -> None:
    taken: list[MigPlacement] = []
    for wanted, start in ((THREE, 4), (TWO, 0), (ONE, 3), (ONE, 2)):
        place = free_placement(wanted, taken)
        assert place is not None and place.start == start, wanted.name
        taken.append(place)


def test_a_mixed_set_fits_one_card() -> None:
    assert feasible((THREE, TWO, ONE, ONE))
    assert not feasible((THREE, THREE, ONE))


def test_a_full_card_takes_no_small_instance() -> None:
    assert free_placement(ONE, [MigPlacement(0, 4), MigPlacement(4, 4)]) is None


def test_after_three_middle_instances_one_small_one_fits() -> None:
    taken = [MigPlacement(start, 2) for start in (0, 2, 4)]
    assert free_placement(TWO, taken) is None
    assert free_placement(ONE, taken) == MigPlacement(6, 1)


def test_the_smallest_profile_that_holds_the_request_is_charged() -> None:
    choice = choose_profile(A100, 10000, ())
    assert choice == MigChoice(TWO, MigPlacement(0, 2))
    assert (choice.profile.memory_mib, choice.profile.cores_percent) == (10240, 28)


@pytest.mark.parametrize("memory", [40960 * 25 // 100, 40960])
def test_what_has_no_place_left_does_not_fit(memory: int) -> None:
    assert choose_profile(A100, memory, [MigPlacement(start, 2) for start in (0, 2, 4)]) is None
