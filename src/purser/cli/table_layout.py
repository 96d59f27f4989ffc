"""How a table is fitted into a terminal, if that cuts nothing: columns move closer together, and texts are wrapped
between words. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

GAP, NARROW_GAP = 3, 2
"""Spaces between columns, as in kubectl's tables, and where that is too wide."""

MIN_TEXT_WIDTH = 16
"""Characters that a wrapped column keeps: texts in narrower ones are hard to read."""

_BREAKS = re.compile(r"(?<=[ ,])(?=\S)")
"""Between words, and behind the commas of a list."""


@dataclass(frozen=True)
class TableLayout:
    """The widths of columns, and the spaces between them."""

    widths: Sequence[int]
    gap: int = GAP

    @property
    def width(self) -> int:
        """Of the whole table."""
        return sum(self.widths) + self.gap * (len(self.widths) - 1)

    def wrapped(self, cells: Sequence[str]) -> Iterator[list[str]]:
        """The lines of one row, each with a text for every column."""
        columns = (wrap(text, width) for text, width in zip(cells, self.widths, strict=True))
        return (list(line) for line in zip_longest(*columns, fillvalue=""))


def layout_of(rows: Sequence[Sequence[str]], terminal_width: int | None = None) -> TableLayout:
    """The layout of a table whose first row has the heads. ``terminal_width``: what the table is to fit into; None: it
    may be as wide as it is. A table that cannot fit is left as it is: wrapped, it would still be too wide."""
    natural = TableLayout([max(map(len, column)) for column in zip(*rows, strict=True)])
    if terminal_width is None or natural.width <= terminal_width:
        return natural
    columns = list(zip(*rows, strict=True))
    widths, excess = [*natural.widths], TableLayout(natural.widths, NARROW_GAP).width - terminal_width
    heads = [max(_longest_word(column[0]), *map(len, column[1:]), 0) for column in columns]
    texts = [max(MIN_TEXT_WIDTH, *map(_longest_word, column)) for column in columns]
    by_slack = sorted(range(len(widths)), key=lambda place: texts[place] - heads[place])
    for narrowest, order in ((heads, range(len(widths))), (texts, by_slack)):
        for place in order:
            saved = max(0, min(excess, widths[place] - narrowest[place]))
            widths[place], excess = widths[place] - saved, excess - saved
    return natural if excess > 0 else TableLayout(widths, NARROW_GAP)


def wrap(text: str, width: int) -> list[str]:
    """The text in lines of at most this many characters, unless a word is longer."""
    if len(text) <= width:
        return [text]
    lines = [""]
    for piece in _BREAKS.split(text):
        if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return [line.rstrip() for line in lines]


def _longest_word(text: str) -> int:
    return max((len(piece.rstrip()) for piece in _BREAKS.split(text)), default=0)
