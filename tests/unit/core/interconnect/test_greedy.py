"""More GPUs than can be divided up: a good set and a bound on what is given up."""

from itertools import combinations
from random import Random

import pytest
from tests.unit.core.interconnect.machines import scored

from purser.core.interconnect import Ask, Topology, best_effort, matrix

RACK = tuple(range(72))


def rack(in_tray: int, across: int) -> Topology:
    """72 GPUs in trays of four."""
    return scored(matrix(72, {(i, j): in_tray if i // 4 == j // 4 else across for i, j in combinations(RACK, 2)}))


@pytest.mark.parametrize("size", [1, 2, 3, 8, 36, 71, 72])
def test_where_all_pairs_are_equal_nothing_is_given_up(size: int) -> None:
    node = rack(1800, 1800)
    found = best_effort(node, Ask(RACK, size))
    assert found.devices == RACK[:size]
    assert found.at_most in (None, node.score(found.devices))


@pytest.mark.parametrize("size", [2, 4, 8, 12])
def test_trays_are_kept_together(size: int) -> None:
    node = rack(1860, 1810)
    found = best_effort(node, Ask(RACK, size, (41,)))
    assert 41 in found.devices
    assert len({place // 4 for place in found.devices}) == max(1, size // 4)
    assert found.at_most is not None
    assert found.at_most >= node.score(found.devices)


def test_a_pair_comes_from_a_broken_tray_rather_than_from_a_whole_one() -> None:
    available = tuple(place for place in RACK if place not in (48, 50))
    assert set(best_effort(rack(1860, 1810), Ask(available, 2)).devices) == {49, 51}


def test_no_set_scores_more_than_the_bound() -> None:
    random = Random(2)
    for _ in range(30):
        node = scored(matrix(17, {pair: random.randrange(100) for pair in combinations(range(17), 2)}))
        size = random.randint(2, 4)
        found = best_effort(node, Ask(tuple(range(17)), size))
        best = max(node.score(each) for each in combinations(range(17), size))
        assert found.at_most is not None
        assert node.score(found.devices) <= best <= found.at_most


def test_the_required_ones_are_in_the_set_and_the_order_is_that_of_the_available_ones() -> None:
    available = tuple(reversed(RACK))
    found = best_effort(rack(1860, 1810), Ask(available, 5, (3, 70)))
    assert {3, 70} <= set(found.devices)
    assert list(found.devices) == sorted(found.devices, reverse=True)
