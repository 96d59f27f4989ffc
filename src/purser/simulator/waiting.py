"""Pods that wait for a place: by shape, for those of one shape either all fit somewhere or none does."""

from collections import deque
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from purser.core.fleet.arrays import FleetArrays, Model
from purser.core.mig.profiles import MAX_MEMORY_SLICES
from purser.core.placement.shape import PodShape, need_of
from purser.simulator.deciding import Shapes

UNREACHABLE_MIB = 1 << 40
"""More than any GPU has."""


class Waiting:
    """A queue. What is in it fitted nowhere when it was last tried, and since then nothing was given back."""

    def __init__(self, shapes: Shapes, fleet: FleetArrays) -> None:
        self._fleet = fleet
        self._queues: list[deque[int]] = [deque() for _ in shapes.distinct]
        self._length = np.zeros(len(shapes.distinct), np.int64)
        self._cpu = np.array([shape.cpu_milli for shape in shapes.distinct], np.int64)
        self._memory = np.array([shape.memory_mib for shape in shapes.distinct], np.int64)
        self._gpus = np.array([shape.gpu_count for shape in shapes.distinct], np.int64)
        # By model and shape. One less than needed: what is left of a GPU is rounded down, and what is needed up.
        self._needs = np.array(
            [[_need(shape, model) - 1 for shape in shapes.distinct] for model in fleet.models],
            np.int64,
        ).reshape(len(fleet.models), len(shapes.distinct))
        self._times = np.array([MAX_MEMORY_SLICES if model.mig_kind else 1 for model in fleet.models], np.int64)
        """By model, how many instances of one pod a GPU has room for at most."""

    def add(self, event: int, number: int) -> None:
        """At the end. The number is that of the shape."""
        self._queues[number].append(event)
        self._length[number] += 1

    def has(self, number: int) -> bool:
        """Whether pods of this shape wait, so that another one need not be tried."""
        return bool(self._queues[number])

    def retry(self, freed: set[int], place: Callable[[int, int], bool]) -> None:
        """Try, first come first served, pods that may fit on rows with released resources."""
        hopeless: set[int] = set()
        while numbers := [number for number in self._possible_shapes(freed) if number not in hopeless]:
            number = min(numbers, key=lambda each: self._queues[each][0])
            if place(self._queues[number][0], number):
                self._queues[number].popleft()
                self._length[number] -= 1
            else:  # nor will it behind others that take more of the same rows
                hopeless.add(number)

    def _possible_shapes(self, freed: set[int]) -> list[int]:
        """Shapes that wait, without those that certainly fit on none of the rows. It is for policies to say more."""
        found: npt.NDArray[np.bool_] = np.zeros(len(self._length), np.bool_)
        for row in freed:
            found |= self._possible_on_row(row)
        numbers: list[int] = (found & (self._length > 0)).nonzero()[0].tolist()
        return numbers

    def _possible_on_row(self, row: int) -> npt.NDArray[np.bool_]:
        fleet = self._fleet
        fits: npt.NDArray[np.bool_] = self._cpu <= fleet.cpu_free_milli[row]
        fits &= self._memory <= fleet.memory_free_mib_of_node[row]
        gpus = int(fleet.gpu_count[row])
        left, models = fleet.left_milli[:gpus, row], fleet.gpu_model[:gpus, row]
        fits &= ((left[:, None] >= self._needs[models]) * self._times[models, None]).sum(axis=0) >= self._gpus
        return fits


def _need(shape: PodShape, model: Model) -> int:
    """What must be left of a GPU of the model, in thousandths; see `need_of`."""
    if not shape.takes_model(model.name) or (model.mig_kind and shape.profile(model) is None):
        return UNREACHABLE_MIB
    return need_of(shape, model)
