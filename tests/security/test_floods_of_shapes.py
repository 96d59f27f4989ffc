"""Pods of ever new sizes: what is learnt of pods to expect stays small, and what honest pods ask for stays known."""

from purser.core.placement.mix import LearnedMix
from purser.core.placement.shape import PodShape


def test_the_mix_stays_small_and_keeps_what_is_frequent():
    mix, honest = LearnedMix(), PodShape(cpu_milli=500, gpu_count=1, gpu_memory_mib=777)
    for number in range(8 * LearnedMix.MAX_SHAPES):
        mix.arrived(PodShape(cpu_milli=number, gpu_count=1 + number % 8, gpu_memory_mib=1000 + number))
        if not number % 64:
            mix.arrived(honest)
    known = {each.shape for each in (*mix.mix.typical, *mix.mix.rare)}
    assert len(known) <= LearnedMix.MAX_SHAPES
    assert honest in known
