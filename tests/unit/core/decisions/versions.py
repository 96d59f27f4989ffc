"""A version of Purser after this one, as far as decision logs go: its format's number is one larger, and every record
has a field more."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import msgspec
from tests.unit.core.decisions.test_simulation import framed

from purser.core.decisions import framing, recording
from purser.core.decisions.framing import MAGIC
from purser.core.decisions.records import LOG_FORMAT, Record
from purser.scheduler.decision_log import files


@contextmanager
def later_writer() -> Iterator[None]:
    """Schedulers that start within are of that version."""
    with patch.object(recording, "LOG_FORMAT", LOG_FORMAT + 1), patch.object(files, "encode", encode_later):
        yield


@contextmanager
def later_reader() -> Iterator[None]:
    """`purser replay` within is of that version."""
    with patch.object(framing, "LOG_FORMAT", LOG_FORMAT + 1):
        yield


def encode_later(record: Record) -> bytes:
    """A record as that version writes it."""
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(record))
    return framed([msgspec.msgpack.encode([*fields, {"new": True}])]).removeprefix(MAGIC)
