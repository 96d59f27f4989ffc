"""What Purser adds to best-effort: lone cards first, open cards first."""

from itertools import combinations
from random import Random

import pytest
from tests.unit.core.interconnect.machines import DGX1_PASCAL, RTX8000, random_topology, scored, tree

from purser.core.interconnect import Ask, GpuSet, aligned, best_effort, matrix


@pytest.mark.parametrize("lone", range(4))
def test_no_pair_is_broken_while_a_lone_gpu_exists(lone: int) -> None:
    """Four cards in two NVLink pairs, the partner of one is taken."""
    partner = {0: 3, 3: 0, 1: 2, 2: 1}[lone]
    available = tuple(place for place in range(4) if place != partner)
    assert aligned(RTX8000, Ask(available, 1)) == GpuSet((lone,))


def test_single_gpus_break_one_pair_after_another() -> None:
    left = tuple(range(4))
    handed: list[int] = []
    while left:
        (place,) = aligned(RTX8000, Ask(left, 1)).devices
        handed.append(place)
        left = tuple(other for other in left if other != place)
    assert {frozenset(handed[:2]), frozenset(handed[2:])} == {frozenset({0, 3}), frozenset({1, 2})}


def test_a_broken_clique_goes_before_a_whole_one() -> None:
    available = (0, 1, 2, 3, 5, 6, 7)
    assert aligned(DGX1_PASCAL, Ask(available, 1)).devices[0] >= 4


def test_many_neighbours_on_pcie_do_not_outweigh_one_nvlink() -> None:
    """A lone card with seven neighbours on its switch goes before one of an NVLink pair that is alone on its CPU."""
    pairs = dict.fromkeys(combinations(range(8), 2), 60) | {(8, 9): 110}
    assert aligned(scored(matrix(10, pairs)), Ask(tuple(range(9, -1, -1)), 1)).devices[0] < 8


def test_after_single_gpus_there_are_pairs_left_as_long_as_that_is_possible() -> None:
    """Eight cards in four pairs; any four single cards leave two whole pairs."""
    pairs = {(i, j): 200 if i // 2 == j // 2 else 20 for i, j in combinations(range(8), 2)}
    node = scored(matrix(8, pairs))
    random = Random(0)
    for _ in range(20):
        left = random.sample(range(8), 8)
        for _ in range(4):
            left.remove(aligned(node, Ask(tuple(left), 1)).devices[0])
        assert len({place // 2 for place in left}) == 2


def test_a_share_goes_to_the_first_open_gpu() -> None:
    assert aligned(RTX8000, Ask((0, 1, 2, 3), 1, opened=frozenset({2, 1}))) == GpuSet((1,))


def test_shares_on_several_gpus_go_to_open_ones_if_there_are_enough() -> None:
    asked = Ask((0, 1, 2, 3), 2, opened=frozenset({0, 1, 2}))
    assert aligned(RTX8000, asked) == GpuSet((1, 2))


def test_shares_on_several_gpus_add_the_idle_ones_that_go_best_with_the_open_ones() -> None:
    assert set(aligned(RTX8000, Ask((0, 1, 2, 3), 2, opened=frozenset({3}))).devices) == {0, 3}


def test_the_required_ones_are_in_it_open_or_not() -> None:
    asked = Ask((0, 1, 2, 3), 2, (3,), frozenset({1, 2}))
    assert 3 in aligned(RTX8000, asked).devices
    assert aligned(RTX8000, Ask((0, 1, 2, 3), 1, (3,), frozenset({1, 2}))) == GpuSet((3,))


def test_open_gpus_that_are_not_available_do_not_count() -> None:
    assert set(aligned(RTX8000, Ask((0, 1, 2), 2, opened=frozenset({3}))).devices) == {1, 2}


def test_sets_of_whole_gpus_are_those_of_best_effort() -> None:
    random = Random(4)
    for _ in range(200):
        node = random_topology(random, 8)
        available = tuple(random.sample(range(8), random.randint(3, 8)))
        asked = Ask(available, random.randint(2, len(available)))
        assert aligned(node, asked) == best_effort(node, asked)


def test_an_open_gpu_in_a_large_machine() -> None:
    assert aligned(tree(16, 6), Ask(tuple(range(16)), 3, opened=frozenset({9, 2, 8, 3}))).devices == (2, 3, 8)
