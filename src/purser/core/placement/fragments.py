"""How much of the idle GPUs is of no use to the pods that come: in total, and for want of what."""

from collections import defaultdict
from operator import add

import msgspec
import numpy as np

from purser.core.fleet.arrays import FleetArrays, Model, Rows
from purser.core.placement import kernels
from purser.core.placement.kernels import plain
from purser.core.placement.kernels.arguments import Floats, Ints, MixTables
from purser.core.placement.mix import MixSource, tables


class Causes(msgspec.Struct, frozen=True):
    """Idle GPUs of a fleet by what keeps typical pods from using them, in thousandths of a GPU, weighed by how frequent
    these pods are. All but ``usable`` are fragments; together they are what is idle. None is below 0.
    """

    usable: float
    """A pod could run on it (Q3)."""
    lacks_both: float
    """The node has neither enough GPU nor enough CPU (Q1)."""
    lacks_gpu: float
    """Not enough GPU, or what is too small beside GPUs that are enough (Q2)."""
    lacks_cpu: float
    """(Q4)"""
    no_use: float
    """Of no use to a pod that wants no GPU (XL)."""
    no_use_lacks_cpu: float
    """The same, and such a pod could not even run there (XR)."""
    no_access: float
    """Not of a model that the pod may use, or not listed as the resource that it asks for (NA)."""

    def __add__(self, other: "Causes") -> "Causes":
        """Those of both."""
        return Causes(*map(add, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))


class Fragments:
    """The fragments of each node, kept up to date row by row."""

    def __init__(self, source: MixSource) -> None:
        self._source = source
        self._fleet: FleetArrays | None = None
        self._of_rows: Floats = np.zeros(0)
        self._as_of = 0
        self._epoch = -1
        self._tables: tuple[int, tuple[Model, ...], MixTables] | None = None

    def tables(self, models: tuple[Model, ...]) -> MixTables:
        """The mix as it now is, against the models of a fleet."""
        if self._tables is None or self._tables[0] != self._source.epoch or self._tables[1] is not models:
            self._tables = (self._source.epoch, models, tables(self._source.mix, models))
        return self._tables[2]

    def of_rows(self, fleet: FleetArrays) -> Floats:
        """By row of the fleet, in thousandths of a GPU."""
        known = fleet is self._fleet and self._epoch == self._source.epoch and len(self._of_rows) == len(fleet.live)
        if not known:
            self._of_rows = np.zeros(len(fleet.live))
            self._fleet, self._epoch, self._as_of = fleet, self._source.epoch, 0
        if self._as_of < fleet.clock:
            rows = (fleet.changed_at > self._as_of).nonzero()[0]
            self._of_rows[rows] = kernels.used.fragments(*_state(fleet, rows), self.tables(fleet.models))
            self._as_of = fleet.clock
        return self._of_rows

    def total(self, fleet: FleetArrays) -> float:
        """Of the whole fleet."""
        return float(self.of_rows(fleet).sum())

    def causes(self, fleet: FleetArrays, rows: Rows | None = None) -> Causes:
        """The idle GPUs of the whole fleet, or of these rows, by cause.

        A node with GPUs of several models counts as one node for each, with the same CPU: pods that want several GPUs
        are expected to want them of one. What is left of a MIG device counts as its part of a GPU.
        """
        amounts, _ = self._amounts(fleet, fleet.live.nonzero()[0] if rows is None else rows)
        return Causes(*map(float, amounts.sum(axis=1)))

    def causes_by_model(self, fleet: FleetArrays, rows: Rows) -> dict[str, Causes]:
        """As `causes`, of each model that anything is left of."""
        amounts, model = self._amounts(fleet, rows)
        columns: defaultdict[str, list[int]] = defaultdict(list)
        for column, number in enumerate(model.tolist()):
            columns[fleet.models[number].name].append(column)
        return {name: Causes(*map(float, amounts[:, of].sum(axis=1))) for name, of in columns.items()}

    def _amounts(self, fleet: FleetArrays, rows: Rows) -> tuple[Floats, Ints]:
        """Thousandths of GPUs, a row for each cause and a column for each node and model; and the columns' models."""
        left, cpu, model = _by_model(fleet, rows)
        parts = plain.categories(left, cpu, model, self.tables(fleet.models))
        usable = np.maximum(left.sum(axis=0) - parts.sum(axis=0), 0)  # sums of fractions are not exact
        gpu_parts = np.array([each.gpu_part for each in fleet.models] or [1.0])[model]
        return np.vstack([usable, parts]) * gpu_parts, model


def _by_model(fleet: FleetArrays, rows: Rows) -> tuple[Ints, Ints, Ints]:
    """As `_state`, with a column for each model that anything is left of on a row."""
    left, models = fleet.left_milli.take(rows, axis=1).astype(np.int64), fleet.gpu_model.take(rows, axis=1)
    gpus, places = left.nonzero()
    pairs = np.unique(np.stack([places, models[gpus, places]]), axis=1)
    of_model = np.where(models[:, pairs[0]] == pairs[1], left[:, pairs[0]], 0)
    return of_model, fleet.cpu_free_milli[rows[pairs[0]]], pairs[1].astype(np.int64)


def _state(fleet: FleetArrays, rows: Rows) -> tuple[Ints, Ints, Ints]:
    left = fleet.left_milli.take(rows, axis=1).astype(np.int64)
    return left, fleet.cpu_free_milli[rows], fleet.node_model[rows].astype(np.int64)
