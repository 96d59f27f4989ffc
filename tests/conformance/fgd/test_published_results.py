"""The published results, to the last of their digits, through the simulator.

Without PURSER_TIER=soak only as much is replayed as takes some seconds; the fast tier has the first pods of one replay.
"""

import msgspec
import numpy as np
import pytest
from tests.conformance.fgd import published, trace
from tests.conformance.fgd.trace import allocation, fragmentation, run
from tests.tiers import IS_LONG, TIER, Tier

from purser.core.placement import kernels
from purser.core.placement.kernels import plain
from purser.simulator import arrivals
from purser.simulator.bounds import bounds
from purser.simulator.deciding import Decider

THERE = trace.there()
ALL = TIER is Tier.SOAK
DEFAULT_SEEDS = [seed for workload, seed in THERE if workload == "default"]
FAST = {"default", "cpu250", "gpushare100", "gpuspec33", "multigpu50"}
"""Of each kind the one that differs most from the default."""
WORKLOADS = sorted({workload for workload, _ in THERE if workload in (published.MEANS if ALL else FAST)})
DIGIT = 0.01 + 1e-9
BOUNDS = {"default": (96.91, 96.52), "gpuspec33": (96.37, None)}
"""At 100 percent arrived, and at the end for who fails no pod before FGD does; of seed 42."""
FIRST = 1500

pytestmark = pytest.mark.skipif(not THERE, reason=trace.MISSING)


@pytest.mark.skipif(42 not in DEFAULT_SEEDS, reason="no event order of the default workload with seed 42")
def test_the_first_pods_come_where_they_are_in_the_replay_that_has_the_published_results() -> None:
    """Nothing is published of the first pods alone. What they leave is what they left in the replay whose end is the
    published one, and the gate compares both.
    """
    whole = trace.order("default", 42)
    first = msgspec.structs.replace(whole, pods=whole.pods[:FIRST])
    found = arrivals.run(trace.lists("default"), first, "fragmentation")
    assert (found.placed, int(found.rows.allocated[-1])) == (FIRST, 1_143_520)
    idle = (4_321_592.46, 26_586.70, 23_570.97, 7_531.45, 674_924.78, 14_273.63, 0)
    assert msgspec.structs.astuple(found.causes_at_end) == pytest.approx(idle, abs=0.01)
    if IS_LONG:
        replay = run("default", 42, "fragmentation").rows
        assert (found.rows.allocated == replay.allocated[:FIRST]).all()
        assert found.rows.fragments == pytest.approx(replay.fragments[:FIRST])


@pytest.mark.gate
@pytest.mark.parametrize("name", published.POLICIES)
@pytest.mark.parametrize("seed", DEFAULT_SEEDS if ALL else DEFAULT_SEEDS[:1])
def test_allocation_of_the_default_workload_is_that_of_each_published_run(seed: int, name: str) -> None:
    found = allocation(run("default", seed, name))
    assert found == pytest.approx(published.DEFAULT[seed][published.POLICIES.index(name)], abs=DIGIT)


@pytest.mark.gate
@pytest.mark.parametrize("name", published.POLICIES if ALL else ["fragmentation"])
@pytest.mark.parametrize("workload", WORKLOADS)
def test_allocation_is_about_the_published_mean_of_each_workload(workload: str, name: str) -> None:
    seeds = seeds_of(workload)
    place = published.POLICIES.index(name)
    means = np.mean([allocation(run(workload, seed, name)) for seed in seeds], axis=0)
    assert means == pytest.approx(published.MEANS[workload][place], abs=allowance(published.DEVIATION[place], seeds))


@pytest.mark.gate
@pytest.mark.parametrize("name", published.POLICIES if ALL else ["fragmentation"])
@pytest.mark.skipif(not DEFAULT_SEEDS, reason="no event orders of the default workload")
def test_fragmentation_of_the_default_workload_is_about_the_published_mean(name: str) -> None:
    seeds = seeds_of("default")
    mean = published.DEFAULT_FRAGMENTATION[published.POLICIES.index(name)]
    found = sum(fragmentation(run("default", seed, name)) for seed in seeds) / len(seeds)
    assert found == pytest.approx(mean.value, abs=allowance(mean.deviation, seeds))


