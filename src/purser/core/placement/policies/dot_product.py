"""Dot product (as in Tetris, turned around): where demand and what is free are least alike."""

import numpy as np

from purser.core.placement.kernels.arguments import Floats
from purser.core.placement.policies.scale import MAX_CPU_MILLI, MAX_GPU_MILLI, cpu_share, in_range
from purser.core.placement.shape import View


class DotProductNodes:
    """The node with the smallest product of what is free and what is asked, over CPU and GPU, in whole percent."""

    steady = True
    epoch = 0

    def score(self, view: View) -> Floats:
        """See `ArrayNodePolicy.score`."""
        cpu = cpu_share(view.cpu_free_milli) * (view.shape.cpu_milli / MAX_CPU_MILLI)
        gpu = (view.idle / MAX_GPU_MILLI) * (view.demand / MAX_GPU_MILLI)
        return in_range(np.trunc(100 * (1 - (cpu + gpu) / 2)))
