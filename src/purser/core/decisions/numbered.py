"""What records name by a number: its place among those that came before."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def item_at(listed: Sequence[T], number: int, what: str) -> T:
    """The one with this number. Raises ValueError where there is none; ``what`` they are."""
    if not 0 <= number < len(listed):
        raise ValueError(f"{what} {number} does not exist")
    return listed[number]
