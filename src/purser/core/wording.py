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


def pods_text(namespace: str, keys: Sequence[str], *, named: int = NAMED) -> str:
    """``pod ns/a``, ``pods ns/a, ns/b and 2 more``, or ``a pod in another namespace``: other pods, in a message that
    the owner of a pod in this namespace reads, and that must not name those of other namespaces."""
    own = [key for key in keys if key.partition("/")[0] == namespace]
    others = len(keys) - len(own)
    if not own:
        return "a pod in another namespace" if others == 1 else f"{others} pods in other namespaces"
    more = others + len(own[named:])
    return f"pod{'' if len(own) == 1 else 's'} {', '.join(own[:named])}{f' and {more} more' if more else ''}"


def counted(number: int, what: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{number} {_plural(what, number)}"


def portion(part: int, total: int, what: str, one: str = "is", many: str = "are") -> str:
    """``1 of 2 nodes is``, ``2 of 2 nodes are``, ``0 of 1 node is``: so that many of all, and their verb."""
    return f"{part} of {counted(total, what)} {one if 1 in (part, total) else many}"


def _plural(what: str, number: int) -> str:
    return what if number == 1 else f"{what}s"


NaturalKey = tuple[tuple[int, int, str], ...]


def natural_sort_key(text: str) -> NaturalKey:
    """The key by which people sort names: ``gpu-2`` comes before ``gpu-10``."""
    parts = re.findall(r"[0-9]+|[^0-9]+", text)
    # What is equal as a number, 1 and 01, differs as a text.
    return tuple((0, int(each), each) if each.isdecimal() else (1, 0, each) for each in parts)
