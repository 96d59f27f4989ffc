"""Packing: GPUs in use before idle ones, nodes in use before idle ones."""

import numpy as np

from purser.core.model import WHOLE_MILLI
from purser.core.placement.kernels.arguments import Floats, Ints
from purser.core.placement.policies.scale import in_range
from purser.core.placement.shape import View

_ONLY_USED, _SOME_IDLE, _ALL_IDLE = 100, 50, 33
"""Of a pod on GPUs in use, on some that are idle, on a node that is idle: the score it starts from."""


class PackingNodes:
    """In three bands; within each, the fuller GPUs or the fewer idle ones. Pods without GPUs go to the first node."""

    steady = True
    epoch = 0

    def score(self, view: View) -> Floats:
        """See `ArrayNodePolicy.score`."""
        if not view.shape.gpu_count:
            return np.zeros(len(view.rows))
        idle = (view.left == WHOLE_MILLI).sum(axis=0)
        used, opened = _smallest_fit(view)
        on_used = np.maximum(_ONLY_USED - used // 10, _SOME_IDLE)
        on_idle = np.maximum(_SOME_IDLE - opened, _ALL_IDLE)
        on_idle_node = in_range(_ALL_IDLE - idle)
        all_idle = idle == view.fleet.gpu_count[view.rows]
        return np.where(all_idle, on_idle_node, np.where(opened > 0, on_idle, on_used)).astype(np.float64)


def _smallest_fit(view: View) -> tuple[Ints, Ints]:
    """(percent left of the GPUs that the pod would get, together; how many of them are idle): the fullest first."""
    unreachable = 1 << 30
    left = np.where(view.takes, view.left, unreachable)
    left.sort(axis=0)
    chosen = left[: view.shape.gpu_count]
    percent = np.where(chosen < unreachable, chosen * 100 // WHOLE_MILLI, 0)
    return percent.sum(axis=0), (chosen == WHOLE_MILLI).sum(axis=0)
