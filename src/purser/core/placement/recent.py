"""What was computed lately, and may be asked for again."""

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def recall(known: "OrderedDict[K, V]", key: K, make: Callable[[], V], most: int) -> V:
    """What is known by a key, made where nothing is; what was not asked for the longest is forgotten."""
    if key not in known:
        known[key] = make()
    known.move_to_end(key)
    if len(known) > most:
        known.popitem(last=False)
    return known[key]
