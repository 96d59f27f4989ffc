"""What a state is told from others by: its hash under those names that make it the smallest.

Pods, the GPUs of a node, nodes, and schedulers are alike at first, so that a state and the same state with other names
have the same histories, but for the names. Of all states that differ in names alone one is explored.
"""

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from itertools import permutations, product
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tests.model.cluster import SchedulerState, Size
from tests.model.renaming import renamed

Hashes = npt.NDArray[np.uint64]
"""One for each way to give names."""


def ways_to_name(size: Size) -> Iterator[dict[str, str]]:
    """The first leaves all as it is."""
    pods = [dict(zip(_names("pod", size.pods), each, strict=True)) for each in permutations(_names("pod", size.pods))]
    schedulers = _names("scheduler", size.schedulers)
    leaders = [dict(zip(schedulers, each, strict=True)) for each in permutations(schedulers)]
    for parts in product(pods, leaders, list(_nodes(size))):
        yield {old: new for part in parts for old, new in part.items()}


def _nodes(size: Size) -> Iterator[dict[str, str]]:
    nodes, gpus = _names("node", size.nodes), range(size.gpus)
    for order in permutations(nodes):
        for turns in product(permutations(gpus), repeat=size.nodes):
            names = dict(zip(nodes, order, strict=True))
            for node, turn in zip(nodes, turns, strict=True):
                names |= {f"{node}-gpu{i}": f"{names[node]}-gpu{turn[i]}" for i in gpus}
            yield names


def _names(of: str, count: int) -> list[str]:
    return [f"{of}{i}" for i in range(count)]


class Hasher:
    """Hashes of values by their content, 64 bits each: those of a record's fields are mixed by place, those of a bag's
    members are added."""

    def __init__(self, ways: list[dict[str, str]], opened: Callable[[SchedulerState], tuple[Any, ...]]) -> None:
        self._ways, self._opened = ways, opened
        self._known: dict[Any, Hashes] = {}

    def of(self, value: Any) -> Hashes:
        return self._mixed(value, self._opened(value)) if isinstance(value, SchedulerState) else self._of(value)

    def _of(self, value: Any) -> Hashes:
        key = value if isinstance(value, tuple | frozenset | msgspec.Struct) else (type(value), value)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._computed(value)
        return found

    def _computed(self, value: Any) -> Hashes:
        if isinstance(value, msgspec.Struct):
            return self._mixed(value, [getattr(value, each) for each in value.__struct_fields__])
        if hasattr(value, "_fields"):
            return self._mixed(value, value)
        if isinstance(value, tuple | frozenset):
            total = np.full(len(self._ways), len(value), np.uint64)
            for each in value:
                total += self._of(each)
            return _mix(total)
        texts = (f"{type(value).__name__} {renamed(value, way)}" for way in self._ways)
        return np.array([_digest(each) for each in texts], np.uint64)

    def _mixed(self, record: Any, parts: Iterable[Any]) -> Hashes:
        total = np.full(len(self._ways), _digest(type(record).__name__), np.uint64)
        for part in parts:
            total = _mix(total * np.uint64(3) + self._of(part))
        return total


def _digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def _mix(value: Hashes) -> Hashes:
    """The end of splitmix64."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
