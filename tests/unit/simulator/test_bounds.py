"""Upper bound for every policy: against cases computed by hand, and against policies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples
from tests.unit.simulator.builders import as_listed, node, share, small_demo, whole, workload

from purser.simulator import arrivals
from purser.simulator.bounds import SolverError, bounds
from purser.simulator.orders import draw_order
from purser.simulator.patterns import patterns


def test_shares_that_leave_a_remainder_leave_it_in_the_bound() -> None:
    # Each of the two GPUs holds one share of 600; nothing of the rest is of use.
    two = workload([node("a", 2)], [share(600)] * 4)
    found = bounds(two, as_listed(two), 2)
    assert (found.b_percent, found.c_percent, found.c_from_percent) == (60, 60, 60)


def test_pods_of_other_sizes_fill_what_they_can() -> None:
    one = workload([node("a", 1)], [share(600), share(300), share(300), whole(1)])
    found = bounds(one, as_listed(one), 1)
    # By 100 percent 600 and 300 have come. In the end 600 must be there; 300 goes beside it, a whole GPU does not.
    assert (found.b_percent, found.c_percent) == (90, 90)


def test_cpu_and_models_bound_as_well() -> None:
    one = workload([node("a", 4, cpu_milli=3000)], [whole(1, 1500)] * 4)
    assert bounds(one, as_listed(one), 2).b_percent == 50
    other = workload([node("a", 2), node("b", 2, "B")], [whole(1, models=("B",))] * 4)
    assert bounds(other, as_listed(other), 2).b_percent == 50


def test_what_had_to_be_placed_costs_room_for_others() -> None:
    # Free to choose, the GPU would go to the whole pod; but the share came before the first failure.
    one = workload([node("a", 1)], [share(600), whole(1)])
    found = bounds(one, as_listed(one), 1)
    assert (found.c_percent, found.c_from_percent) == (60, 60)
    assert bounds(one, as_listed(one), 0).c_percent == 100


@pytest.mark.parametrize("policy", ["best-fit", "fragmentation", "spread"])
def test_no_policy_exceeds_them(policy: str) -> None:
    made_up = small_demo()
    order = draw_order(made_up, 2, 130)
    found = arrivals.run(made_up, order, policy)
    limits = bounds(made_up, order, found.first_failure)
    at_full = found.rows.allocation_percent[found.rows.arrived <= made_up.capacity_milli][-1]
    assert at_full <= limits.b_percent + 1e-6
    assert found.rows.allocation_percent[-1] <= limits.c_percent + 1e-6


def test_an_infeasible_model_is_reported_by_the_solver() -> None:
    one = workload([node("a", 1)], [whole(1), whole(1)])
    with pytest.raises(SolverError, match="infeasible"):
        bounds(one, as_listed(one), 2)


def test_patterns_are_those_to_which_no_share_can_be_added() -> None:
    found, sizes = patterns([300, 600])
    assert (sorted(found), sizes) == ([(1, 1), (3, 0)], (300, 600))


@examples(15)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30, unique=True))
def test_patterns_are_within_a_gpu_and_few_enough(sizes: list[int]) -> None:
    found, rounded = patterns(sorted(sizes))
    assert found
    assert len(found) <= 20_000
    assert all(below <= size for below, size in zip(rounded, sorted(sizes), strict=True))
    if len(found) > 1:
        totals = np.array(found) @ np.array(rounded)
        assert totals.max() <= 1000
        assert (totals + min(rounded) > 1000).all()
