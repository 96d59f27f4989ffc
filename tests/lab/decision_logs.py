"""The decisions in a folder of logs, made again."""

import io
from collections.abc import Iterator
from pathlib import Path

from purser.core.decisions import DecisionDifference, DecisionLogError, Reader, Replayer
from purser.core.decisions.records import Record


def replayed(folder: Path) -> tuple[int, list[DecisionDifference]]:
    """How many there are, and those that come out differently. A file of a killed process may end within a record."""
    replayer, found = Replayer(), []
    for path in sorted(folder.iterdir()):
        reader = Reader(io.BytesIO(path.read_bytes()).read)
        for record in up_to_the_cut(reader):
            found.append(replayer.take(reader, record))
    return replayer.decisions, [each for each in found if each is not None]


def up_to_the_cut(reader: Reader) -> Iterator[Record]:
    """Its records, those before the one within which the file of a killed process ends."""
    try:
        yield from reader
    except DecisionLogError as error:
        if "the file ends in the middle of the record" not in str(error):
            raise
