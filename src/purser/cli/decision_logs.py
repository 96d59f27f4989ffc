"""Files of a scheduler's decision log on the command line: a file, or the folder that the scheduler writes."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from purser.cli.output import MISUSED, fail

if TYPE_CHECKING:
    from purser.scheduler.explaining import LogFile

_PATTERN = "*.log"


def log_files(path: Path) -> "list[LogFile]":
    """The newest first, as their names say; empty where the path is a file of something else. Exits for a folder
    without logs, and for what cannot be read."""
    from purser.core.decisions.framing import MAGIC
    from purser.scheduler.explaining import LogFile

    try:
        if path.is_dir():
            paths = _files_in_folder(path, "--from")[::-1]
        elif path.is_file():
            with path.open("rb") as file:
                paths = [path] if file.read(len(MAGIC)) == MAGIC else []
        else:
            paths = []  # a pipe can be read once, and a log is read twice
    except OSError as error:
        fail(f"--from {path}: {error}", MISUSED)
    return [LogFile(str(each), _opener(each)) for each in paths]


def in_folders(paths: Iterable[Path], option: str) -> list[Path]:
    """Files as they are, and of folders the logs, the oldest first, as their names say. Exits for a folder without."""
    found: list[Path] = []
    for path in paths:
        try:
            found += _files_in_folder(path, option) if path.is_dir() else [path]
        except OSError as error:
            fail(f"{option} {path}: {error}", MISUSED)
    return found


def _files_in_folder(path: Path, option: str) -> list[Path]:
    found = sorted(path.glob(_PATTERN))
    if not found:
        fail(f"{option} {path}: the folder does not contain decision logs ({_PATTERN})", MISUSED)
    return found


def _opener(path: Path) -> Callable[[], BinaryIO]:
    return lambda: path.open("rb")
