"""Records of decisions stay short, and say what was rejected."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/decisions.md").read_text()
RECORDS = re.findall(r"^### (.+)\n((?:(?!#).*\n?)*)", PAGE, re.MULTILINE)

MOST_LINES = 8


def test_every_record_is_found_and_has_a_title_of_its_own() -> None:
    assert len({title for title, _ in RECORDS}) == len(RECORDS) == PAGE.count("\n### ") > 30


@pytest.mark.parametrize(("title", "text"), RECORDS, ids=[title for title, _ in RECORDS])
def test_a_record_says_what_why_and_what_was_rejected(title: str, text: str) -> None:
    assert re.findall(r"^- (\w+): ", text, re.MULTILINE) == ["Decision", "Why", "Rejected"]
    assert len(text.strip().splitlines()) <= MOST_LINES


@pytest.mark.parametrize("page", ["architecture.md", "decisions.md"])
def test_modules_that_are_named_are_there(page: str) -> None:
    there = [path.as_posix() for path in (ROOT / "src/purser").rglob("*.py")]
    named = re.findall(r"`([\w/]+\.py)`", (ROOT / "docs" / page).read_text())
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in there)] == []
