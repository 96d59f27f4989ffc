"""The diagrams of the documentation are what scripts/generate_diagrams.py makes of the code."""

from collections import Counter
from pathlib import Path

from tests.scripts import script

from purser.operator import upgrade

ROOT = Path(__file__).parents[3]


DIAGRAMS = script("generate_diagrams")


def test_the_diagrams_are_what_the_script_makes() -> None:
    for path, text in DIAGRAMS.written(ROOT).items():
        assert (ROOT / path).read_text() == text, "run scripts/generate_diagrams.py"


def test_every_diagram_is_on_one_page() -> None:
    pages = "".join(path.read_text() for path in sorted(ROOT.glob("docs/*.md")))
    assert Counter(name for _, name, _ in DIAGRAMS.PLACE.findall(pages)) == dict.fromkeys(DIAGRAMS.diagrams(), 1)


def test_an_arrow_that_follows_from_others_is_left_out() -> None:
    edges = [("a", "b"), ("a", "c"), ("a", "d"), ("b", "c"), ("c", "d")]
    assert DIAGRAMS.without_short_cuts(edges) == [("a", "b"), ("b", "c"), ("c", "d")]


def test_every_transition_of_an_upgrade_is_drawn_or_in_the_table() -> None:
    edges = DIAGRAMS.transitions(upgrade)
    drawn, _, table = DIAGRAMS.upgrade_states(edges).partition("| from | back to |")
    told = [(set(row.split("|")[1].split(", ")), row.split("|")[2]) for row in table.splitlines()[2:]]
    for before, after in edges:
        arrow = f"    {DIAGRAMS.identifier(before)} --> {DIAGRAMS.identifier(after)}\n"
        start, end = (DIAGRAMS.words([name]) for name in (before, after))
        assert (arrow in drawn) != any(start in map(str.strip, starts) and end in ends for starts, ends in told)
