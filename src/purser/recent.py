"""Bounded memories: of too many entries the one that was not used for the longest is forgotten."""

from collections import OrderedDict
from collections.abc import Callable, ItemsView
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

    def recall(self, key: K, make: Callable[[], V]) -> V:
        """What is remembered of a key, made where nothing is."""
        if key not in self._entries:
            return self.put(key, make())
        self._entries.move_to_end(key)
        return self._entries[key]

    def forget(self, key: K) -> None:
        """Nothing is remembered of a key any more."""
        self._entries.pop(key, None)

    def items(self) -> ItemsView[K, V]:
        """All that is remembered, what was not used for the longest first."""
        return self._entries.items()

    def clear(self) -> None:
        """Nothing is remembered any more."""
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries
