"""Bounded memories: of too many entries the one that was not used for the longest is forgotten."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Remembers ``most`` entries."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """What is remembered of a key, which is used thereby."""
        if key in self._entries:
            self._entries.move_to_end(key)
        return self._entries.get(key)

    def put(self, key: K, value: V) -> V:
        """Remember a value, and return it."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._most:
            self._entries.popitem(last=False)
        return value

    def forget(self, key: K) -> None:
        """Nothing is remembered of a key any more."""
        self._entries.pop(key, None)

    def clear(self) -> None:
        """Nothing is remembered any more."""
        self._entries.clear()

    def __contains__(self, key: K) -> bool:
        return key in self._entries


def recall(known: "OrderedDict[K, V]", key: K, make: Callable[[], V], most: int) -> V:
    """What was computed for a key, made where nothing was; what was not asked for the longest is forgotten."""
    if key not in known:
        known[key] = make()
    known.move_to_end(key)
    if len(known) > most:
        known.popitem(last=False)
    return known[key]
