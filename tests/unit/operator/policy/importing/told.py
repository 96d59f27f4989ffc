"""What the lines of an import speak of."""

import re
from collections.abc import Iterable


def node_assignments(lines: Iterable[str]) -> set[str]:
    """Every field that is named: ``spec.a.b, .c: why`` speaks of ``spec.a.b`` and ``spec.a.c``."""
    found: set[str] = set()
    for line in lines:
        whose, named = re.match(r"(NVIDIADriver [^:]+: )?(.*?)(?:: |$)", line).groups("")
        first, *others = named.split(", ")
        section = first.rpartition(".")[0]
        found.add(whose + first)
        found.update(whose + (section + each if each.startswith(".") else each) for each in others)
    return found


def speaks_of(lines: Iterable[str], place: str) -> bool:
    """Whether some line names the field, something in it, or a section around it."""
    return any(
        each == place or each.startswith((f"{place}.", f"{place}[")) or place.startswith((f"{each}.", f"{each}["))
        for each in node_assignments(lines)
    )
