"""The words of a command line, as people know them from kubectl, before typer reads them."""

import re
from collections.abc import Sequence

_SHORT_WITH_VALUE = re.compile(r"(-[A-Za-z])=(.*)", re.DOTALL)

_PASSES_ARGUMENTS = ["conformance", "device-plugin"]
"""The command whose words may be another program's, which are not to be changed."""


def as_kubectl_arguments(words: Sequence[str]) -> list[str]:
    """``-o=json`` as ``-o json``: typer takes the equals sign for a part of the value. What follows ``--`` is left."""
    if [*words[:2]] == _PASSES_ARGUMENTS:
        return [*words]
    end = words.index("--") if "--" in words else len(words)
    found: list[str] = []
    for word in words[:end]:
        split = _SHORT_WITH_VALUE.fullmatch(word)
        found.extend([word] if split is None else split.groups())
    return [*found, *words[end:]]
