"""Topology: sets of GPUs that are well connected, and leave well connected ones behind."""

import numpy as np

from purser.core.interconnect import Ask, aligned
from purser.core.placement.policies.best_fit import BEST_FIT_GPUS
from purser.core.placement.policies.protocol import Gpus
from purser.core.placement.shape import View


class TopologyGpus:
    """`purser.core.interconnect.aligned` among the GPUs that take the pod; best fit where no links are known."""

    steady = True
    epoch = 0

    def first(self, view: View) -> Gpus:
        """See `ArrayGpuPolicy.first`. One GPU is chosen too, for what it leaves: left to `choose`."""
        return np.full(len(view.rows), -1, np.int16)

    def choose(self, view: View) -> tuple[int, ...]:
        """See `ArrayGpuPolicy.choose`."""
        links = view.fleet.links[int(view.rows[0])]
        if links is None:
            return BEST_FIT_GPUS.choose(view)
        available = tuple(map(int, view.takes[:, 0].nonzero()[0]))
        taken = (view.fleet.slots_free < view.fleet.slots)[:, view.rows[0]]
        opened = frozenset(map(int, taken.nonzero()[0]))
        return aligned(links, Ask(available, view.shape.gpu_count, (), opened)).devices
