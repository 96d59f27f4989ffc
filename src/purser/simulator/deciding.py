"""What both engines share: pods as places in a list of shapes, one decision after the other."""

from collections import Counter

import msgspec
import numpy as np
import numpy.typing as npt

from purser.core.fleet.arrays import FleetArrays
from purser.core.fleet.facts import Take
from purser.core.placement.fragments import Causes, Fragments
from purser.core.placement.mix import LearnedMix, Mix, MixSource
from purser.core.placement.policies import Setting, parse_policy
from purser.core.placement.shape import PodShape, resources_taken
from purser.core.placement.table import ShapeTable, place
from purser.simulator.decision_log import SimulationLog
from purser.simulator.metrics import FragmentCount
from purser.simulator.workload import Order, SimWorkload, class_of, common_memory_mib, demand_milli, fleet_of, mig_kinds


class PlacedPod(msgspec.Struct, frozen=True, gc=False):
    """Where a pod is, and what it has there."""

    row: int
    gpus: tuple[int, ...]
    taken: Take
    milli: int
    """Of all its GPUs together, in thousandths."""
    shape: PodShape


class Shapes(msgspec.Struct, frozen=True):
    """The shapes of a workload's pods, each once."""

    distinct: tuple[PodShape, ...]
    of_pod: npt.NDArray[np.int64]
    demand_milli: npt.NDArray[np.int64]
    """By shape."""
    classes: tuple[str, ...]
    """By shape."""


def shapes_of(workload: SimWorkload) -> Shapes:
    """What the engines look up instead of pods."""
    number: dict[PodShape, int] = {}
    of_pod = np.array([number.setdefault(pod.shape, len(number)) for pod in workload.pods], np.int64)
    memory, kinds = common_memory_mib(workload.nodes), mig_kinds(workload.nodes)
    demands = np.array([demand_milli(shape, memory, kinds) for shape in number], np.int64)
    return Shapes(tuple(number), of_pod, demands, tuple(class_of(shape, memory) for shape in number))


def known_mix(workload: SimWorkload) -> Mix:
    """The mix of the whole list: given to policies, and the measure of fragments for all of them."""
    return Mix.of(Counter(pod.shape for pod in workload.pods))


class Decider:
    """One policy on one fleet: places pods and takes back what they had."""

    def __init__(
        self, workload: SimWorkload, order: Order, policy: str, learns: bool, log: SimulationLog | None = None
    ) -> None:
        """``log``: takes every decision."""
        self.mix = known_mix(workload)
        self._learnt = LearnedMix() if learns else None
        source: MixSource = self._learnt or self.mix
        self.fleet = fleet_of(workload, order)
        self._table = ShapeTable(self.fleet, parse_policy(policy, Setting(source, order.seed)))
        self.fragments = FragmentCount(self.fleet, self.mix)
        memory_sizes_mib = np.unique(self.fleet.memory_mib[self.fleet.memory_mib > 0])
        self._one_size = int(memory_sizes_mib[0]) if len(memory_sizes_mib) == 1 else None
        self._log = log
        if log is not None:
            log.start(workload, order, policy, learns, self.mix)

    def arrived(self, shape: PodShape) -> None:
        """A pod has come; for policies that learn from it."""
        if self._learnt is not None:
            self._learnt.arrived(shape)
            if self._log is not None:
                self._log.arrived(shape)

    def place(self, shape: PodShape) -> PlacedPod | None:
        """Decide and take; None where the pod fits nowhere."""
        found = place(self._table, shape)
        if self._log is not None:
            self._log.placed(shape, found, self._table)
        if found is None:
            return None
        row, gpus = found
        taken = resources_taken(self.fleet, shape, row, gpus)
        self.fleet.take(row, gpus, taken)
        self.fragments.changed(row)
        memory = self._one_size or (int(self.fleet.memory_mib[gpus[0], row]) if gpus else 0)
        kinds = (self.fleet.models[self.fleet.gpu_model[gpus[0], row]].mig_kind,) if any(taken.mig_bits) else ()
        return PlacedPod(row, gpus, taken, demand_milli(shape, memory, kinds), shape)

    def release(self, placement: PlacedPod) -> None:
        """The pod has ended."""
        self.fleet.release(placement.row, placement.gpus, placement.taken)
        self.fragments.changed(placement.row)
        if self._log is not None:
            self._log.released(placement.shape, placement.row, placement.gpus, placement.taken)

    def open_node(self, name: str, *, is_open: bool) -> int:
        """From now on the node's GPUs take pods, or take none. Returns its row."""
        row = self.fleet.rows[name]
        self.fleet.set_gpus_open(row, is_open=is_open)
        self.fragments.changed(row)
        return row

    def causes(self) -> Causes:
        """What is idle, by cause."""
        return Fragments(self.mix).causes(self.fleet)


def check_overcommitted(fleet: FleetArrays) -> None:
    """Raises AssertionError where anything is taken that is not there: for tests, and after each run."""
    free = (fleet.memory_free_mib, fleet.cores_free_percent, fleet.slots_free, fleet.cpu_free_milli)
    for array in (*free, fleet.memory_free_mib_of_node, fleet.pods_free):
        if (array < 0).any():
            raise AssertionError("a policy has allocated more than the available capacity")
