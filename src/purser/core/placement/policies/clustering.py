"""Clustering: pods of one kind (shares, one GPU, two, ...) together, so that nodes empty and fill as wholes."""

import numpy as np

from purser.core.placement.kernels.arguments import Floats
from purser.core.placement.policies.scale import MAX_GPU_MILLI, in_range
from purser.core.placement.shape import View, kind_by_row

_BAND_WIDTH = 25


class ClusteringNodes:
    """Nodes with this kind alone, then with this among others, then without pods, then with others; fuller ones first.

    Pods without GPUs go to the first node.
    """

    steady = True
    epoch = 0

    def score(self, view: View) -> Floats:
        """See `ArrayNodePolicy.score`."""
        if not view.shape.gpu_count:
            return np.zeros(len(view.rows))
        there = view.fleet.pods_of_kind[:, view.rows] > 0
        kinds = there.sum(axis=0)
        same = there[kind_by_row(view), np.arange(len(view.rows))]
        band = np.where(same, np.where(kinds == 1, 3, 2), np.where(kinds == 0, 1, 0))
        fullness = _BAND_WIDTH * (MAX_GPU_MILLI - view.idle) // MAX_GPU_MILLI
        found: Floats = in_range(fullness) + _BAND_WIDTH * band
        return found
