"""Fragmentation gradient descent (FGD, USENIX ATC'23): where the idle GPUs lose the least of their use.

A fragment is what of a node's idle GPUs a typical pod could not use. The score is 100 times the sigmoid of the whole
GPUs' worth of fragments that the pod would do away with, *cut to an integer*, and equal scores fall to the first node.
The published formula has no such cut, but the published results do; without it the policy is worse than best fit:
near 0 one step is 40 thousandths of a GPU, and everything within falls to the first node, which fills nodes up.
"""

import math
from typing import Any

import numpy as np

from purser.core.placement import kernels
from purser.core.placement.fragments import Fragments
from purser.core.placement.kernels.arguments import Floats
from purser.core.placement.mix import MixSource
from purser.core.placement.policies.best_fit import BEST_FIT_GPUS
from purser.core.placement.policies.pros_and_cons import fragmentation_change
from purser.core.placement.policies.protocol import Gpus
from purser.core.placement.shape import View


class Fragmentation:
    """A policy for nodes, for GPUs, and for both."""

    steady = True

    def __init__(self, source: MixSource) -> None:
        self.fragments = Fragments(source)
        self._source = source

    @property
    def epoch(self) -> int:
        """See `Steady.epoch`."""
        return self._source.epoch

    def rate(self, view: View) -> tuple[Floats, Gpus]:
        """See `ArrayPolicy.rate`."""
        found: tuple[Floats, Gpus] = kernels.used.fragment_scores(
            view.left,
            view.after,
            view.takes,
            view.fits,
            view.cpu_free_milli - view.shape.cpu_milli,
            view.model,
            self.fragments.of_rows(view.fleet)[view.rows],
            view.shape.gpu_count,
            self.fragments.tables(view.fleet.models),
            STEPS,
        )
        return found

    def score(self, view: View) -> Floats:
        """See `ArrayNodePolicy.score`."""
        return self.rate(view)[0]

    def first(self, view: View) -> Gpus:
        """See `ArrayGpuPolicy.first`."""
        return self.rate(view)[1]

    def choose(self, view: View) -> tuple[int, ...]:
        """See `ArrayGpuPolicy.choose`. Several GPUs are those with the least left."""
        if view.shape.gpu_count == 1:
            return (int(self.first(view)[0]),)
        return BEST_FIT_GPUS.choose(view)

    def why(self, view: View, gpus: tuple[int, ...]) -> str:
        """See `ArrayPolicy.why`."""
        then = view.left.copy()
        then[list(gpus)] = view.after[list(gpus)]
        known = self.fragments.tables(view.fleet.models)
        cpu = view.cpu_free_milli
        before = kernels.used.fragments(view.left, cpu, view.model, known)[0]
        more = float(kernels.used.fragments(then, cpu - view.shape.cpu_milli, view.model, known)[0] - before)
        return fragmentation_change(more)


def _score(gained: float) -> int:
    return int((1 / (1 + math.exp(-gained / 1000))) * 100)


def _smallest_gain(score: int) -> float:
    """The smallest number with at least this score: two neighbours among the floats, halved down to."""
    low, high = -100_000.0, 100_000.0
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (low, middle) if _score(middle) >= score else (middle, high)
    return high


STEPS: "np.ndarray[Any, np.dtype[np.float64]]" = np.array([_smallest_gain(score) for score in range(1, 101)])
"""The least gain for each score: to look a score up is exact everywhere, while exponentials differ in the last bit
between numpy, numba and the processors they run on."""
