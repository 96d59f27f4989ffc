"""What parts of a GPU are worth."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from purser.core.placement.policies.slices import values

DEMANDS = st.dictionaries(st.integers(1, 999), st.floats(0.01, 1e6), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("demand", "left", "worth"),
    [
        pytest.param({500: 3}, 500, 500, id="half a GPU is worth half where halves are asked for"),
        pytest.param({500: 3}, 490, 0, id="less than any share needs is worth nothing"),
        pytest.param({500: 3}, 999, 500, id="so is what is left beside the shares that fit"),
        pytest.param({810: 10, 160: 1}, 190, 0, id="what so many leave over that nobody needs a GPU for it"),
        pytest.param({810: 10, 160: 1}, 810, 1000, id="what only an idle GPU has room for"),
        pytest.param({650: 10, 320: 20}, 320, 333, id="three to a GPU once more come than go beside others"),
        pytest.param({650: 10, 320: 20}, 650, 667, id="and what goes beside one is worth two of them"),
        pytest.param({333: 1}, 333, 333, id="three thirds fill a GPU"),
        pytest.param({333: 1}, 332, 0, id="and none fits into less than a third"),
        pytest.param({1: 1}, 10, 10, id="the smallest shares count as a hundredth"),
        pytest.param(dict.fromkeys(range(451, 500), 1), 495, 500, id="many sizes are rounded up to hundredths"),
        pytest.param(dict.fromkeys(range(451, 500), 1), 455, 0, id="so that nothing is promised that may not fit"),
        pytest.param(dict.fromkeys(range(10, 1000), 1), 20, 0, id="very many to fortieths"),
    ],
)
def test_worth(demand: dict[int, float], left: int, worth: int) -> None:
    assert values(demand)[left] == worth


def test_without_shares_nothing_is_known_to_be_worth_anything() -> None:
    assert not values({}).any()
    assert not values({1000: 5, 0: 3, 1500: 1, 500: 0}).any()


@given(DEMANDS)
def test_more_is_worth_no_less_and_nothing_more_than_a_gpu(demand: dict[int, float]) -> None:
    worth = values(demand)
    assert worth[0] == 0
    assert worth[-1] == 1000
    assert (np.diff(worth) >= 0).all()


@given(DEMANDS)
def test_two_parts_are_worth_no_more_than_together(demand: dict[int, float]) -> None:
    worth = values(demand)
    for one, other in itertools.product(range(0, 1001, 70), repeat=2):
        if one + other <= 1000:
            assert worth[one] + worth[other] <= worth[one + other] + 2  # of rounding


@given(st.dictionaries(st.integers(1, 99).map(lambda size: size * 10), st.integers(1, 500), min_size=1, max_size=8))
def test_the_prices_are_those_of_the_linear_program(demand: dict[int, int]) -> None:
    """Duality: the shares at their prices are worth as many GPUs as the best patterns need, which HiGHS knows."""
    optimize = pytest.importorskip("scipy.optimize", reason="needs the extra simulator (scipy)")
    sizes = sorted(demand)
    patterns = list(_patterns([size // 10 for size in sizes], 100))
    solved = optimize.linprog(
        np.ones(len(patterns)),
        A_ub=-np.array(patterns, float).T,
        b_ub=-np.array([demand[size] for size in sizes], float),
        method="highs",
    )
    worth = values(demand)
    total = sum(demand[size] * int(worth[size]) for size in sizes) / 1000
    assert total == pytest.approx(solved.fun, rel=0.002, abs=0.6e-3 * sum(demand.values()))


def _patterns(sizes: list[int], room: int) -> "itertools.chain[tuple[int, ...]]":
    """All maximal ones, of at most so many sizes that there are not too many."""

    def fill(index: int, left: int) -> "list[tuple[int, ...]]":
        if index == len(sizes) - 1:
            return [(left // sizes[index],)]
        return [
            (count, *rest)
            for count in range(left // sizes[index] + 1)
            for rest in fill(index + 1, left - count * sizes[index])
        ]

    return itertools.chain(fill(0, room))
