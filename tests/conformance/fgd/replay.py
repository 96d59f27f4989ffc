"""A replay without anything else: pods arrive one after another, each is tried once, none leaves."""

from collections import Counter
from typing import NamedTuple

import numpy as np

from purser.core.fleet.arrays import FleetArrays
from purser.core.placement.fragments import Causes, Fragments
from purser.core.placement.mix import Mix
from purser.core.placement.policies import ArrayPolicy
from purser.core.placement.shape import PodShape, taken_by
from purser.core.placement.table import ShapeTable, place

Event = tuple[int, int, float]
"""(arrived, allocated, fragments), in thousandths of a GPU."""


class Replay(NamedTuple):
    placements: list[tuple[int, tuple[int, ...]] | None]
    events: list[Event]
    capacity: int
    causes: Causes
    """In the end."""

    @property
    def placed(self) -> int:
        return sum(placement is not None for placement in self.placements)

    def failed(self, pods: list[PodShape]) -> Counter[tuple[int, bool]]:
        """By (GPUs, whether it is a share)."""
        pairs = zip(pods, self.placements, strict=True)
        return Counter((p.gpu_count, 0 < p.gpu_memory_mib < 1000) for p, placement in pairs if placement is None)

    def allocation(self, arrived_percent: int) -> float:
        """As the published tables have it: the mean over all events at so many percent arrived."""
        return float(np.round(np.mean([round(100 * e[1] / self.capacity, 2) for e in self._at(arrived_percent)]), 2))

    def fragmentation(self, arrived_percent: int) -> float:
        return float(np.round(np.mean([100 * e[2] / self.capacity for e in self._at(arrived_percent)]), 2))

    def _at(self, percent: int) -> list[Event]:
        return [event for event in self.events if round(100 * event[0] / self.capacity) == percent]


def replay(fleet: FleetArrays, pods: list[PodShape], policy: ArrayPolicy, mix: Mix) -> Replay:
    table, fragments = ShapeTable(fleet, policy), Fragments(mix)
    arrived = allocated = 0
    placements, events = [], []
    for pod in pods:
        arrived += pod.gpu_count * pod.gpu_memory_mib
        placement = place(table, pod)
        if placement is not None:
            fleet.take(*placement, taken_by(fleet, pod, *placement))
            allocated += pod.gpu_count * pod.gpu_memory_mib
        placements.append(placement)
        events.append((arrived, allocated, fragments.total(fleet)))
    return Replay(placements, events, 1000 * int(fleet.gpu_count.sum()), fragments.causes(fleet))
