"""The mix of pods that a fleet serves: what policies measure fragments against.

`Mix.of` takes the shapes of pods and how many have each, as FGD does (its typical pods: the most frequent shapes, until
they make up 95 percent). `LearnedMix` counts arrivals instead.
"""

from collections import Counter
from collections.abc import Mapping
from heapq import nlargest
from types import MappingProxyType
from typing import Protocol

import msgspec
import numpy as np

from purser.core.fleet.arrays import Model
from purser.core.placement.kernels.arguments import MixTables
from purser.core.placement.shape import PodShape, need_of

POPULARITY = 0.95
"""Share of all pods that the typical ones make up. FGD's default; with all of them little changes, with fewer it gets
worse."""

_UNREACHABLE_COUNT = 1 << 40


class TypicalPod(msgspec.Struct, frozen=True):
    """A shape, without its memory: fragments are of GPUs and CPU."""

    shape: PodShape
    frequency: float


class Mix(msgspec.Struct, frozen=True):
    """Typical pods, the most frequent first. Empty: nothing is known, and nothing is a fragment."""

    typical: tuple[TypicalPod, ...] = ()
    rare: tuple[TypicalPod, ...] = ()
    """All the others, their frequencies to the same measure: whole nodes are asked for seldom, but have to be kept."""

    @staticmethod
    def of(counts: Mapping[PodShape, float], popularity: float = POPULARITY) -> "Mix":
        """The most frequent shapes until they make up that share; of equally frequent ones the larger first."""
        ranked = sorted(_without_memory(counts).items(), key=_rank_key, reverse=True)
        total = sum(count for _, count in ranked)
        kept, sum_kept = 0, 0.0
        while kept < len(ranked) and sum_kept < popularity * total:
            sum_kept += ranked[kept][1]
            kept += 1
        # Divided twice because FGD's own code does so: the last bit of a frequency can decide a score.
        share = sum_kept / total if total else 1.0
        shapes = tuple(TypicalPod(shape, (count / total) / share) for shape, count in ranked)
        return Mix(shapes[:kept], shapes[kept:])

    @property
    def mix(self) -> "Mix":
        """Itself: it is a `MixSource` that never changes."""
        return self

    @property
    def epoch(self) -> int:
        """Never another."""
        return 0


class MixSource(Protocol):
    """Where a policy has its mix from."""

    @property
    def mix(self) -> Mix:
        """As it now is."""

    @property
    def epoch(self) -> int:
        """Grows whenever the mix becomes another one."""


class LearnedMix:
    """Learns from the pods that arrive, with exponential decay: a pod counts half as much after a given number of
    others.

    The mix is renewed only when arrivals have changed it noticeably, because everything computed from it has to be
    recomputed. It depends only on the arrivals and their order.

    While few pods have arrived, pods with whole GPUs are expected: otherwise an idle GPU would be worth no more than
    fragments in a fleet that has only seen shares, and an idle node no more than its GPUs in one that has only seen
    single GPUs.
    """

    REVIEW_SHARE = 1 / 8
    """As a share of all arrivals that count. Early, when each pod carries much information, that is often."""

    RENEWAL_DIFFERENCE = 0.05
    """How much of the mix must be other pods by now. Chance alone makes it less than that once a thousand have come."""

    MAX_SHAPES = 1024
    """The most frequent shapes that are kept: pods of ever new sizes must not slow every decision down."""

    PRIOR_COUNTS: Mapping[int, float] = MappingProxyType({1: 8.0, 2: 4.0, 4: 2.0, 8: 1.0})
    """Pods that count as arrived before any has, by the number of whole GPUs they want: enough for shares to be packed
    until there are a hundred of them. Over 400 drawn fleets of 1 to 20 nodes, 90.0 percent are allocated when a pod
    first fails; if all wanted one GPU it would be 88.5, and 88.0 without any (best fit: 89.5)."""

    def __init__(self, half_life: int = 4096) -> None:
        self.epoch = 0
        self._growth = 2.0 ** (1 / half_life)
        self._weight = 1.0
        self._counts = {PodShape(gpu_count=gpus, gpu_memory_percent=100): n for gpus, n in self.PRIOR_COUNTS.items()}
        self._total = sum(self._counts.values())
        self._unheeded = 0.0
        self.mix = Mix.of(self._counts)

    def arrived(self, shape: PodShape) -> None:
        """A pod of this shape asks for a place, whether or not it gets one. One that is tried again does not count."""
        self._weight *= self._growth  # later pods weigh more, instead of every earlier one less
        self._counts[shape] = self._counts.get(shape, 0.0) + self._weight
        self._total += self._weight
        self._unheeded += self._weight
        if self._unheeded >= self.REVIEW_SHARE * self._total:
            self._refresh()

    def _most_frequent(self, counts: dict[PodShape, float]) -> dict[PodShape, float]:
        if len(counts) <= self.MAX_SHAPES:
            return counts
        kept = set(nlargest(self.MAX_SHAPES, counts, key=lambda shape: _rank_key((shape, counts[shape]))))
        return {shape: count for shape, count in counts.items() if shape in kept}

    def _refresh(self) -> None:
        self._counts = {shape: count / self._weight for shape, count in self._counts.items()}
        self._counts = self._most_frequent({shape: count for shape, count in self._counts.items() if count > 1 / 64})
        self._total, self._weight, self._unheeded = sum(self._counts.values()), 1.0, 0.0
        mix = Mix.of(self._counts)
        if _difference(mix, self.mix) >= self.RENEWAL_DIFFERENCE:
            self.mix = mix
            self.epoch += 1


