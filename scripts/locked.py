"""Prints a part of requirements.lock, hashes included: what is named and what that brings along.

python scripts/locked.py lab > FILE               what Purser requires, and what installs it from a checkout
python scripts/locked.py image [EXTRA...] > FILE  what Purser requires, with extras of pyproject.toml
python scripts/locked.py plugin [EXTRA...] > FILE what makes an archive of the plugin of kubectl, and is in it
python scripts/locked.py build > FILE             what makes a wheel of Purser
"""

import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_EDITABLE = ("editables",)
"""What hatchling asks for once it is to install from a checkout."""
_FREEZES = ("pyinstaller",)


def needed(lock: str, roots: set[str]) -> Iterator[str]:
    """The entries of a lock file that ``roots`` bring along. Comments of each entry say who asked for it."""
    entries = re.findall(r"^[^\s#].*\n(?:[ \t].*\n)*", lock, re.MULTILINE)
    wanted, before = set(roots), 0
    while len(wanted) != before:
        before = len(wanted)
        wanted |= {_name(entry) for entry in entries if wanted & _asked_by(entry)}
    return (entry for entry in entries if _name(entry) in wanted)


def roots(project: str, part: str, extras: Sequence[str] = ()) -> set[str]:
    """Names of what a pyproject.toml requires for a part. Raises KeyError for a part or an extra that it lacks."""
    said = tomllib.loads(project)
    runs, builds = said["project"]["dependencies"], said["build-system"]["requires"]
    more = [line for extra in extras for line in said["project"]["optional-dependencies"][extra]]
    lines = {
        "lab": [*runs, *builds, *_EDITABLE],
        "image": [*runs, *more],
        "plugin": [*runs, *more, *builds, *_FREEZES],
        "build": builds,
    }[part]
    return {_name(line) for line in lines}


def _name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    return found[0].lower().replace("_", "-") if found else ""


def _asked_by(entry: str) -> set[str]:
    return set(re.findall(r"^    #(?: via|  ) +([a-z0-9.-]+)$", entry, re.MULTILINE))


if __name__ == "__main__":
    asked = roots((ROOT / "pyproject.toml").read_text(), sys.argv[1], sys.argv[2:])
    print("".join(needed((ROOT / "requirements.lock").read_text(), asked)), end="")
