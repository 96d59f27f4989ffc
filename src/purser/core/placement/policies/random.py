"""Random: any node, any GPU, each as likely as the others. The same seed on the same fleet makes the same choice."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from purser.core.placement.kernels.arguments import Floats
from purser.core.placement.policies.by_key import ByKey
from purser.core.placement.shape import View

_GPU = np.uint64(0x9E3779B97F4A7C15)
_FRACTION = 2.0**-53


@dataclass(frozen=True)
class RandomNodes:
    """A number for each node, redrawn with every change of the fleet."""

    seed: int = 0
    steady: bool = False
    epoch: int = 0

    def score(self, view: View) -> Floats:
        """See `ArrayNodePolicy.score`."""
        return 100 * _uniform(_nodes(view, self.seed))


def random_gpus(seed: int) -> ByKey:
    """A number for each GPU."""

    def key(view: View) -> Floats:
        places = np.arange(1, len(view.left) + 1, dtype=np.uint64)
        return _uniform(_nodes(view, seed) + (places * _GPU)[:, None])

    return ByKey(key, steady=False)


def _nodes(view: View, seed: int) -> npt.NDArray[np.uint64]:
    """A number for each node: by its place in the fleet's order, which its row is no part of."""
    state = np.array([(seed << 40) ^ view.fleet.clock], np.uint64)
    return _mixed(view.fleet.order[view.rows].astype(np.uint64) + _mixed(state))


def _uniform(numbers: npt.NDArray[np.uint64]) -> Floats:
    """Evenly from 0 to 1."""
    return (_mixed(numbers) >> np.uint64(11)).astype(np.float64) * _FRACTION


def _mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64's finalizer: numbers that differ in one bit become unlike in all."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
