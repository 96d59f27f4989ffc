"""What a command of a lane came to, and what pytest wrote of it."""

import json
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

LAST_LINES = 20


@dataclass(frozen=True)
class Failure:
    """A test, or a command, that failed."""

    name: str
    text: str
    """What it said, in full."""

    def last_lines(self) -> list[str]:
        return self.text.rstrip().splitlines()[-LAST_LINES:]


@dataclass(frozen=True)
class Report:
    """One run of a command."""

    passed: int = 0
    skipped: int = 0
    failures: tuple[Failure, ...] = ()
    is_complete: bool = True
    """False: it broke off, so what did not fail may not have run."""

    @property
    def names(self) -> set[str]:
        """Of what failed."""
        return {failure.name for failure in self.failures}


def read_junit(file: Path) -> Report | None:
    """The report in pytest's JUnit XML; None where pytest wrote none, or half of one."""
    try:
        cases = list(ElementTree.parse(file).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return None
    # A test whose tear-down fails as well has two entries.
    every = {_name(case) for case in cases}
    skipped = {_name(case) for case in cases if case.find("skipped") is not None}
    failures = {
        _name(case): Failure(_name(case), found.text or found.get("message") or "")
        for case in cases
        for found in (*case.iter("error"), *case.iter("failure"))
    }
    passed = every - skipped - failures.keys()
    return Report(len(passed), len(skipped - failures.keys()), tuple(failures.values()))


def _name(case: ElementTree.Element) -> str:
    return "::".join(filter(None, (case.get("classname"), case.get("name"))))


def last_failed(cache: Path) -> list[str]:
    """The tests that failed when pytest last ran with this cache folder."""
    try:
        return list(json.loads((cache / "v" / "cache" / "lastfailed").read_text()))
    except FileNotFoundError:
        return []
