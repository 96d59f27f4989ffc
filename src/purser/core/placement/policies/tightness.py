"""How tightly a node holds a pod: what decides between nodes on which as much is lost, and more than that on few nodes.

What a fleet is going to hold is a matter of averages, and they need many nodes. On few, a pod that wants GPUs whole is
better put where the least is left over, so that another node stays as it is for the next large pod.
"""

import numpy as np

from purser.core.fleet.arrays import WHOLE_MILLI
from purser.core.placement.kernels.arguments import Floats
from purser.core.placement.policies.loss_plain import LIMITED
from purser.core.placement.policies.scale import MOST_CPU_MILLI, MOST_GPU_MILLI
from purser.core.placement.shape import View

_BETWEEN_EQUALS = 0.9
"""Less than a step of a score."""

_ON_FEW_NODES = 500.0
"""Of a score, over the number of nodes: as much as all else on five nodes, and nothing on 500. Over drawn fleets of 1
to 20 nodes pods wait 4 percent less (in GPU-hours) than without it, and as much is placed. On the 1213 nodes of openb a
weight of 10 would cost gpuspec33 2 points, and one of 30 nearly 5."""


def tightness(view: View, nodes: int) -> Floats:
    """What to add to the scores of rows in a fleet of so many nodes. Shares keep to their patterns, and CPU is not what
    nodes are kept free for: there it only decides between equals.
    """
    demand, count = view.demand, view.shape.gpu_count
    cpu = view.cpu_free_milli - view.shape.cpu_milli
    cpu_part = np.where(cpu >= LIMITED, 0.0, np.minimum(cpu / MOST_CPU_MILLI, 1.0))
    gpu_part = np.minimum((view.idle - demand) / MOST_GPU_MILLI, 1.0)
    is_whole = (demand == WHOLE_MILLI * count) & (count > 0)
    weight = np.where(is_whole, max(_ON_FEW_NODES / max(nodes, 1), _BETWEEN_EQUALS), _BETWEEN_EQUALS)
    found: Floats = weight * (1.0 - (cpu_part + gpu_part) / 2)
    return found
