"""docs/architecture.md draws every room: whoever adds one says what is in it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src/purser"
TREE = (ROOT / "docs/architecture.md").read_text().partition("```\nsrc/purser/\n")[2].partition("```")[0]
DRAWN = frozenset(re.findall(r"[a-z_]+(?:/|\.py)", TREE))


def packages(folder):
    return {f"{each.parent.name}/" for each in folder.glob("*/__init__.py")}


def modules(folder):
    return {each.name for each in folder.glob("*.py")} - {"__init__.py"}


def test_every_room_and_what_stands_beside_the_rooms_is_in_the_tree():
    assert packages(SOURCE) | modules(SOURCE) <= DRAWN


def test_every_package_of_a_room_and_every_module_of_the_core_is_in_the_tree():
    found = set().union(*(packages(room) for room in SOURCE.iterdir() if room.is_dir()))
    assert found | modules(SOURCE / "core") <= DRAWN


def test_nothing_is_in_the_tree_that_is_not_there():
    there = {each.name for each in SOURCE.rglob("*.py")} | {f"{each.name}/" for each in SOURCE.rglob("*/")}
    assert there >= DRAWN
