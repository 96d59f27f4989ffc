"""docs/glossary.md: every noun is where the page says."""

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[3] / "docs/glossary.md").read_text()
ROWS = re.findall(r"^\| ([^|]+) \| ([^|]+) \| `(purser[\w.]*)` \|$", PAGE, re.MULTILINE)


def test_every_row_is_read() -> None:
    assert 0 < PAGE.count("`purser.") == len(ROWS), "a row has another form"


@pytest.mark.parametrize(("noun", "where"), [(noun, where) for noun, _, where in ROWS])
def test_a_noun_is_where_the_page_says(noun: str, where: str) -> None:
    name, _, last = where.rpartition(".")
    if importlib.util.find_spec(name) and hasattr(importlib.import_module(name), last):
        return
    assert importlib.util.find_spec(where)