def _difference(one: Mix, other: Mix) -> float:
    """The part of a mix that is not in the other one: half the sum of how much frequencies differ."""
    frequencies: Counter[PodShape] = Counter()
    for mix, sign in ((one, 1), (other, -1)):
        for typical in (*mix.typical, *mix.rare):
            frequencies[typical.shape] += sign * typical.frequency  # type: ignore[assignment]
    return sum(map(abs, frequencies.values())) / 2


def _without_memory(counts: Mapping[PodShape, float]) -> dict[PodShape, float]:
    merged: Counter[PodShape] = Counter()
    for shape, count in counts.items():
        merged[msgspec.structs.replace(shape, memory_mib=0)] += count  # type: ignore[assignment]
    return dict(merged)


def _rank_key(counted: tuple[PodShape, float]) -> tuple[object, ...]:
    shape, count = counted
    size = (shape.gpu_memory_mib, shape.gpu_memory_percent, shape.gpu_cores_percent)
    return (count, shape.cpu_milli, size, shape.gpu_count, "|".join(shape.models))


def tables(mix: Mix, models: tuple[Model, ...]) -> MixTables:
    """The mix against the models of a fleet, for kernels."""
    shapes = [typical.shape for typical in mix.typical]
    needs = [tuple(need_of(shape, model) for model in models) for shape in shapes]
    levels = sorted({need for shape, need in zip(shapes, needs, strict=True) if shape.gpu_count})
    level_of = [levels.index(need) if shape.gpu_count else 0 for shape, need in zip(shapes, needs, strict=True)]
    return MixTables(
        np.array([typical.frequency for typical in mix.typical], np.float64),
        np.array([shape.cpu_milli for shape in shapes], np.int64),
        np.array([shape.gpu_count or _UNREACHABLE_COUNT for shape in shapes], np.int64),
        np.array(level_of, np.intp),
        _table(
            [(*level, _UNREACHABLE_COUNT) for level in levels] or [(_UNREACHABLE_COUNT,) * (len(models) + 1)],
            len(models),
        ),
        _table([_cases(shape, models) for shape in shapes], len(models)).astype(np.int8),
    )


def _cases(shape: PodShape, models: tuple[Model, ...]) -> tuple[int, ...]:
    if not shape.gpu_count:
        return (8,) * (len(models) + 1)
    return (*(4 if shape.takes(model) else 0 for model in models), 0)


def _table(rows: list[tuple[int, ...]], models: int) -> "np.ndarray[tuple[int, ...], np.dtype[np.int64]]":
    return np.array(rows, np.int64).reshape(len(rows), models + 1)
