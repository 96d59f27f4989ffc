"""Tests that pages name are there, and the list of attacks leaves none of its folder out."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
ATTACKS = ROOT / "tests/security/README.md"
NAMED = re.compile(r"\btests/[\w/]+\.py(?:::(\w+))?")


def pages() -> Iterator[Path]:
    yield ATTACKS
    yield ROOT / "CONTRIBUTING.md"
    yield from (ROOT / "docs").rglob("*.md")


def test_tests_that_pages_name_are_there() -> None:
    missing = []
    for page in pages():
        for found in NAMED.finditer(page.read_text(encoding="utf-8")):
            file = ROOT / found[0].partition("::")[0]
            if not file.exists() or (found[1] and f"def {found[1]}(" not in file.read_text(encoding="utf-8")):
                missing.append(f"{page.relative_to(ROOT)}: {found[0]}")
    assert missing == []


def test_every_attack_is_in_the_list() -> None:
    text = ATTACKS.read_text(encoding="utf-8")
    files = {f"tests/security/{file.name}" for file in ATTACKS.parent.glob("test_*.py")}
    assert files - {found[0].partition("::")[0] for found in NAMED.finditer(text)} == set()
