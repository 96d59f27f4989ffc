"""On the published traces Purser's policy does better than FGD, whether it is told the mix of pods or learns it."""

import numpy as np
import pytest
from tests.unit.simulator import traces

from purser.simulator.arrivals import Arrivals, run
from purser.simulator.openb import read_lists
from purser.simulator.orders import read_order

pytestmark = pytest.mark.skipif(not traces.THERE, reason=traces.MISSING)


@pytest.mark.parametrize("learns", [False, True], ids=["told", "learnt"])
@pytest.mark.parametrize(
    ("workload", "arrived", "at_least", "most_failed"),
    [
        pytest.param("default", 130, 95.75, 9, id="default: FGD 95.29"),
        pytest.param("gpuspec33", 100, 93.9, 16, id="gpuspec33: FGD 87.87"),
        pytest.param("cpu250", 100, 94.29, 18, id="cpu250: FGD 93.29"),
        pytest.param("multigpu50", 100, 97.3, 108, id="multigpu50: FGD 97.10"),
    ],
)
def test_more_is_allocated_and_no_more_8_gpu_pods_fail(
    workload: str, arrived: int, at_least: float, most_failed: int, learns: bool
) -> None:
    lists = read_lists(traces.NODES, traces.pods(workload))
    done = run(lists, read_order(traces.order(workload, 42), lists), "purser", learns)
    assert allocated(done, lists.capacity_milli, arrived) >= at_least
    assert done.failed.get("8-GPU", 0) <= most_failed


def allocated(done: Arrivals, capacity_milli: int, arrived: int) -> float:
    """Percent, as the published tables have it: the mean over all rows that round to this many percent arrived."""
    there = np.rint(100 * done.rows.arrived / capacity_milli) == arrived
    return float((100 * done.rows.allocated[there] / capacity_milli).mean())
