"""A simulation's decisions, made again: the same arrays, the same table of scores, the same policy.

Each decision is made on the fleet as the log says it was. So one that comes out differently changes none of those after
it, and another policy is asked of the states that the logged one led to.
"""

import msgspec
import numpy as np

from purser.core.decisions.numbered import item_at
from purser.core.decisions.records import (
    DecisionDifference,
    Outcome,
    Record,
    ShapeArrived,
    ShapePlaced,
    ShapeReleased,
    ShapeSeen,
    SimulatedNode,
    SimulationStart,
)
from purser.core.fleet.arrays import FleetArrays
from purser.core.fleet.facts import FleetNodeFacts
from purser.core.mig import MIG_KINDS
from purser.core.placement.mix import LearnedMix
from purser.core.placement.policies import Setting, parse_policy
from purser.core.placement.shape import PodShape, resources_taken, view
from purser.core.placement.table import ShapeTable, place
from purser.core.wording import counted

MAX_GPUS_OF_NODE = 1024
"""Of a node in a log: arrays are as deep as the node with the most."""


class SimulationReplay:
    """Follows one simulation's log."""

    def __init__(self, start: SimulationStart, policy: str | None = None) -> None:
        """``policy``: another one, asked in place of the log's. Raises ValueError for one that there is none of."""
        self._learnt = LearnedMix() if start.learns else None
        setting = Setting(self._learnt or start.mix, start.seed)
        self._fleet = FleetArrays()
        self._policy = start.policy if policy is None else policy
        self._is_other = policy is not None
        self._table = ShapeTable(self._fleet, parse_policy(self._policy, setting))
        self._shapes: list[PodShape] = []
        self.decisions = 0
        """So many were made again."""

    def apply(self, record: Record) -> DecisionDifference | None:
        """Take a record; what is different, where it is a decision. Raises for a record that makes no sense here:
        ValueError with what is wrong, or whatever the arrays make of it."""
        match record:
            case ShapePlaced():
                return self._decide(record)
            case ShapeReleased():
                self._release(record)
            case ShapeArrived():
                if self._learnt is not None:
                    self._learnt.arrived(item_at(self._shapes, record.shape, "shape"))
            case ShapeSeen():
                self._shapes.append(record.shape)
            case SimulatedNode():
                self._put(record)
            case _:
                raise ValueError("this is not a simulation's record")
        return None

    def _put(self, record: SimulatedNode) -> None:
        _check_node(record.facts)
        if record.facts.name in self._fleet.rows:
            raise ValueError(f"node {record.facts.name} appears twice")
        self._fleet.put_node(record.facts, record.rank)

    def _decide(self, record: ShapePlaced) -> DecisionDifference | None:
        shape = item_at(self._shapes, record.shape, "shape")
        found = place(self._table, shape)
        row, gpus = (-1, ()) if found is None else found
        score = 0.0 if found is None else float(self._table.known(shape).scores[row])
        self.decisions += 1
        difference = None
        if (row, gpus) != (record.row, record.gpus) or not (self._is_other or _are_equal(score, record.score)):
            difference = self._difference(record, shape, row, gpus, score)
        if record.row >= 0:
            self._take(shape, record)
        return difference

    def _take(self, shape: PodShape, record: ShapePlaced) -> None:
        """What the log says that the pod took, so that later decisions are made where they were made."""
        self._check_placement(record.row, record.gpus)
        if len(record.gpus) != shape.gpu_count:
            raise ValueError(f"a pod that asks for {counted(shape.gpu_count, 'GPU')} is given {len(record.gpus)}")
        taken = resources_taken(self._fleet, shape, record.row, record.gpus)
        if any(bits < 0 for bits in taken.mig_bits):
            raise ValueError("a GPU instance has no placement on its GPU")
        self._fleet.take(record.row, record.gpus, taken)

    def _release(self, record: ShapeReleased) -> None:
        shape = item_at(self._shapes, record.shape, "shape")
        self._check_placement(record.row, record.gpus)
        taken = resources_taken(self._fleet, shape, record.row, record.gpus)
        if any(taken.mig_bits) or record.mig_bits:
            self._check_mig_bits(record)
            taken = msgspec.structs.replace(taken, mig_bits=record.mig_bits)
        self._fleet.release(record.row, record.gpus, taken)

    def _check_placement(self, row: int, gpus: tuple[int, ...]) -> None:
        if not 0 <= row < len(self._fleet):
            raise ValueError(f"row {row} does not exist")
        unknown = [str(gpu) for gpu in gpus if not 0 <= gpu < self._fleet.gpu_count[row]]
        if unknown:
            raise ValueError(f"node {self._fleet.names[row]} has no GPU {', '.join(unknown)}")

    def _check_mig_bits(self, record: ShapeReleased) -> None:
        for gpu, bits in zip(record.gpus, record.mig_bits, strict=True):
            mask = int(self._fleet.mig_mask[gpu, record.row])
            if bits and (mask < 0 or bits & ~mask):
                raise ValueError(f"GPU {gpu} would release more than is allocated on it")

    def _difference(
        self, record: ShapePlaced, shape: PodShape, row: int, gpus: tuple[int, ...], score: float
    ) -> DecisionDifference:
        logged, now = self._outcome(record.row, record.gpus, record.score), self._outcome(row, gpus, score)
        return DecisionDifference(
            self.decisions, describe_shape(shape), logged, now, self._explain(shape, record, row, gpus, score)
        )

    def _outcome(self, row: int, gpus: tuple[int, ...], score: float) -> Outcome:
        if row < 0:
            return Outcome()
        names = self._fleet.names
        return Outcome(names[row] if row < len(names) else f"row {row}", gpus, score)

    def _explain(self, shape: PodShape, record: ShapePlaced, row: int, gpus: tuple[int, ...], score: float) -> str:
        if row < 0:
            return "no node has room for the pod"
        known, name = self._table.known(shape), self._fleet.names[row]
        there = float(known.scores[record.row]) if 0 <= record.row < len(self._fleet) else -np.inf
        if record.row < 0:
            difference = f"node {name} has room for the pod"
        elif there == -np.inf:
            difference = f"the pod does not fit on the logged node, but node {name} has room"
        elif row == record.row:
            difference = (
                f"{self._policy} chooses other GPUs"
                if gpus != record.gpus
                else f"{self._policy} scores the node {score!r}, but {record.score!r} in the log"
            )
        else:
            difference = describe_scores(self._policy, name, score, there)
        pros = self._table.policy.why(view(self._fleet, shape, np.array([row], np.intp)), gpus) if gpus else ""
        return f"{difference}: {pros}" if pros else difference