@pytest.mark.gate
@pytest.mark.skipif(42 not in DEFAULT_SEEDS, reason="no event order of the default workload with seed 42")
def test_as_many_pods_are_placed_and_fail_as_in_the_original_and_the_same_is_left() -> None:
    found = run("default", 42, "fragmentation")
    expected = published.FRAGMENTATION_ON_DEFAULT_42
    assert (found.placed, found.failed) == (expected.placed, expected.failed)
    assert found.first_failure is not None
    first = found.rows.arrived_percent[found.first_failure]
    assert first == pytest.approx(expected.first_failure_percent, abs=0.011)
    left = msgspec.structs.astuple(found.causes_at_end)
    assert left == pytest.approx(msgspec.structs.astuple(expected.causes), abs=5)


@pytest.mark.gate
@pytest.mark.parametrize("workload", sorted({workload for workload, seed in THERE if seed == 42} & BOUNDS.keys()))
def test_bounds_are_the_published_ones(workload: str) -> None:
    """In the small they are computed by hand in `tests.unit.simulator.test_bounds`."""
    at_full, at_end = BOUNDS[workload]
    found = bounds(trace.lists(workload), trace.order(workload, 42), run(workload, 42, "fragmentation").first_failure)
    assert found.b_percent == pytest.approx(at_full, abs=0.05)
    assert at_end is None or found.c_percent == pytest.approx(at_end, abs=0.05)


@pytest.mark.gate
@pytest.mark.skipif(not DEFAULT_SEEDS, reason="no event orders of the default workload")
def test_random_does_as_well_as_the_published_random() -> None:
    seeds = DEFAULT_SEEDS if ALL else DEFAULT_SEEDS[:1]
    means = np.mean([allocation(run("default", seed, "random")) for seed in seeds], axis=0)
    # Over few seeds the mean itself is uncertain: 0.33 is the deviation of one.
    assert means == pytest.approx(published.RANDOM_MEANS["default"], abs=0.3 if len(seeds) > 4 else 0.3 + 0.33)


@pytest.mark.gate
@pytest.mark.parametrize(("name", "learns"), [("fragmentation", False), ("purser", True)])
@pytest.mark.skipif(kernels.used is plain or not DEFAULT_SEEDS, reason="needs numba and the default workload")
def test_both_kernels_place_every_pod_of_a_trace_alike(
    name: str, learns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums and fragments could agree where two pods took each other's places."""
    seed = DEFAULT_SEEDS[0]
    compiled = placements(seed, name, learns)
    monkeypatch.setattr(kernels, "used", plain)
    in_numpy = placements(seed, name, learns)
    differ = [event for event, pair in enumerate(zip(compiled, in_numpy, strict=True)) if pair[0] != pair[1]]
    assert not differ, f"pod {differ[0]} of the trace first"
    assert None in compiled, "the last ones find no place"


def placements(seed: int, name: str, learns: bool) -> list[tuple[int, tuple[int, ...], float] | None]:
    """Of each pod of the default workload the row and the GPUs, and the fleet's fragments after it, to the last bit."""
    workload, order = trace.lists("default"), trace.order("default", seed)
    decider = Decider(workload, order, name, learns)
    found: list[tuple[int, tuple[int, ...], float] | None] = []
    for number in order.pods.tolist():
        shape = workload.pods[number].shape
        decider.arrived(shape)
        placed = decider.place(shape)
        found.append(placed and (placed.row, placed.gpus, decider.fragments.total))
    return found


def seeds_of(workload: str) -> list[int]:
    seeds = [seed for name, seed in THERE if name == workload and seed in published.SEEDS]
    return seeds if ALL else seeds[:1]


def allowance(deviation: float, seeds: list[int]) -> float:
    """How far from the mean over all seeds the mean over some may be: nothing when these are all."""
    if seeds == list(published.SEEDS):
        return DIGIT
    return float(3 * deviation * (1 / len(seeds) - 1 / len(published.SEEDS)) ** 0.5) + DIGIT
