"""On few nodes, knowing nothing before the first pod comes, Purser's policy does no worse than simpler ones.

Single fleets fall to this policy or to that; what is compared is the mean over many, drawn once and for all.
"""

from functools import lru_cache

import numpy as np
import pytest
from tests.unit.core.placement.policies import small_fleets
from tests.unit.core.placement.policies.fleets import fleet_of, run

from purser.core.fleet.facts import FleetNodeFacts, GpuFacts
from purser.core.placement.mix import LearnedMix
from purser.core.placement.policies import Setting, policy
from purser.core.placement.shape import PodShape
from purser.core.placement.table import ShapeTable
from purser.simulator import arrivals, demo, departures
from purser.simulator.orders import draw_order, timed_order

FLEETS = range(60)
BUSY = range(30)


@lru_cache
def placed(name: str, learns: bool) -> tuple[float, float]:
    """Percent of all GPUs: when the first pod finds no place, and at the end; means over the fleets."""
    found = [_placed(seed, name, learns) for seed in FLEETS]
    return float(np.mean([first for first, _ in found])), float(np.mean([end for _, end in found]))


def _placed(seed: int, name: str, learns: bool) -> tuple[float, float]:
    workload = small_fleets.draw(seed)
    done = arrivals.run(workload, draw_order(workload, seed, 130), name, learns)
    allocated = done.rows.allocation_percent
    return float(allocated[-1 if done.first_failure is None else done.first_failure]), float(allocated[-1])


@lru_cache
def waited(name: str, learns: bool) -> float:
    """GPU-hours that pods wait for, for each GPU; the mean over the fleets."""
    found = []
    for seed in BUSY:
        workload = small_fleets.draw(seed)
        done = departures.run(workload, timed_order(workload, seed), name, learns)
        found.append(done.pending_gpu_hours / workload.gpus)
    return float(np.mean(found))


OTHERS = pytest.mark.parametrize(
    ("other", "learns"), [("best-fit", False), ("binpack", False), ("packing", False), ("fragmentation", True)]
)


@pytest.mark.gate
@OTHERS
def test_as_much_is_placed_until_the_first_pod_finds_no_place(other: str, learns: bool) -> None:
    assert placed("purser", True)[0] >= placed(other, learns)[0]


@pytest.mark.gate
@OTHERS
def test_more_is_placed_in_the_end(other: str, learns: bool) -> None:
    assert placed("purser", True)[1] > placed(other, learns)[1]


@pytest.mark.gate
def test_it_learns_the_mix_well_enough_to_place_about_as_much() -> None:
    assert placed("purser", False)[0] >= placed("fragmentation", False)[0]
    assert placed("purser", True)[0] == pytest.approx(placed("purser", False)[0], abs=0.5)


@pytest.mark.gate
@OTHERS
def test_pods_wait_about_as_long_or_shorter(other: str, learns: bool) -> None:
    assert waited("purser", True) <= (1.1 if other == "best-fit" else 1.0) * waited(other, learns)


@pytest.mark.gate
def test_pods_wait_no_longer_than_under_fgd_where_nodes_are_many_and_pods_leave() -> None:
    workload = demo.workload()
    order = timed_order(workload, 42, 85)
    pending = [departures.run(workload, order, name).pending_gpu_hours for name in ("purser", "fragmentation")]
    assert pending[0] < pending[1]


def test_the_first_pods_of_all_leave_whole_nodes_to_larger_ones() -> None:
    nodes = [FleetNodeFacts(f"node-{number}", (GpuFacts("A100", 1000, 10),) * 8) for number in range(3)]
    learned = LearnedMix()
    table = ShapeTable(fleet_of(nodes), policy("purser", setting=Setting(learned)))
    pods = [PodShape(0, 0, 1, gpu_memory_mib=milli) for milli in (400, 1000, 300, 1000, 300, 1000)]
    for pod in pods:
        learned.arrived(pod)
        run(table, [pod])
    assert sorted(table.fleet.left_milli.sum(axis=0)[:3]) == [4000, 8000, 8000]
