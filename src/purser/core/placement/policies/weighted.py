"""Several policies for nodes, weighed against one another."""

from dataclasses import dataclass

import numpy as np

from purser.core.placement.kernels.arguments import Floats
from purser.core.placement.policies.protocol import ArrayNodePolicy
from purser.core.placement.shape import View


@dataclass(frozen=True)
class WeightedNodes:
    """The weighted mean of scores."""

    parts: tuple[tuple[ArrayNodePolicy, float], ...]

    @property
    def steady(self) -> bool:
        """See `Steady.steady`."""
        return all(policy.steady for policy, _ in self.parts)

    @property
    def epoch(self) -> int:
        """See `Steady.epoch`."""
        return sum(policy.epoch for policy, _ in self.parts)

    def score(self, view: View) -> Floats:
        """See `ArrayNodePolicy.score`."""
        total = np.zeros(len(view.rows))
        for policy, weight in self.parts:
            total += weight * policy.score(view)
        return total / sum(weight for _, weight in self.parts)