def describe_scores(policy: str, node: str, score: float, logged: float) -> str:
    """How a policy's choice differs from the logged node, which fits as well."""
    if score == logged:
        return f"{policy} scores node {node} and the logged node equally ({score:.6g}), and chooses the first of them"
    return f"{policy} scores node {node} {score:.6g}, and the logged node {logged:.6g}"


def describe_shape(shape: PodShape) -> str:
    """What a pod asks for, in a few words."""
    gpus = f"{shape.gpu_count} x " if shape.gpu_count > 1 else ""
    size = f"{shape.gpu_memory_mib} MiB" if shape.gpu_memory_mib else f"{shape.gpu_memory_percent}%"
    what = "no GPU" if not shape.gpu_count else "whole GPU" if shape.is_plain else f"{size} of a GPU"
    return f"{gpus}{what}, {shape.cpu_milli}m CPU"


def _are_equal(one: float, other: float) -> bool:
    return one == other or (one != one and other != other)


def _check_node(node: FleetNodeFacts) -> None:
    if len(node.gpus) > MAX_GPUS_OF_NODE:
        raise ValueError(f"node {node.name} has {len(node.gpus)} GPUs, more than the maximum of {MAX_GPUS_OF_NODE}")
    for gpu in node.gpus:
        kind = MIG_KINDS.get(gpu.mig_kind)
        if gpu.mig_kind and kind is None:
            raise ValueError(f"node {node.name} has a GPU of unknown kind {gpu.mig_kind[:64]}")
        most = 0 if kind is None else kind.masks
        if not (-1 <= gpu.mig_mask < most and -1 <= gpu.mig_held < most) and (kind or gpu.mig_mask != -1):
            raise ValueError(f"node {node.name} has a GPU with more allocated than its capacity")
