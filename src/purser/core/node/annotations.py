"""Messages in a node's annotations: structs as JSON. Readers must treat them as untrusted."""

from typing import Generic, TypeVar

import msgspec

from purser.core.decoding import JsonReader, UnreadableError

MAX_NODE_MESSAGE_BYTES = 16 * 1024
"""Of one annotation: more is not read."""

T = TypeVar("T", bound=msgspec.Struct)


class NodeMessage(Generic[T]):
    """One kind of message, kept under one annotation."""

    def __init__(self, kind: type[T], annotation: str) -> None:
        self._reader = JsonReader(kind, f"annotation {annotation}", max_bytes=MAX_NODE_MESSAGE_BYTES)

    def read(self, text: str | None) -> T | None:
        """What an annotation says; None where there is none, or none that can be read."""
        if not text:
            return None
        try:
            return self._reader.read(text)
        except UnreadableError:
            return None


def encode(document: msgspec.Struct) -> str:
    """As it stands in the annotation; equal values are equal texts."""
    return msgspec.json.encode(document, order="deterministic").decode()
