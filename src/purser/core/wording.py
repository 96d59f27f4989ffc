"""How a message speaks of many things: the first few are named, and the others counted, in the order in which people
read names."""

import re
from collections.abc import Sequence

NAMED = 3
"""Items that a message names at most: it is read in one line of a terminal."""


def some(sentences: Sequence[str], what: str = "", *, named: int = NAMED, between: str = ", ") -> str:
    """``a, b, c (and 2 more nodes)``; ``what``: one of them, ``node``. Of whole sentences one is named as a rule."""
    more = len(sentences) - named
    others = f" (and {more} more{f' {_plural(what, more)}' if what else ''})" if more > 0 else ""
    return between.join(sentences[:named]) + others


def counted(number: int, what: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{number} {_plural(what, number)}"


def _plural(what: str, number: int) -> str:
    return what if number == 1 else f"{what}s"


NaturalKey = tuple[tuple[int, int, str], ...]


def natural(text: str) -> NaturalKey:
    """The key by which people sort names: ``gpu-2`` comes before ``gpu-10``."""
    parts = re.findall(r"[0-9]+|[^0-9]+", text)
    # What is equal as a number, 1 and 01, differs as a text.
    return tuple((0, int(each), each) if each.isdecimal() else (1, 0, each) for each in parts)
