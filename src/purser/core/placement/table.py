"""Decisions from what was computed before: of each shape's scores only those of rows that changed since are renewed.

A pod's placement changes one node, and there are few shapes: of a thousand nodes some twenty are looked at per pod.
"""

from dataclasses import replace

import numpy as np

from purser.core.fleet.arrays import FleetArrays, Rows
from purser.core.placement import kernels
from purser.core.placement.instances import choose_cut, rate_partitioned
from purser.core.placement.kernels.arguments import Floats
from purser.core.placement.policies.protocol import ArrayPolicy, Gpus
from purser.core.placement.shape import PodShape, view


class KnownScores:
    """What is known of one shape, by row."""

    __slots__ = ("as_of", "epoch", "gpus", "scores")

    def __init__(self, rows: int, epoch: int) -> None:
        self.scores: Floats = np.full(rows, -np.inf)
        self.gpus: Gpus = np.full(rows, -1, np.int16)
        self.as_of = 0
        self.epoch = epoch


class ShapeTable:
    """One policy's scores for one fleet. What is not asked for the longest is forgotten."""

    MAX_SHAPES = 512
    """Each costs 10 bytes a node; one that was forgotten costs a full scoring when it comes again."""

    def __init__(self, fleet: FleetArrays, policy: ArrayPolicy, most_shapes: int = MAX_SHAPES) -> None:
        self.fleet = fleet
        self.policy = policy
        self._most_shapes = most_shapes
        self._known: dict[PodShape, KnownScores] = {}

    def scores(self, shape: PodShape) -> Floats:
        """The score of every row, minus infinity where the shape does not fit. To be read before the next call."""
        return self.known(shape).scores

    def known(self, shape: PodShape) -> KnownScores:
        """All there is to know of a shape, up to date. To be read before the next call."""
        known = self._known_scores(shape)
        self._update_scores(known, shape)
        if known.epoch != self.policy.epoch:  # it became another one at the sight of new nodes
            known = self._known_scores(shape)
            self._update_scores(known, shape)
        return known

    def gpus(self, shape: PodShape, row: int) -> tuple[int, ...]:
        """The GPUs of a row that a pod of this shape gets there, where enough of them take it."""
        if shape.gpu_count == 1 and self.policy.steady:
            known = self.known(shape)
            if known.scores[row] > -np.inf and known.gpus[row] >= 0:
                return (int(known.gpus[row]),)
        found = view(self.fleet, shape, np.array([row], np.intp))  # it may have too little CPU, as the fleet has it
        return self.policy.choose(replace(found, fits=np.ones(1, np.bool_)))

    def _update_scores(self, known: KnownScores, shape: PodShape) -> None:
        rows = self._outdated_rows(known)
        if not len(rows):
            return
        found = view(self.fleet, shape, rows)
        if self.fleet.has_partitioned_gpus:
            scores, gpus = rate_partitioned(found, self.policy)
        else:
            scores, gpus = self.policy.rate(found)
        known.scores[rows] = np.where(found.fits, scores, -np.inf)
        known.gpus[rows] = gpus
        if not known.as_of:  # every row is rated by what the policy is now
            known.epoch = self.policy.epoch
        known.as_of = self.fleet.clock

    def _known_scores(self, shape: PodShape) -> KnownScores:
        known = self._known.pop(shape, None)
        if known is None or known.epoch != self.policy.epoch or len(known.scores) != len(self.fleet.live):
            known = KnownScores(len(self.fleet.live), self.policy.epoch)
        self._known[shape] = known
        if len(self._known) > self._most_shapes:
            del self._known[next(iter(self._known))]
        return known

    def _outdated_rows(self, known: KnownScores) -> Rows:
        if known.as_of == self.fleet.clock:
            return _NO_ROWS
        changed: Rows = (self.fleet.changed_at > (known.as_of if self.policy.steady else 0)).nonzero()[0]
        return changed


_NO_ROWS: Rows = np.zeros(0, np.intp)


def place(table: ShapeTable, shape: PodShape) -> tuple[int, tuple[int, ...]] | None:
    """The row with the highest score, the first in the fleet's order among equals, and the GPUs there that a pod of
    this shape gets; None where it fits nowhere. Nothing is taken yet.
    """
    known = table.known(shape)
    row: int = kernels.used.best(known.scores, table.fleet.order)
    return None if row < 0 else (row, _gpus(table, shape, row, int(known.gpus[row])))


def _gpus(table: ShapeTable, shape: PodShape, row: int, first: int) -> tuple[int, ...]:
    if not shape.gpu_count:
        return ()
    if shape.gpu_count == 1 and first >= 0:
        return (first,)
    found = view(table.fleet, shape, np.array([row], np.intp))
    return choose_cut(found, table.policy) if table.fleet.has_partitioned_gpus else table.policy.choose(found)
