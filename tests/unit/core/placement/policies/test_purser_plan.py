"""What Purser's policy plans: prices of CPU, scarce models, and nodes to keep whole."""

import numpy as np
import pytest
from tests.unit.core.placement.policies.fleets import all_rows, fleet_of

from purser.core.fleet.arrays import FleetArrays
from purser.core.fleet.facts import FleetNodeFacts, GpuFacts
from purser.core.fleet.free_resources import MANY
from purser.core.placement.kernels.plain import losses
from purser.core.placement.mix import Mix
from purser.core.placement.policies.plan import PricePlan, plan
from purser.core.placement.policies.purser import adjust
from purser.core.placement.policies.reserve import NO_RESERVE, keep
from purser.core.placement.policies.scarcity import penalties, scarcity
from purser.core.placement.shape import PodShape, resources_taken, view

T4 = GpuFacts("T4", 1000, 10)
ONE = PodShape(10_000, 0, 1, gpu_memory_mib=1000)
MIX = Mix.of({ONE: 9.0, PodShape(20_000, 0, 1, gpu_memory_mib=1000): 1.0}, 1.0)


def fleet(*cpu_milli: int, gpus: int = 4) -> FleetArrays:
    return fleet_of([FleetNodeFacts(f"node-{n:02}", (T4,) * gpus, cpu) for n, cpu in enumerate(cpu_milli)])


def lost(made: PricePlan, left: list[int], cpu_milli: int) -> float:
    model = np.zeros(1, np.int64)
    return float(losses(np.array([left]).T, np.array([cpu_milli]), model, made.mix, made.prices)[0])


def test_gpus_that_the_cpu_is_not_enough_for_are_lost() -> None:
    made = plan(fleet(40_000), MIX)
    assert lost(made, [1000] * 4, 40_000) == 0
    assert lost(made, [1000] * 4, 20_000) == pytest.approx(4000 - 20_000 / (0.9 * 11))
    assert lost(made, [0] * 4, 0) == 0


def test_cpu_that_pods_cannot_use_is_lost_at_its_price() -> None:
    made = plan(fleet(40_000), MIX)
    assert lost(made, [0] * 4, 11_000) == pytest.approx(1000)
    assert lost(made, [1000, 0, 0, 0], 11_000) == pytest.approx(0.1 * (1000 + 1000)), "one in ten wants more"


def test_of_cpu_that_is_not_limited_nothing_is_lost() -> None:
    made = plan(fleet(MANY), MIX)
    for left in ([0] * 4, [1000] * 4):
        assert lost(made, left, MANY) == lost(made, left, MANY - 500_000) == 0


def test_a_mix_without_cpu_has_no_price_of_it() -> None:
    made = plan(fleet(0), Mix.of({PodShape(0, 0, 1, gpu_memory_mib=1000): 1.0}))
    assert lost(made, [1000] * 4, 0) == 0
    assert made.prices.gpu_per_cpu == made.prices.cpu_price == 0


def test_of_two_models_that_are_as_common_it_does_not_matter_which_was_first_seen() -> None:
    nodes = [FleetNodeFacts("a", (T4,) * 4, 40_000), FleetNodeFacts("b", (GpuFacts("A100", 4000, 10),) * 4, 40_000)]
    mix = Mix.of({ONE: 1.0, PodShape(20_000, 0, 1, gpu_memory_mib=500): 1.0})
    one, other = plan(fleet_of(nodes), mix), plan(fleet_of(nodes[::-1]), mix)
    assert (one.prices.gpu_per_cpu, one.prices.cpu_price) == (other.prices.gpu_per_cpu, other.prices.cpu_price)


def test_as_many_nodes_are_kept_as_pods_are_expected_and_some_more() -> None:
    many = fleet(*(100_000,) * 40)
    kept = keep(many, [(PodShape(64_000, 0, 4, gpu_memory_mib=1000), 9.0)])
    assert (kept == 64_000).sum() == 9 + 3 * 3
    assert (kept[:40] != NO_RESERVE).nonzero()[0].min() == 40 - 18, "the last ones: others begin with the first"


def test_pods_that_run_already_are_expected_no_more() -> None:
    many, pod = fleet(*(100_000,) * 40), PodShape(64_000, 0, 4, gpu_memory_mib=1000)
    for row in range(9):
        many.take(row, (0, 1, 2, 3), resources_taken(many, pod, row, (0, 1, 2, 3)))
    assert (keep(many, [(pod, 9.0)]) == 64_000).sum() == 9


def test_each_kept_node_has_the_cpu_it_is_kept_for_and_hardly_more() -> None:
    mixed = fleet(*(128_000, 64_000, 96_000, 40_000) * 3)
    small, large = (PodShape(cpu, 0, 4, gpu_memory_mib=1000) for cpu in (60_000, 120_000))
    kept = keep(mixed, [(small, 0.2), (large, 0.2)])
    assert [int(cpu) for cpu in mixed.cpu_free_milli[kept == 120_000]] == [128_000] * 2
    assert set(mixed.cpu_free_milli[kept == 60_000].tolist()) == {64_000}


def test_the_richest_nodes_of_a_large_fleet_are_kept_whatever_comes() -> None:
    large = fleet(*(96_000,) * 98, 128_000, 128_000)
    assert keep(large, [])[98:100].tolist() == [128_000] * 2
    assert (keep(large, []) != NO_RESERVE).sum() == 2
    assert (keep(fleet(*(96_000,) * 10), []) == NO_RESERVE).all()
    assert (keep(fleet(*(96_000,) * 100, gpus=1), []) == NO_RESERVE).all(), "one GPU is whole anyway"


def test_a_pod_that_takes_a_node_whole_prefers_one_that_is_kept_for_its_like() -> None:
    two = fleet(100_000, 100_000, 100_000)
    kept = np.full(len(two.live), NO_RESERVE)
    kept[:2] = 64_000, 100_000
    seen = view(two, PodShape(60_000, 0, 4, gpu_memory_mib=1000), all_rows(two)[:3])
    added = adjust(seen, kept)
    assert added is not None
    assert added[0] > added[2] == 0 > added[1]


def test_of_kept_nodes_those_for_less_are_broken_first() -> None:
    two = fleet(100_000, 100_000, 100_000)
    kept = np.full(len(two.live), NO_RESERVE)
    kept[:2] = 64_000, 100_000
    added = adjust(view(two, ONE, all_rows(two)[:3]), kept)
    assert added is not None
    assert 0 == added[2] > added[0] > added[1]
    two.take(1, (0,), resources_taken(two, ONE, 1, (0,)))
    again = adjust(view(two, ONE, all_rows(two)[:3]), kept)
    assert again is not None
    assert again[1] == 0, "what is broken is not kept any more"


def test_a_model_is_as_scarce_as_pods_insist_on_it() -> None:
    models, gpus = ("T4", "A100", "V100"), np.array([10.0, 20.0, 10.0])
    wants = [
        (PodShape(gpu_count=1, models=("T4",)), 5.0),
        (PodShape(gpu_count=1, models=("A100", "V100")), 15.0),
        (PodShape(gpu_count=1), 99.0),
    ]
    scarce = scarcity(wants, models, gpus)
    assert scarce.tolist() == [0.5, 0.5, 0.5]
    assert not penalties(PodShape(gpu_count=1), models, gpus, scarce).any()
    scarce[0] = 1.5
    assert penalties(PodShape(gpu_count=1), models, gpus, scarce).tolist() == [800, 0, 0, 0]
    assert not penalties(PodShape(gpu_count=1, models=("T4",)), models, gpus, scarce).any()
    assert not penalties(PodShape(), models, gpus, scarce).any()
