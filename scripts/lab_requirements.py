"""Prints the part of requirements.lock, hashes included, that a lab needs: what Purser itself requires and what that
brings along, and what installs Purser from a checkout. Nothing of the extras, tests, types and documentation.

    python scripts/lab_requirements.py > FILE
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_EDITABLE = ("editables",)
"""What hatchling asks for once it is to install from a checkout."""


def needed(lock: str, roots: set[str]) -> Iterator[str]:
    """The entries of a lock file that ``roots`` bring along. Comments of each entry say who asked for it."""
    entries = re.findall(r"^[^\s#].*\n(?:[ \t].*\n)*", lock, re.MULTILINE)
    wanted, before = set(roots), 0
    while len(wanted) != before:
        before = len(wanted)
        wanted |= {_name(entry) for entry in entries if wanted & _asked_by(entry)}
    return (entry for entry in entries if _name(entry) in wanted)


def roots(project: str) -> set[str]:
    """Names of what a pyproject.toml requires, to run and to be installed."""
    said = tomllib.loads(project)
    return {_name(line) for line in (*said["project"]["dependencies"], *said["build-system"]["requires"], *_EDITABLE)}


def _name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    return found[0].lower().replace("_", "-") if found else ""


def _asked_by(entry: str) -> set[str]:
    return set(re.findall(r"^    #(?: via|  ) +([a-z0-9.-]+)$", entry, re.MULTILINE))


if __name__ == "__main__":
    asked = roots((ROOT / "pyproject.toml").read_text())
    print("".join(needed((ROOT / "requirements.lock").read_text(), asked)), end="")
