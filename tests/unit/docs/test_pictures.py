"""The pictures in docs/pictures are what scripts draw of the code, and pages show them."""

import re
from pathlib import Path

import pytest
from tests.scripts import script

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", ["draw_lab", "draw_lost_gpu", "draw_policies"])
def test_a_picture_is_what_the_script_draws(name: str) -> None:
    module = script(name)
    assert (ROOT / module.PICTURE).read_text() == module.drawn(), f"run scripts/{name}.py"


def test_every_picture_is_on_a_page_and_loads_nothing() -> None:
    shown = {
        name
        for page in ROOT.glob("docs/*.md")
        for name in re.findall(r"!\[[^]]+\]\(pictures/(.+?)\)", page.read_text())
    }
    pictures = sorted(ROOT.glob("docs/pictures/*.svg"))
    screenshots = sorted(ROOT.glob("docs/pictures/*.png"))
    assert shown == {path.name for path in (*pictures, *screenshots)}
    assert [path.name for path in screenshots if path.stat().st_size > 150_000] == []
    assert [path.name for path in pictures if re.search(r"url\([^#]|(href|src)=.https?:", path.read_text())] == []
    assert [path.name for path in pictures if "<script" in path.read_text() or path.stat().st_size > 200_000] == []


def test_the_frames_of_the_lost_gpu_are_what_was_recorded_one_after_another() -> None:
    module = script("draw_lost_gpu")
    frames = module.frames((ROOT / module.RECORD).read_text())
    assert [frame for frame in frames if not frame.lines[0].startswith("$ ")] == []
    assert "Unhealthy" in "\n".join(frames[module.STILL].lines)
    style, *screens = module.drawn().split('<g class="frame')
    shown = len(frames) * module.SECONDS
    assert f"animation: show {shown}s" in style and f"{100 / len(frames):g}% {{ opacity: 0; }}" in style
    delays = [int(seconds) for seconds in re.findall(r"animation-delay: (-\d+)s", "".join(screens))]
    assert delays == [at - shown for at in range(0, shown, module.SECONDS)]
    assert [place for place, screen in enumerate(screens) if screen.startswith(" still")] == [module.STILL]


def test_the_plot_of_the_policies_has_the_numbers_of_the_tables() -> None:
    plot = script("draw_policies")
    table = (ROOT / "docs/policy-results.md").read_text().partition("## All policies")[2]
    rows = re.findall(rf"^\| {plot.WORKLOAD} \| (\S+) \| ([\d.]+) / ([\d.]+) \|", table, re.MULTILINE)
    drawn = {row[plot.ASKED]: row for row in plot.numbers()}
    assert {name: (float(at_100), float(at_130)) for name, at_100, at_130 in rows} == {
        name: (drawn[100][name], drawn[130][name]) for name in plot.POLICIES
    }
    page = (ROOT / "docs/policies.md").read_text()
    rows = [row.split("|")[2:4] for row in page.splitlines() if re.fullmatch(r"\|.+\|.+% \|", row)]
    told = {
        name: float(percent)
        for names, percents in rows
        for name, percent in zip(re.findall(r"`(.+?)`", names), re.findall(r"[\d.]+", percents), strict=True)
    }
    assert told == {name: drawn[130][name] for name in plot.POLICIES}
