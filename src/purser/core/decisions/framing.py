"""Records as bytes, and bytes that others may have written as records.

A file is `MAGIC` and records. A record is its length and the CRC-32 of its content, 4 bytes each with the lowest first,
and the content in MessagePack. The CRC finds what a disk or a transfer changed; it is not a signature.
"""

import struct
import zlib
from collections.abc import Callable, Iterator

import msgspec

from purser.core.decisions.records import LOG_FORMAT, Record
from purser.core.decoding import brief

MAGIC = b"purser decision log\n"
MAX_CONTENT_BYTES = 1 << 24
"""Of a record's content: more than what a node can say of itself in annotations."""

_HEAD = struct.Struct("<II")
_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


class DecisionLogError(ValueError):
    """A file that is not a decision log, or not to its end; the message names the record and the byte, in one line."""


def encode(record: Record) -> bytes:
    """A record as it stands in a file. Raises `DecisionLogError` for one that is too long to be read."""
    content = _ENCODER.encode(record)
    if len(content) > MAX_CONTENT_BYTES:
        raise DecisionLogError(f"a record has {len(content)} bytes, more than the maximum of {MAX_CONTENT_BYTES}")
    return _HEAD.pack(len(content), zlib.crc32(content)) + content


class Reader:
    """The records of one file."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        """``read`` returns so many bytes, fewer at the end, as a file opened for bytes does."""
        self._read = read
        self.number = 0
        """Of the record that was read last; the first is 1."""
        self.offset = 0
        """Where that record begins, in bytes."""
        self._end = 0

    def __iter__(self) -> Iterator[Record]:
        """The records in their order. Raises `DecisionLogError` after the last that can be read, and nothing else."""
        magic = self._read(len(MAGIC))
        if magic != MAGIC:
            raise DecisionLogError("this is not a decision log: the file signature does not match")
        self._end = len(MAGIC)
        while (record := self._next()) is not None:
            if not self.number > 1:
                self._check_format(record)
            yield record

    def error(self, problem: str) -> DecisionLogError:
        """What is wrong with the record that was read last."""
        return DecisionLogError(f"record {self.number} at byte {self.offset}: {problem}")

    def _next(self) -> Record | None:
        self.number, self.offset = self.number + 1, self._end
        head = self._read(_HEAD.size)
        if not head:
            self.number -= 1
            return None
        if len(head) < _HEAD.size:
            raise self.error("the file ends in the middle of the record")
        length, crc = _HEAD.unpack(head)
        if length > MAX_CONTENT_BYTES:
            raise self.error(f"the record's header claims {length} bytes, more than the maximum of {MAX_CONTENT_BYTES}")
        content = self._read(length)
        self._end += _HEAD.size + length
        if len(content) < length:
            raise self.error("the file ends in the middle of the record")
        if zlib.crc32(content) != crc:
            raise self.error("the record is damaged: its checksum does not match")
        try:
            return _DECODER.decode(content)
        except Exception as error:  # whatever a parser makes of bytes that others wrote is these bytes' fault
            raise self.error(f"the record cannot be read: {brief(error)}") from error

    def _check_format(self, record: Record) -> None:
        found = getattr(record, "format", None)
        if found is None:
            raise self.error("the first record of a log must state the kind of log, but this record does not")
        if not 1 <= found <= LOG_FORMAT:
            raise self.error(f"the log has format {found}, but this version of Purser reads formats 1 to {LOG_FORMAT}")
