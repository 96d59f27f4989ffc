"""Events of a watch."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

T = TypeVar("T")


class ChangeType(StrEnum):
    """What happened to an object, in the API's words."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """An object came, changed, or went; for DELETED the object is its last state."""

    type: ChangeType
    object: T


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Everything up to this version has been sent, even if none of it matched."""

    resource_version: str


WatchEvent = Change[T] | Bookmark


def split_lines(rest: bytearray, chunk: bytes) -> list[bytes]:
    """The lines that a chunk completes; ``rest`` keeps what is incomplete from one call to the next.

    A line may have any length: objects of several MiB exist, which is why a StreamReader's readline will not do.
    """
    *lines, tail = chunk.split(b"\n")
    if rest and lines:
        lines[0] = bytes(rest) + lines[0]
        rest.clear()
    rest += tail
    return [line for line in lines if line.strip()]
