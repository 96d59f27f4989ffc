"""Upper bounds for any policy: linear programs that HiGHS solves (scipy, the extra ``simulator``).

Nodes of one type are one pool of CPU, memory and GPUs, and pods are divisible: the remaining rules are how shares fill
a GPU, which models a pod may use, and how many pods of each kind have arrived. A real placement obeys all of these as
well, so that none can allocate more.

* **B**: free choice among what has arrived once 100 percent have. No policy can have allocated more by then. * **C**:
all that arrived before FGD's first failure is placed, and free choice of the rest, at the end. No policy can exceed it
without failing a pod before FGD does.
"""

import importlib.util
from collections import Counter
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from purser.core.fleet.facts import FleetNodeFacts
from purser.core.model import WHOLE_MILLI
from purser.core.placement.shape import PodShape, is_share, need_milli
from purser.simulator.deciding import shapes_of
from purser.simulator.patterns import patterns
from purser.simulator.workload import Order, SimWorkload

NEEDS_SCIPY = "--bound needs scipy: run pip install scipy"


class Bounds(msgspec.Struct, frozen=True):
    """In percent of all GPUs."""

    b_percent: float
    """At 100 percent arrived."""
    c_percent: float
    """At the end, for who does not fail a pod before FGD does."""
    c_from_percent: float
    """How much had arrived when FGD failed first."""


class SolverError(RuntimeError):
    """The solver gave no answer; the message holds its own words."""


def has_solver() -> bool:
    """Whether there is a solver."""
    return importlib.util.find_spec("scipy") is not None


def bounds(workload: SimWorkload, order: Order, first_failure: int | None) -> Bounds:
    """Both bounds of one order, where FGD first failed at that event. Raises `SolverError`."""
    shapes = shapes_of(workload)
    arrivals = shapes.of_pod[order.pods]
    arrived = np.cumsum(shapes.demand_milli[arrivals])
    full = int(np.searchsorted(arrived, workload.capacity_milli, side="right"))
    until = len(arrivals) if first_failure is None else first_failure
    least, most = _counts(arrivals[:until]), _counts(arrivals)
    program = Program(workload.nodes, shapes.distinct)
    b = program.max_allocation(_counts(arrivals[:full]), Counter())
    c = program.max_allocation(most, least)
    percent = 100 * float(arrived[until - 1]) / workload.capacity_milli if until else 0.0
    return Bounds(
        round(100 * b / workload.capacity_milli, 4), round(100 * c / workload.capacity_milli, 4), round(percent, 2)
    )


def _counts(numbers: npt.NDArray[np.int64]) -> Counter[int]:
    return Counter(numbers.tolist())


class _Class(msgspec.Struct, frozen=True):
    """Shapes that differ in memory alone: the least of it is taken, which only loosens the bound."""

    shape: PodShape
    members: tuple[int, ...]


class _Type(msgspec.Struct, frozen=True):
    """Nodes that are equal."""

    node: FleetNodeFacts
    nodes: int

    @property
    def gpu_memory_mib(self) -> int:
        return max((gpu.memory_mib for gpu in self.node.gpus), default=0)

    def takes(self, shape: PodShape) -> bool:
        """Whether an empty node does."""
        usable = [gpu for gpu in self.node.gpus if not gpu.closed and shape.takes_model(gpu.model)]
        fits = [gpu for gpu in usable if need_milli(shape, gpu.memory_mib) <= WHOLE_MILLI]
        room = self.node.cpu_free_milli >= shape.cpu_milli and self.node.memory_free_mib >= shape.memory_mib
        return room and len(fits) >= shape.gpu_count


