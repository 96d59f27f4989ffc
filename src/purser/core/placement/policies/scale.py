"""The scale of scores, and the largest node that they are scaled by."""

import numpy as np

from purser.core.placement.kernels.arguments import Floats, Ints
from purser.core.placement.kernels.plain import MIN_UNCOUNTED_CPU_MILLI

MAX_CPU_MILLI = 128_000
MAX_GPU_MILLI = 8_000
"""Both are constants of FGD's evaluation, so that scores round as they do there; nodes may have more."""


def cpu_share(milli: Ints) -> Floats:
    """Of the largest node's CPU; all of it where CPU is not limited."""
    found: Floats = np.where(milli >= MIN_UNCOUNTED_CPU_MILLI, 1.0, milli / MAX_CPU_MILLI)
    return found


def in_range(scores: Floats | Ints) -> Floats:
    """The same order, from 0 to 100. Nodes larger than the largest score below 0: what is less than 1 is laid between
    0 and 1, where no two become equal; all else stays as it is.
    """
    found: Floats = np.where(scores < 1, 1 / (2 - np.minimum(scores, 1)), np.minimum(scores, 100))
    return found
