"""GPUs by a key: those with the smallest, the first in place among equals."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from purser.core.placement.kernels.arguments import Floats, Ints
from purser.core.placement.policies.protocol import Gpus
from purser.core.placement.shape import View


class Key(Protocol):
    """A number for each GPU of each row."""

    def __call__(self, view: View, /) -> Ints | Floats:
        """Smaller is better."""


@dataclass(frozen=True)
class ByKey:
    """A policy for GPUs that needs to know no more than how good each of them is by itself."""

    key: Key
    steady: bool = True
    epoch: int = 0

    def first(self, view: View) -> Gpus:
        """See `ArrayGpuPolicy.first`."""
        return np.asarray(self._keys(view).argmin(axis=0), np.int16)

    def choose(self, view: View) -> tuple[int, ...]:
        """See `ArrayGpuPolicy.choose`."""
        order = self._keys(view)[:, 0].argsort(kind="stable")
        return tuple(map(int, order[: view.shape.gpu_count]))

    def _keys(self, view: View) -> Floats:
        return np.where(view.takes, self.key(view), np.inf)
