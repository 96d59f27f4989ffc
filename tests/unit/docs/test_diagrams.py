"""The diagrams of the documentation are what scripts/generate_diagrams.py makes of the code."""

import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.scripts import script

from purser.operator import upgrade

ROOT = Path(__file__).parents[3]


DIAGRAMS, SITE = script("generate_diagrams"), script("site_diagrams")
SHOWN = [
    pytest.param(text, id=f"{path.name} {number}")
    for path in sorted(ROOT.glob("docs/**/*.md"))
    for number, text in enumerate(SITE.FENCE.findall(path.read_text()))
]


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


@pytest.mark.parametrize("text", SHOWN)
def test_the_site_draws_a_diagram_whole_without_anything_from_elsewhere(text: str) -> None:
    drawn = SITE.on_page_markdown(f"before\n\n```mermaid\n{text}```\n\nafter\n")
    assert drawn.startswith("before\n\n<div") and drawn.endswith("</div>\n\nafter\n")
    assert "```" not in drawn and "http" not in drawn and "\n" not in drawn[8:-8]
    picture = ElementTree.fromstring(drawn[8:-8])
    arrows = [path for path in picture.iter("path") if path.get("marker-end")]
    assert len(arrows) == text.count("->")
    words = {each.text for each in picture.iter("text")}
    names = re.findall(r'^ +state "(.+?)"|^ +participant \w+ as (.+)', text, re.MULTILINE)
    assert {name for pair in names for name in pair if name} <= words


def test_an_arrow_is_drawn_from_and_to_its_nodes_on_the_side_of_its_direction() -> None:
    drawn = SITE.drawn("flowchart TD\n  b --> c\n  a --> b\n  a --> c\n", "t")
    names = re.findall(r">(\w)</text>", drawn)
    assert names == ["a", "b", "c"]
    straight, arcs = re.findall(r'd="M(\d+\.?\d*) ([\d.]+)L\1 ', drawn), re.findall(r'd="M(\d+) [\d.]+C(\d+)', drawn)
    assert len(straight) == 2 and [int(out) > int(start) for start, out in arcs] == [True]
    back = SITE.drawn('stateDiagram-v2\n  state "x" as x\n  state "y" as y\n  x --> y\n  y --> x\n', "t")
    assert [int(out) < int(start) for start, out in re.findall(r'd="M(\d+) [\d.]+C(-?\d+)', back)] == [True]


@pytest.mark.parametrize(
    "text", ["flowchart TD\n  a --> b\n  a -- x --> c", "sequenceDiagram\n  loop forever", "pie\n  a --> b"]
)
def test_what_the_site_cannot_draw_is_an_error_that_names_it(text: str) -> None:
    with pytest.raises(ValueError, match="cannot draw"):
        SITE.drawn(text, "t")
