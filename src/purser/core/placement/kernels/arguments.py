"""What kernels are handed: named tuples of arrays, which numba understands as well."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Obstacles = npt.NDArray[np.int16]
"""Bits, see `purser.core.placement.kernels.rule`."""


class FleetColumns(NamedTuple):
    """What there is: arrays per GPU, then per node, as `purser.core.fleet.arrays.FleetArrays` has them."""

    closed: Obstacles
    memory_mib: npt.NDArray[np.int32]
    memory_free_mib: npt.NDArray[np.int32]
    cores_percent: npt.NDArray[np.int32]
    cores_free_percent: npt.NDArray[np.int32]
    slots: npt.NDArray[np.int32]
    slots_free: npt.NDArray[np.int32]
    alone: npt.NDArray[np.int16]
    gpu_model: npt.NDArray[np.int16]
    left_milli: npt.NDArray[np.int16]
    live: Bools
    pods_free: Ints
    cpu_free_milli: Ints
    memory_free_mib_of_node: Ints


class GpuDemand(NamedTuple):
    """What a pod asks of a node and of each GPU."""

    cpu_milli: int
    memory_mib_of_node: int
    gpu_count: int
    memory_mib: int
    memory_percent: int
    """0: the memory is in MiB."""
    cores_percent: int
    alone: bool
    idle_only: bool
    """Only GPUs that nobody uses."""
    allowed: Bools
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