class Program:
    """The linear program of one fleet: how many pods of each class on each type of node, and GPUs of each pattern."""

    def __init__(self, nodes: tuple[FleetNodeFacts, ...], shapes: tuple[PodShape, ...]) -> None:
        self._types = _types(nodes)
        self._classes = _classes(shapes)
        self._pairs = [
            (c, t)
            for c, kind in enumerate(self._classes)
            for t, type_ in enumerate(self._types)
            if type_.takes(kind.shape)
        ]
        self._entries: list[tuple[int, int, float]] = []
        self._limits: list[float] = []
        self._gain = [float(self._milli(c, t)) for c, t in self._pairs]
        self._variables = len(self._pairs)
        self._fill()

    def max_allocation(self, most: Counter[int], least: Counter[int]) -> float:
        """Thousandths of a GPU, where of each shape at least and at most so many pods are placed."""
        from scipy.optimize import linprog
        from scipy.sparse import csr_matrix

        entries, limits = list(self._entries), list(self._limits)
        for c, kind in enumerate(self._classes):
            places = [place for place, (of, _) in enumerate(self._pairs) if of == c]
            if places:
                entries += [(len(limits), place, 1.0) for place in places]
                limits.append(float(sum(most[member] for member in kind.members)))
                needed = sum(least[member] for member in kind.members)
                if needed:
                    entries += [(len(limits), place, -1.0) for place in places]
                    limits.append(-float(needed))
        rows, columns, values = (np.array(each) for each in zip(*entries, strict=True))
        matrix = csr_matrix((values, (rows, columns)), shape=(len(limits), self._variables))
        gain = np.zeros(self._variables)
        gain[: len(self._gain)] = self._gain
        found: Any = linprog(-gain / WHOLE_MILLI, A_ub=matrix, b_ub=np.array(limits), method="highs")
        if found.status != 0:
            raise SolverError(f"the bound could not be computed: {found.message}")
        return -float(found.fun) * WHOLE_MILLI

    def _milli(self, c: int, t: int) -> int:
        shape = self._classes[c].shape
        return shape.gpu_count * need_milli(shape, self._types[t].gpu_memory_mib) if shape.gpu_count else 0

    def _fill(self) -> None:
        for t, type_ in enumerate(self._types):
            here = [(place, self._classes[c]) for place, (c, of) in enumerate(self._pairs) if of == t]
            self._limit([(p, kind.shape.cpu_milli) for p, kind in here], type_.nodes * type_.node.cpu_free_milli)
            self._limit([(p, kind.shape.memory_mib) for p, kind in here], type_.nodes * type_.node.memory_free_mib)
            self._fill_gpus(type_, [(p, kind.shape) for p, kind in here if kind.shape.gpu_count])

    def _fill_gpus(self, type_: _Type, here: list[tuple[int, PodShape]]) -> None:
        """GPUs are either of pods that have them whole, or filled with shares by one of the patterns."""
        shares = {p: need_milli(s, type_.gpu_memory_mib) for p, s in here if is_share(s, type_.gpu_memory_mib)}
        sizes = sorted(set(shares.values()))
        ways, _ = patterns(sizes)
        first = self._variables
        self._variables += len(ways)
        whole = [(p, float(s.gpu_count)) for p, s in here if p not in shares]
        self._limit([*whole, *((first + way, 1.0) for way in range(len(ways)))], type_.nodes * len(type_.node.gpus))
        for place, size in enumerate(sizes):
            taken = [(p, 1.0) for p, of in shares.items() if of == size]
            given = [(first + way, -float(counts[place])) for way, counts in enumerate(ways) if counts[place]]
            self._limit([*taken, *given], 0.0)

    def _limit(self, terms: "list[tuple[int, float]] | list[tuple[int, int]]", limit: float) -> None:
        self._entries += [(len(self._limits), place, float(value)) for place, value in terms if value]
        self._limits.append(float(limit))


def _types(nodes: tuple[FleetNodeFacts, ...]) -> list[_Type]:
    counts = Counter(msgspec.structs.replace(node, name="", kinds=(), links=None) for node in nodes)
    return [_Type(node, count) for node, count in counts.items()]


def _classes(shapes: tuple[PodShape, ...]) -> list[_Class]:
    grouped: dict[PodShape, list[int]] = {}
    for number, shape in enumerate(shapes):
        grouped.setdefault(msgspec.structs.replace(shape, memory_mib=0), []).append(number)
    return [
        _Class(
            msgspec.structs.replace(shape, memory_mib=min(shapes[number].memory_mib for number in members)),
            tuple(members),
        )
        for shape, members in grouped.items()
    ]
