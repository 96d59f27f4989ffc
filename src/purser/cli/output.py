"""How commands print: tables for people, JSON and YAML for scripts, errors in one line with an exit code."""

import errno
import json
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

import typer

from purser.cli.table_layout import GAP, layout_of

Row = TypeVar("Row")

FAILED = 1
"""Exit code: the command ran and what it was asked for is not so, or could not be had."""
_ADDRESS = re.compile(r"\('([^']+)', (\d+)")
"""Where asyncio could not listen, in its message."""
MISUSED = 2
"""Exit code: the command line or a file on it is wrong."""


class OutputFormat(StrEnum):
    """Value of ``-o`` for commands that print a table."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


class DocumentFormat(StrEnum):
    """Value of ``-o`` for commands that print one thing."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True)
class Column(Generic[Row]):
    """One column of a table: its head, how a row fills it, and whether only ``-o wide`` shows it."""

    head: str
    read: Callable[[Row], object]
    wide: bool = False
    coloured: bool = False
    """Whether a terminal shows what is wrong in red, and what somebody closed in yellow."""


def show(
    rows: Sequence[Row],
    columns: Sequence[Column[Row]],
    output: OutputFormat,
    *,
    empty: str,
    document: Callable[[Row], dict[str, Any]],
    headers: bool = True,
) -> None:
    """Print rows the way kubectl would, or with ``-o json|yaml`` as a list of their documents.

    ``empty`` goes to standard error where a table would have no rows; ``headers``: whether a table has its first line.
    """
    if output in (OutputFormat.JSON, OutputFormat.YAML):
        dump([document(row) for row in rows], DocumentFormat(output.value))
        return
    if not rows:
        print(empty, file=sys.stderr)
        return
    print_table(rows, columns, output, headers=headers)


def print_table(
    rows: Sequence[Row], columns: Sequence[Column[Row]], output: OutputFormat, *, headers: bool = True
) -> None:
    """Print the heads and a line per row, each column as wide as its longest cell, all columns for ``WIDE``.

    By itself for rows that are totals, of which a document says the same in another way.
    """
    width = terminal_width(output)
    for line in table_lines(rows, columns, output, colours=has_colours(), headers=headers, width=width):
        print(line)


def terminal_width(output: OutputFormat) -> int | None:
    """What a table is to fit into: the terminal that standard output is. None: anything is, or ``-o wide`` asks for a
    line per row, whatever its width."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return shutil.get_terminal_size().columns if is_terminal and output is OutputFormat.TABLE else None


def has_colours() -> bool:
    """Whether standard output is a terminal that shows colours (https://no-color.org)."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
    return wanted and sys.stdout is not None and sys.stdout.isatty()


def table_lines(
    rows: Sequence[Row],
    columns: Sequence[Column[Row]],
    output: OutputFormat,
    *,
    colours: bool = False,
    headers: bool = True,
    width: int | None = None,
) -> Iterator[str]:
    """The lines of `print_table`, the heads first. ``width``: of the terminal; None: a row has one line."""
    shown = shown_columns(columns, output)
    heads, lines = [column.head for column in shown], [row_cells(row, shown) for row in rows]
    layout = layout_of([heads, *lines], width)
    for place, cells in enumerate([heads, *lines] if headers else lines):
        for line in layout.wrapped(cells):
            is_coloured = colours and (place > 0 or not headers)
            yield table_line(line, shown, layout.widths, colours=is_coloured, gap=layout.gap)


def shown_columns(columns: Sequence[Column[Row]], output: OutputFormat) -> list[Column[Row]]:
    """Those that a table of this format has."""
    return [column for column in columns if output is OutputFormat.WIDE or not column.wide]


def row_cells(row: Row, columns: Sequence[Column[Row]]) -> list[str]:
    """A row's texts."""
    return [cell(column.read(row)) for column in columns]


def table_line(
    cells: Sequence[str], columns: Sequence[Column[Row]], widths: Sequence[int], *, colours: bool, gap: int = GAP
) -> str:
    """One line of a table, each cell as wide as its column."""
    padded = (text.ljust(width) for text, width in zip(cells, widths, strict=True))
    shown = (
        _colour(text) if colours and column.coloured else text for text, column in zip(padded, columns, strict=True)
    )
    return (" " * gap).join(shown).rstrip()


_COLOURS = {
    "Unhealthy": "31",
    "NotReady": "31",
    "Unknown": "31",
    "Cordoned": "33",
    "Disputed": "33",
    "Degraded": "33",
    "SchedulingDisabled": "33",
}
"""ANSI's red and yellow."""


def _colour(text: str) -> str:
    code = next((code for word, code in _COLOURS.items() if word in text), "")
    return f"\x1b[{code}m{text}\x1b[0m" if code else text


def dump(value: Any, form: DocumentFormat) -> None:
    """Print a plain value as JSON or YAML. What is not UTF-8, as a file's name may be, is ``?`` for each byte; a number
    that JSON does not have, such as infinity, is null."""
    text = (
        json.dumps(_replace_non_finite(value), indent=2, ensure_ascii=False, allow_nan=False)
        .encode(errors="replace")
        .decode()
    )
    if form is DocumentFormat.YAML:
        from purser.yaml_text import yaml_text

        print(yaml_text(json.loads(text)), end="")
    else:
        print(text)


def _replace_non_finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _replace_non_finite(each) for key, each in value.items()}
    return [*map(_replace_non_finite, value)] if isinstance(value, (list, tuple)) else value


def fail(message: str, code: int = FAILED) -> NoReturn:
    """Say in one line on standard error what is wrong, and exit. Lines of others' messages are joined."""
    print(f"purser: {_escape_unprintable(' '.join(message.split()))}", file=sys.stderr)
    raise typer.Exit(code)


def os_error_text(error: OSError) -> str:
    """What the system says, without Python's ``[Errno 98]``."""
    if error.errno == errno.EADDRINUSE and (address := _ADDRESS.search(str(error))):
        host, port = address.groups()
        return f"port {port} on {host} is in use: choose another port"
    if error.errno is None:
        return str(error)
    words = os.strerror(error.errno)
    return f"{error.filename}: {words}" if error.filename else words


def is_writable(path: Path) -> bool:
    """Whether a file can be written there; asked beforehand, where what is written takes long."""
    return os.access(path, os.W_OK) and not path.is_dir() if path.exists() else os.access(path.parent, os.W_OK)


def write_text(path: Path, text: str) -> None:
    """Write a report, or say why it cannot be written, and exit."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"cannot write the report: {os_error_text(error)}", FAILED)


def cell(value: object) -> str:
    """A value as a table shows it."""
    if value is None or value == "":
        return "-"
    if isinstance(value, (list, tuple)):
        return _escape_unprintable(",".join(str(item) for item in value)) or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _escape_unprintable(str(value))


def _escape_unprintable(text: str) -> str:
    """What others wrote does not command the terminal, and is one line."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
