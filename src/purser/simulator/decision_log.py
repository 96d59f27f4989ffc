"""A simulation's decisions, written to a file as they are made; `purser replay` reads it."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from purser import __version__
from purser.core.decisions import encode
from purser.core.decisions.framing import MAGIC
from purser.core.decisions.records import (
    LOG_FORMAT,
    Record,
    ShapeArrived,
    ShapePlaced,
    ShapeReleased,
    ShapeSeen,
    SimulatedNode,
    SimulationStart,
)
from purser.core.fleet.facts import Take
from purser.core.placement.mix import Mix
from purser.core.placement.shape import PodShape
from purser.core.placement.table import ShapeTable
from purser.simulator.workload import Order, SimWorkload, ranked

_BUFFER_BYTES = 1 << 20


class SimulationLog:
    """Takes one run's decisions. Raises OSError where they cannot be written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._shapes: dict[PodShape, int] = {}

    def start(self, workload: SimWorkload, order: Order, policy: str, learns: bool, mix: Mix) -> None:
        """All that its decisions depend on."""
        self._file.write(MAGIC)
        self._write(SimulationStart(LOG_FORMAT, __version__, policy, order.seed, learns, mix))
        for rank, node in ranked(workload, order):
            self._write(SimulatedNode(node, rank))

    def arrived(self, shape: PodShape) -> None:
        """A pod has come, to be learnt from."""
        self._write(ShapeArrived(self._number(shape)))

    def placed(self, shape: PodShape, found: tuple[int, tuple[int, ...]] | None, table: ShapeTable) -> None:
        """A decision of this table was made, and nothing is taken yet."""
        number = self._number(shape)
        if found is None:
            self._write(ShapePlaced(number))
            return
        row, gpus = found
        self._write(ShapePlaced(number, row, gpus, float(table.known(shape).scores[row])))

    def released(self, shape: PodShape, row: int, gpus: tuple[int, ...], taken: Take) -> None:
        """A pod has ended."""
        self._write(ShapeReleased(self._number(shape), row, gpus, taken.mig_bits))

    def _number(self, shape: PodShape) -> int:
        number = self._shapes.get(shape)
        if number is None:
            number = self._shapes[shape] = len(self._shapes)
            self._write(ShapeSeen(shape))
        return number

    def _write(self, record: Record) -> None:
        self._file.write(encode(record))


@contextmanager
def opened(path: str) -> Iterator[SimulationLog | None]:
    """A log in this file, whatever is there; None for an empty path. Raises OSError."""
    if not path:
        yield None
        return
    with io.BufferedWriter(io.FileIO(Path(path), "w"), _BUFFER_BYTES) as file:
        yield SimulationLog(file)
