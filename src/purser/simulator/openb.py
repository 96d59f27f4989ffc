"""Lists of nodes and pods as CSV, with the columns of the openb traces of clusterdata.

Nodes: ``sn, cpu_milli, memory_mib, gpu, model``. Pods: ``name, cpu_milli, memory_mib, num_gpu, gpu_milli`` and, where
there are such, ``gpu_spec`` (models joined by ``|``), ``creation_time``, ``scheduled_time`` and ``deletion_time`` in
seconds. Other columns are not read. A line is a row: quoted fields may not span lines. Semicolons or tabs may stand for
commas, as the first line has them. Lines without any text are passed over. ``1.0`` is 1, and ``NaN`` is an empty field:
pandas writes whole numbers so in a column where any row has none, and what is not there.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from purser.core.fleet.facts import FleetNodeFacts, GpuFacts
from purser.core.model import WHOLE_MILLI
from purser.core.placement.shape import PodShape
from purser.core.wording import counted
from purser.simulator.files import read_text
from purser.simulator.problems import FileProblems, InputError, Problem
from purser.simulator.workload import PODS_PER_NODE, SLOTS, SimPod, SimWorkload

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")

MAX_AMOUNT = 1 << 40
"""Of any amount: sums of a million of them still are 64-bit numbers."""
MAX_GPUS = 128
"""Of a node, or a pod."""

_DELIMITERS = ",;\t"
_FIELD = {each: re.compile(rf'"((?:[^"]|"")*)"(?={each}|$)|([^"{each}]*)(?={each}|$)') for each in _DELIMITERS}
_ABSENT_VALUES = ("NaN", "nan", "NaT", "<NA>")
"""How pandas and numpy write what is not there."""
WHOLE = re.compile(r"[0-9]{1,15}")
"""A whole number, 0 or more."""
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{0,20})?([eE][+-]?[0-9]{1,2})?")
"""A number, 0 or more, with as many digits as a program writes of one."""
_MAX_NUMBER = 1e15


def whole_number(text: str) -> int | None:
    """A whole number as people and programs write it: ``1``, ``1.0``, ``1e+06``; None: it is none, or below 0."""
    if WHOLE.fullmatch(text):
        return int(text)
    number = parse_number(text)
    return int(number) if number is not None and number.is_integer() else None


def parse_number(text: str) -> float | None:
    """A number of 0 or more, such as a time; None: it is none, or none that anybody means."""
    number = float(text) if _NUMBER.fullmatch(text) else None
    return number if number is not None and number < _MAX_NUMBER else None


def read_lists(nodes: Path, pods: Path) -> SimWorkload:
    """Both lists. Raises `InputError` with everything that is wrong in either."""
    problems: list[Problem] = []
    found: list[tuple[Any, ...]] = []
    for read, path in ((read_nodes, nodes), (read_pods, pods)):
        try:
            found.append(read(path))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return SimWorkload(pods.name, found[0], found[1])


def read_nodes(path: Path) -> tuple[FleetNodeFacts, ...]:
    """A list of nodes. Raises `InputError` with everything that is wrong."""
    problems, nodes = FileProblems(path), []
    names: set[str] = set()
    for row in _rows(path, NODE_COLUMNS, problems):
        name = row.name("sn", names)
        cpu, memory = row.whole("cpu_milli"), row.whole("memory_mib")
        gpus = row.whole("gpu", MAX_GPUS)
        model = row.text("model", required=gpus > 0)
        nodes.append(FleetNodeFacts(name, (GpuFacts(model, WHOLE_MILLI, SLOTS),) * gpus, cpu, memory, PODS_PER_NODE))
    _check_not_empty(problems, nodes, "nodes")
    return tuple(nodes)


def read_pods(path: Path) -> tuple[SimPod, ...]:
    """A list of pods. Raises `InputError` with everything that is wrong."""
    problems, pods = FileProblems(path), []
    names: set[str] = set()
    shapes: dict[PodShape, PodShape] = {}
    for row in _rows(path, POD_COLUMNS, problems):
        name, shape = row.name("name", names), _shape(row)
        arrives_s, lasts_s = _times(row)
        pods.append(SimPod(name, shapes.setdefault(shape, shape), arrives_s, lasts_s))
    _check_not_empty(problems, pods, "pods")
    return tuple(pods)


def _shape(row: "_Row") -> PodShape:
    before = len(row.problems.found)
    cpu, memory = row.whole("cpu_milli"), row.whole("memory_mib")
    gpus = row.whole("num_gpu", MAX_GPUS)
    milli = row.whole("gpu_milli", WHOLE_MILLI) if gpus or row.text("gpu_milli") else 0
    readable = len(row.problems.found) == before
    if readable and gpus and not milli:
        row.wrong("gpu_milli", f"is 0, but num_gpu is {gpus}: must be from 1 to {WHOLE_MILLI} thousandths of each GPU")
    if readable and milli and not gpus:
        row.wrong("gpu_milli", f"is {milli}, but num_gpu is 0: set num_gpu to the number of GPUs, or use 0 thousandths")
    # A pod without GPUs may run on nodes with GPUs of any model.
    words = row.text("gpu_spec").split("|") if gpus and row.text("gpu_spec") else []
    if not all(words):
        row.wrong("gpu_spec", "contains an empty model: separate models with a single |")
    return PodShape(cpu, memory, gpus, milli, models=tuple(f"={word}" for word in words))


def _times(row: "_Row") -> tuple[float | None, float | None]:
    """(when it comes, how long it runs): from when it was scheduled, where it was, otherwise from when it came."""
    created, deleted = row.seconds("creation_time"), row.seconds("deletion_time")
    started = row.seconds("scheduled_time")
    if created is None or deleted is None:
        return created, None
    if deleted < created:
        row.wrong("deletion_time", f"is before creation_time, {created:g}")
    if started is not None and not created <= started <= max(created, deleted):
        row.wrong("scheduled_time", "is not between creation_time and deletion_time")
    return created, deleted - (created if started is None else started)


class _Row(msgspec.Struct):
    """One line: its fields by column, and where each begins."""

    line: int
    fields: dict[str, tuple[str, int]]
    problems: FileProblems

    def wrong(self, column: str, message: str) -> None:
        """Note what is wrong with a field."""
        self.problems.add(self.line, self.fields[column][1], f"{column} {message}")

    def text(self, column: str, required: bool = False) -> str:
        """A field without the blanks around it; empty where the file has no such column, or a word for nothing."""
        text = self._raw(column)
        text = "" if text in _ABSENT_VALUES else text
        if required and not text:
            self.wrong(column, "is empty")
        return text

    def _raw(self, column: str) -> str:
        return self.fields[column][0].strip() if column in self.fields else ""

    def name(self, column: str, taken: set[str]) -> str:
        """A name that no other row has."""
        name = self._raw(column)
        if not name:
            self.wrong(column, "is empty")
        if name in taken:
            self.wrong(column, f"{name!r} appears twice")
        taken.add(name)
        return name

    def whole(self, column: str, most: int = MAX_AMOUNT) -> int:
        """A whole number, 0 where it is none."""
        text = self.text(column)
        number = whole_number(text)
        if number is None or number > most:
            self.wrong(column, f"is {self._raw(column)!r}, but must be an integer from 0 to {most}")
            return 0
        return number

    def seconds(self, column: str) -> float | None:
        """A time, None where there is none."""
        text = self.text(column)
        if not text:
            return None
        found = parse_number(text)
        if found is None:
            self.wrong(column, f"is {text!r}, but must be empty or a number of seconds (0 or more)")
        return found


def _rows(path: Path, required: Sequence[str], problems: FileProblems) -> Iterator[_Row]:
    lines = read_text(path).splitlines()
    first = next((at for at, line in enumerate(lines) if line.strip()), 0)
    delimiter = max(_DELIMITERS, key=lines[first].count) if lines else ","
    head = _split(lines[first], delimiter) if lines else None
    if head is None:
        problems.add(first + 1, 1, f"the file has no header line: the first line must be {','.join(required)}")
        raise InputError(problems.found)
    columns = [name.strip() for name, _ in head]
    for name in required:
        if columns.count(name) != 1:
            problems.add(first + 1, 1, f"column {name} is {'missing' if name not in columns else 'given twice'}")
    problems.raise_if_any()
    for number, line in enumerate(lines[first + 1 :], start=first + 2):
        if not line.replace(delimiter, "").strip():
            continue
        fields = _split(line, delimiter)
        if fields is None:
            problems.add(number, line.index('"') + 1, "a quote is out of place")
        elif len(fields) != len(columns):
            extra = fields[len(columns)][1] if len(fields) > len(columns) else len(line) + 1
            problems.add(
                number, extra, f"the line has {counted(len(fields), 'field')}, but the header has {len(columns)}"
            )
        else:
            yield _Row(number, dict(zip(columns, fields, strict=True)), problems)


def _split(line: str, delimiter: str) -> list[tuple[str, int]] | None:
    """The fields with the columns they begin at; None where quotes make no sense."""
    fields: list[tuple[str, int]] = []
    at = 0
    if '"' not in line:
        for text in line.split(delimiter):
            fields.append((text, at + 1))
            at += len(text) + 1
        return fields
    while True:
        match = _FIELD[delimiter].match(line, at)
        if match is None:
            return None
        quoted, plain = match.groups()
        fields.append((plain if quoted is None else quoted.replace('""', '"'), at + 1))
        if match.end() == len(line):
            return fields
        at = match.end() + 1


def _check_not_empty(problems: FileProblems, found: Sequence[object], what: str) -> None:
    if not found and not problems.found:
        problems.add(1, 1, f"the file has no {what}")
    problems.raise_if_any()
