"""What a policy is asked."""

from typing import Protocol

import numpy as np
import numpy.typing as npt

from purser.core.placement.kernels.arguments import Floats
from purser.core.placement.shape import View

Gpus = npt.NDArray[np.int16]
"""For each row a GPU by its place; -1 where there is none to name."""


class Steady(Protocol):
    """How long an answer is good for."""

    @property
    def steady(self) -> bool:
        """Whether an answer holds as long as the row does not change; if not, it is for one decision only."""

    @property
    def epoch(self) -> int:
        """Grows whenever the policy itself changes, and earlier answers with it."""


class ArrayNodePolicy(Steady, Protocol):
    """Which node is best."""

    def score(self, view: View) -> Floats:
        """The score of each row, 0 to 100, higher is better; for rows that do not fit it may be anything.

        By itself a policy decides by the order alone. The range is for `WeightedNodes`: whatever leaves it, on nodes of
        whatever size, with CPU that is not limited, drowns what it is weighed against. A score depends on the row, the
        pod and the policy's epoch, on no other rows.
        """


class ArrayGpuPolicy(Steady, Protocol):
    """Which GPUs of a node are best."""

    def first(self, view: View) -> Gpus:
        """For a pod that wants one GPU: the best on each row; for rows that do not fit it may be anything."""

    def choose(self, view: View) -> tuple[int, ...]:
        """As many as the pod wants, on a view of one row, which fits."""


class ArrayPolicy(Steady, Protocol):
    """Both together: what decides."""

    def rate(self, view: View) -> tuple[Floats, Gpus]:
        """The score of each row, in any range, for it is weighed against nothing; and the best GPU there for a pod that
        wants one.
        """

    def choose(self, view: View) -> tuple[int, ...]:
        """The GPUs for a pod on a view of one row, which fits."""

    def why(self, view: View, gpus: tuple[int, ...]) -> str:
        """What speaks for and against these GPUs, on a view of one row that they are in; empty: nothing but scores."""
