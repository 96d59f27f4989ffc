"""Text that fits a number of cells of a terminal, and commands nothing there."""

from dataclasses import dataclass
from enum import StrEnum

from rich.cells import cell_len, set_cell_size

from purser.core.decoding import brief

MAX_CELL = 2000
"""Characters of any text that is shown."""


class Style(StrEnum):
    """What a piece of text is; the terminal decides how that looks."""

    PLAIN = "plain"
    HEAD = "head"
    """Heads of columns."""
    TITLE = "title"
    CHOSEN = "chosen"
    """The row of the cursor, the view that is shown."""
    NOTICE = "notice"
    BAD = "bad"
    FAINT = "faint"


@dataclass(frozen=True)
class Span:
    """A piece of a line."""

    text: str
    style: Style = Style.PLAIN


Line = tuple[Span, ...]


def clean(text: object) -> str:
    """One line without control characters, whoever wrote it."""
    shown = str(text)
    return shown if shown.isascii() and shown.isprintable() and len(shown) <= MAX_CELL else brief(shown, MAX_CELL)


def width(text: str) -> int:
    """Cells that a clean text takes."""
    return len(text) if text.isascii() else cell_len(text)


def fit_text(text: str, cells: int, *, right: bool = False) -> str:
    """A clean text in exactly so many cells: padded, or cut with a ``~`` at its end."""
    if cells <= 0:
        return ""
    taken = width(text)
    if taken <= cells:
        return " " * (cells - taken) + text if right else text + " " * (cells - taken)
    if text.isascii():
        return text[: cells - 1] + "~"
    return set_cell_size(text, cells - 1) + "~"


def cut(line: Line, cells: int) -> Line:
    """As much of a line as fits."""
    found: list[Span] = []
    for span in line:
        taken = width(span.text)
        if taken > cells:
            if cells > 0:
                found.append(Span(fit_text(span.text, cells), span.style))
            break
        found.append(span)
        cells -= taken
    return tuple(found)


def wrap_text(text: str, cells: int) -> list[str]:
    """A clean text as lines of at most so many cells, at blanks where there are any."""
    cells = max(cells, 1)
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        while width(word) > cells:
            if line:
                lines.append(line)
                line = ""
            head = word[:cells] if word.isascii() else set_cell_size(word, cells).rstrip()
            head = head or word[:1]
            lines.append(head)
            word = word[len(head) :]
        joined = f"{line} {word}" if line else word
        if width(joined) > cells:
            lines.append(line)
            joined = word
        line = joined
    return [*lines, line]
