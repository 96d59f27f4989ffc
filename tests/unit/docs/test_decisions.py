"""Modules that pages name are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("page", ["architecture.md", "decisions.md"])
def test_modules_that_are_named_are_there(page: str) -> None:
    there = [path.as_posix() for path in (ROOT / "src/purser").rglob("*.py")]
    named = re.findall(r"`([\w/]+\.py)`", (ROOT / "docs" / page).read_text())
    assert named
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in there)] == []
