"""Best fit: where the least is left over."""

import numpy as np

from purser.core.placement.kernels.arguments import Floats, Ints
from purser.core.placement.policies.by_key import ByKey
from purser.core.placement.policies.scale import MAX_GPU_MILLI, cpu_share, in_range
from purser.core.placement.shape import View


class BestFitNodes:
    """The node with the least CPU and GPU left after the pod, half by half, in whole percent of the largest node."""

    steady = True
    epoch = 0

    def score(self, view: View) -> Floats:
        """See `ArrayNodePolicy.score`."""
        cpu = cpu_share(view.cpu_free_milli - view.shape.cpu_milli)
        gpu = (view.idle - view.demand) / MAX_GPU_MILLI
        return in_range(np.trunc((1.0 - (cpu * 0.5 + gpu * 0.5)) * 100))


def _left(view: View) -> Ints:
    return view.left


BEST_FIT_GPUS = ByKey(_left)
"""The GPUs with the least left."""
