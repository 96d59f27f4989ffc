"""Every reason of docs/reasons.md is named in some test."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.scripts import script

from purser.core.kubernetes.reasons import ExplainedReason

TESTS = Path(__file__).parents[2]
REASONS: list[ExplainedReason] = [each for kind, _, _ in script("generate_reference").REASONS for each in kind]


def unnamed(reasons: Iterable[ExplainedReason], text: str) -> Iterator[str]:
    """Those that it has neither as a member nor as a word. A word that may be one of a sentence, such as ``Paused``,
    has to be all that is in quotes."""
    members = set(re.findall(r"\b[A-Z]\w+\.[A-Z][A-Z_0-9]+\b", text))
    words = set(re.findall(r"\b[A-Z][a-z0-9]+[A-Z]\w+\b", text))
    quoted = set(re.findall(r"""(?<=["'])[\w -]+(?=["'])""", text))
    for reason in reasons:
        member = f"{type(reason).__name__}.{reason.name}"
        if member not in members and str(reason) not in words | quoted:
            yield member


def test_every_reason_is_named_in_some_test() -> None:
    own = Path(__file__)
    text = "\n".join(path.read_text() for path in sorted(TESTS.rglob("*.py")) if path != own)
    assert len(REASONS) > 200
    assert list(unnamed(REASONS, text)) == []


def test_a_reason_that_no_test_names_would_be_found() -> None:
    first, *others = REASONS
    members = " ".join(f"{type(each).__name__}.{each.name}" for each in others)
    assert list(unnamed(REASONS, members)) == [f"{type(first).__name__}.{first.name}"]
    assert list(unnamed(REASONS, f'{members} "{first}"')) == []
