"""Text of input files, plain or gzip."""

import gzip
import zlib
from pathlib import Path

from purser.simulator.problems import InputError, Problem, raise_input_errors

MAX_BYTES = 256 * 1024 * 1024
"""Some three million pods. A file that unpacks to more is not a list of pods."""


def read_text(path: Path) -> str:
    """The whole text, without a byte order mark. Raises `InputError`."""
    with raise_input_errors(path):
        data = _bytes(path)
    if len(data) > MAX_BYTES:
        raise InputError([Problem(str(path), 1, 1, f"the file is larger than {MAX_BYTES >> 20} MiB")])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        raise InputError([Problem(str(path), line, column, "the file is not UTF-8 text")]) from error


def _bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        if file.read(2) != b"\x1f\x8b":
            file.seek(0)
            return file.read(MAX_BYTES + 1)
    try:
        with gzip.open(path) as packed:
            return packed.read(MAX_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError([Problem(str(path), 1, 1, f"the file is damaged: {error}")]) from error
