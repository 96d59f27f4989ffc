"""The published runs through the simulator: allocation, placements, failures and bounds."""

from functools import lru_cache

import pytest
from tests.unit.simulator import traces

from purser.simulator.openb import read_lists
from purser.simulator.orders import read_order
from purser.simulator.parallel import Task, run_all
from purser.simulator.results import Run

pytestmark = pytest.mark.skipif(not traces.THERE, reason=traces.MISSING)


@lru_cache
def run(workload: str, seed: int) -> Run:
    lists = read_lists(traces.NODES, traces.pods(workload))
    task = Task("fragmentation", read_order(traces.order(workload, seed), lists), bound=True)
    [found] = run_all(lists, [task], 1, lambda place, events: None)
    assert isinstance(found, Run)
    return found


def test_the_default_run_is_that_of_the_original() -> None:
    found = run("default", 42)
    assert round(found.allocation_percent[100], 2) == 95.14
    assert round(found.allocation_percent[130], 2) == 95.29
    assert (found.placed, sum(found.failed.values())) == (8334, 2532)
    assert found.failed == {"1-GPU": 1412, "share": 1099, "8-GPU": 9, "2-GPU": 6, "4-GPU": 6}
    assert found.first_failure_percent == pytest.approx(94.89, abs=0.011)


def test_bounds_are_the_published_ones() -> None:
    limits = run("default", 42).bounds
    assert limits is not None
    assert limits.b_percent == pytest.approx(96.91, abs=0.05)
    assert limits.c_percent == pytest.approx(96.52, abs=0.05)
    scarce = run("gpuspec33", 42).bounds
    assert scarce is not None
    assert scarce.b_percent == pytest.approx(96.37, abs=0.05)
