"""Messages in a node's annotations: structs as JSON. Whoever reads one must bear that anybody may have written it."""

from typing import TypeVar

import msgspec

MAX_BYTES = 16 * 1024
"""Of one annotation: more is not read."""

T = TypeVar("T", bound=msgspec.Struct)


def encode(told: msgspec.Struct) -> str:
    """As it stands in the annotation; equal values are equal texts."""
    return msgspec.json.encode(told, order="deterministic").decode()


def decode(text: str | None, kind: type[T]) -> T | None:
    """What an annotation says; None where there is none, or none that can be read."""
    if not text or len(text) > MAX_BYTES:
        return None
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError:
        return None
