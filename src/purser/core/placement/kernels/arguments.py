"""What kernels are handed: named tuples of arrays, which numba understands as well."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from purser.core.fleet.rule import Bools as Bools
from purser.core.fleet.rule import Ints as Ints

Floats = npt.NDArray[np.float64]


class MixTables(NamedTuple):
    """Typical pods, against the models of one fleet. One column more than there are models: for nodes without GPUs."""

    frequency: Floats
    cpu_milli: Ints
    gpus: Ints
    """How many GPUs the pod wants; more than any node has for one that wants none."""
    level_of: npt.NDArray[np.intp]
    """The pod's row in ``levels``."""
    levels: Ints
    """What pods want of each GPU, in thousandths, by model."""
    case: npt.NDArray[np.int8]
    """By model: 4 where the pod may use it, 0 where not, 8 for a pod without GPUs."""


class Prices(NamedTuple):
    """What a plan says things are worth."""

    values: Ints
    """[models + 1, 1001]: what is left of a GPU, see `purser.core.placement.policies.slices.values`."""
    gpu_per_cpu: float
    """How much GPU goes with each thousandth of a CPU; 0: the mix wants no CPU beside its GPUs."""
    cpu_price: float
    """Of a thousandth of a CPU that pods cannot use, in thousandths of a GPU."""
