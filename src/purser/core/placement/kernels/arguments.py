"""What kernels are handed: named tuples of arrays, which numba understands as well."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Stock(NamedTuple):
    """The arrays of a fleet that are per GPU, as `purser.core.fleet.arrays.FleetArrays` has them."""

    memory_mib: npt.NDArray[np.int32]
    memory_free_mib: npt.NDArray[np.int32]
    cores_percent: npt.NDArray[np.int16]
    cores_free_percent: npt.NDArray[np.int16]
    slots: npt.NDArray[np.int16]
    slots_free: npt.NDArray[np.int16]
    alone: npt.NDArray[np.int16]
    usable: npt.NDArray[np.bool_]
    gpu_model: npt.NDArray[np.int16]
    left_milli: npt.NDArray[np.int16]


class Wanted(NamedTuple):
    """What a pod asks of each GPU."""

    memory_mib: int
    memory_percent: int
    """0: the memory is in MiB."""
    cores_percent: int
    alone: bool
    allowed: npt.NDArray[np.bool_]
    """By model."""


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
    case: Ints
    """By model: 4 where the pod may use it, 0 where not, 8 for a pod without GPUs."""


Kernels = Any
"""One of the modules with the kernels."""
