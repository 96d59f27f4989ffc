"""Which nodes to keep whole for pods that take all GPUs of a node.

Such pods are few, and each needs what small pods spoil by taking one hundredth of it. Kept nodes are no quota: whatever
fits nowhere else goes there all the same, to those first that the least can be expected of.
"""

from typing import Any

import numpy as np

from purser.core.fleet.arrays import POD_KINDS, FleetArrays, Rows
from purser.core.fleet.free_resources import MANY
from purser.core.model import WHOLE_MILLI
from purser.core.placement.kernels.arguments import Ints
from purser.core.placement.policies.scarcity import allowed
from purser.core.placement.shape import PodShape

NO_RESERVE = -1

_MARGIN = 3.0
"""Standard deviations (of Poisson's distribution) more than the mean number of such pods."""

_ALWAYS_KEPT_SHARE = 0.02
"""Share of all nodes, those with the most CPU, that is kept whole with any mix: a kind of pod that has not arrived yet
may need the rarest node. On openb these are 24 of the 39 nodes that take 120 cores; a fleet of less than 50 nodes keeps
none. Over 50 drawn orders of five workloads, 2 runs fail one 8-GPU pod more than under FGD; with 2 standard deviations
and 0.012 it is 3 runs of 30, and 0.2 points more on cpu250."""


def keep(fleet: FleetArrays, big: list[tuple[PodShape, float]]) -> Ints:
    """By row: the CPU in thousandths that has to stay free beside all of the node's GPUs, `NO_RESERVE` for most.

    ``big``: the shapes that take all GPUs of the largest nodes, and how many of each a full fleet would have. Those
    that run already count.
    """
    kept = np.full(len(fleet.live), NO_RESERVE, np.int64)
    size = largest(fleet)
    if size < 2:
        return kept
    idle = _idle_nodes(fleet, size)
    remaining, done, expected = _missing_share(fleet, size, sum(number for _, number in big)), 0, 0.0
    for shape, number in sorted(big, key=_need_key):
        expected += number
        more = int(np.ceil(remaining * _upper_bound(expected) - 1e-9)) - done
        if more > 0:
            rows = _choose(fleet, idle & (kept == NO_RESERVE), shape, more)
            kept[rows] = shape.cpu_milli
            done += len(rows)
    _keep_largest_idle(fleet, idle, kept)
    return kept


def largest(fleet: FleetArrays) -> int:
    """How many GPUs the largest nodes have."""
    return int((fleet.gpu_count * fleet.live).max(initial=0))


def _upper_bound(mean: float) -> float:
    return float(np.ceil(mean + _MARGIN * np.sqrt(mean)))


def _missing_share(fleet: FleetArrays, size: int, number: float) -> float:
    """The share of such pods that is still to come."""
    upper = _upper_bound(number)
    running = int(fleet.pods_of_kind[min(size, POD_KINDS - 1), fleet.live].sum())
    return max(upper - running, 0.0) / upper if upper else 0.0


def _need_key(counted: tuple[PodShape, float]) -> tuple[int, str]:
    return -counted[0].cpu_milli, "|".join(counted[0].models)


def _idle_nodes(fleet: FleetArrays, size: int) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    count = fleet.gpu_count.astype(np.int64)
    left = fleet.left_milli.sum(axis=0, dtype=np.int64)
    idle: np.ndarray[Any, np.dtype[np.bool_]] = fleet.live & (count == size) & (left == WHOLE_MILLI * count)
    return idle


def _choose(fleet: FleetArrays, among: "np.ndarray[Any, np.dtype[np.bool_]]", shape: PodShape, number: int) -> Rows:
    """Those with the least CPU that is enough, of equals the last in the fleet's order: others begin at its head."""
    may = np.append(allowed(shape, tuple(model.name for model in fleet.models)), False)
    rows = (among & (fleet.cpu_free_milli >= shape.cpu_milli) & may[fleet.node_model]).nonzero()[0]
    chosen: Rows = rows[np.lexsort((-fleet.order[rows], fleet.cpu_free_milli[rows]))][:number]
    return chosen


def _keep_largest_idle(fleet: FleetArrays, idle: "np.ndarray[Any, np.dtype[np.bool_]]", kept: Ints) -> None:
    rows = idle.nonzero()[0]
    rows = rows[np.lexsort((-fleet.order[rows], -fleet.cpu_free_milli[rows]))][: int(_ALWAYS_KEPT_SHARE * len(fleet))]
    rows = rows[kept[rows] == NO_RESERVE]
    free = fleet.cpu_free_milli[rows]
    kept[rows] = np.where(free >= MANY // 2, 0, free)
