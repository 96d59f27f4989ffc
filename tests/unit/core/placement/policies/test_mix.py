"""The mix of pods: as FGD is given it, and as it is learnt."""

import pytest

from purser.core.placement.mix import LearnedMix, Mix
from purser.core.placement.shape import PodShape

SMALL, LARGE = PodShape(1000, 64, 1, gpu_memory_mib=250), PodShape(4000, 64, 1, gpu_memory_mib=1000)


def test_the_most_frequent_shapes_are_taken_until_they_make_up_95_percent() -> None:
    counts = {PodShape(cpu): count for cpu, count in enumerate((50, 30, 15, 3, 2))}
    mix = Mix.of(counts)
    assert [typical.shape.cpu_milli for typical in mix.typical] == [0, 1, 2]
    assert [typical.frequency for typical in mix.typical] == pytest.approx([50 / 95, 30 / 95, 15 / 95])


def test_of_equally_frequent_ones_the_larger_comes_first() -> None:
    shapes = [
        PodShape(2000),
        PodShape(1000, 0, 1, gpu_memory_mib=500),
        PodShape(1000, 0, 2, gpu_memory_mib=300),
        PodShape(1000, 0, 1, gpu_memory_mib=300, models=("B",)),
        PodShape(1000, 0, 1, gpu_memory_mib=300, models=("A", "C")),
    ]
    assert [typical.shape for typical in Mix.of(dict.fromkeys(reversed(shapes), 1)).typical] == shapes


def test_memory_does_not_distinguish_shapes() -> None:
    mix = Mix.of({PodShape(1000, 64): 1, PodShape(1000, 128): 2})
    assert [(typical.shape, typical.frequency) for typical in mix.typical] == [(PodShape(1000), 1.0)]


def test_of_no_pods_there_is_no_mix() -> None:
    assert Mix.of({}) == Mix()


def arrivals(learned: LearnedMix, shape: PodShape, count: int) -> None:
    for _ in range(count):
        learned.arrived(shape)


def frequency(mix: Mix, shape: PodShape) -> float:
    return sum(t.frequency for t in mix.typical if t.shape.gpu_memory_mib == shape.gpu_memory_mib)


def test_it_learns_the_mix_that_it_would_be_given() -> None:
    learned = LearnedMix(half_life=1 << 40)
    for _ in range(1000):
        arrivals(learned, SMALL, 3)
        arrivals(learned, LARGE, 1)
    told = Mix.of({SMALL: 3, LARGE: 1})
    assert frequency(learned.mix, SMALL) == pytest.approx(frequency(told, SMALL), abs=0.01)


def test_before_any_arrives_whole_gpus_are_expected_and_soon_what_has_arrived() -> None:
    learned = LearnedMix()
    assert [(t.shape.gpu_count, t.shape.gpu_memory_percent) for t in learned.mix.typical] == [
        (count, 100) for count in (1, 2, 4, 8)
    ]
    arrivals(learned, SMALL, 3)
    assert 0.0 < frequency(learned.mix, SMALL) < 0.2
    arrivals(learned, SMALL, 200)
    assert frequency(learned.mix, SMALL) > 0.9


def test_half_is_forgotten_after_the_half_life() -> None:
    learned = LearnedMix(half_life=1000)
    arrivals(learned, SMALL, 20_000)
    arrivals(learned, LARGE, 1000)
    assert frequency(learned.mix, LARGE) == pytest.approx(0.5, abs=0.1)


def test_what_no_longer_comes_is_dropped() -> None:
    learned = LearnedMix(half_life=10)
    for cpu in range(2000):
        learned.arrived(PodShape(cpu))
    assert len(learned.mix.typical) < 500


def test_it_becomes_another_mix_only_now_and_then() -> None:
    learned = LearnedMix()
    arrivals(learned, SMALL, 10_000)
    assert learned.epoch < 100
