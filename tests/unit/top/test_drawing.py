"""What is on the screen, at any size, whatever others wrote."""

import random
from dataclasses import replace

import msgspec
import pytest

from purser.core.state import StateGpuHealth, StateNode
from purser.top import keys
from purser.top.drawing import Shown, drawn, layout_of
from purser.top.lines import Style, clean, fit_text, width, wrap_text
from purser.top.screen import Screen, handle_key, settled
from purser.top.view_names import TopView
from purser.top.views import age, bar, filtered, table_of

from .states import NOW, cluster, gpu, grant, node, waiting

HOSTILE = "\x1b[2J\x1b]0;x\x07\u202e\u200b界" + "a\u0301" * 50 + "\n\t" + "x" * 2500
STATE = cluster(
    (node("n1", gpu(0, held=500), gpu(1, health=StateGpuHealth.UNHEALTHY)), node("n2", cordoned=True)),
    (grant("train", "n1"),),
    (waiting("big"), waiting("other", "NodeSelector", "2 nodes lack zone=a, which the pod's node selector requires")),
)


def shown(state=STATE, view=TopView.NODES, cells=100, lines=24, **screen):
    chosen = Screen(view, **screen)
    table = filtered(table_of(view, state, NOW, sort=chosen.choice.sort, down=chosen.choice.down), chosen.find)
    chosen = settled(chosen, table, layout_of(lines, state).height)
    return Shown(chosen, table, state, "https://api", page=["a line", "", "another one " * 40])


def texts(found):
    return ["".join(span.text for span in line) for line in found]


def test_a_view_has_its_heads_and_rows_and_the_cluster_in_a_line():
    lines = texts(drawn(shown(), 110, 12))
    assert lines[0].startswith("memory ||........  17%  cores ..........   0%  1 GPU closed  https://api")
    assert lines[1].split() == ["Nodes", "2", "GPUs", "3", "Pods", "1", "Waiting", "2"]
    assert lines[2].split()[:4] == ["NODE^", "GPUS", "STATUS", "SHARES"]
    assert lines[3].split()[:4] == ["n1", "2", "1", "Unhealthy"]
    assert lines[4].split()[:3] == ["n2", "1", "Cordoned"]
    assert lines[-1].startswith("q quit")


def test_a_degraded_gpu_is_named_and_is_not_closed():
    worn = msgspec.structs.replace(gpu(0), degraded_reason="NVLink errors")
    state = cluster((node("n", worn, gpu(1)),))
    lines = texts(drawn(shown(state), 110, 12))
    assert "closed" not in lines[0]
    assert lines[3].split()[:4] == ["n", "2", "1", "Degraded"]
    lines = texts(drawn(shown(state, TopView.GPUS), 110, 12))
    assert [line.split()[:3] for line in lines[3:5]] == [["n", "0", "Degraded"], ["n", "1", "Healthy"]]


def test_what_could_not_be_read_is_said_above_the_rows_and_in_full_beside_the_keys():
    notes = ("resourcequotas are not shown, because you are not allowed to read them", "namespaces are left out: ...")
    state = msgspec.structs.replace(STATE, notes=notes)
    lines = texts(drawn(shown(state), 110, 12))
    assert lines[2].startswith(f"Note: {notes[0]}  Note: namespaces")
    assert (lines[3].split()[0], lines[-1].split()[0]) == ("NODE^", "q")
    assert layout_of(12, state).height == layout_of(12, STATE).height - 1
    page = texts(drawn(shown(state, lines=30, help=True), 80, 30))
    assert [line for line in page[3:] if line.startswith("Note")] == [f"Note: {note}" for note in notes]
    assert not any("Note" in line for line in texts(drawn(shown(), 110, 12)))


def test_a_narrow_screen_says_which_view_it_shows():
    assert texts(drawn(shown(view=TopView.WAITING, cells=20, lines=5), 20, 5))[0].strip() == "Waiting 2"


def test_what_waits_says_why():
    lines = texts(drawn(shown(view=TopView.WAITING), 110, 12))
    assert lines[3].split()[:4] == ["60s", "default", "big", "1"]
    assert "CardInsufficientMemory  2 GPUs are too small" in lines[3]


def test_rows_stand_out_by_their_state_and_the_cursor():
    rows = drawn(shown(view=TopView.GPUS), 110, 12)[3:6]
    assert [row[0].style for row in rows] == [Style.CHOSEN, Style.BAD, Style.PLAIN]


@pytest.mark.parametrize("view", list(TopView))
@pytest.mark.parametrize(("cells", "lines"), [(20, 5), (1, 1), (2, 3), (80, 24), (300, 100), (7, 8)])
def test_every_size_is_filled_and_never_passed_whatever_others_wrote(view, cells, lines):
    bad = cluster(
        (node(HOSTILE, gpu(0, uuid=HOSTILE)),) * 3,
        (grant(HOSTILE, HOSTILE),) * 9,
        (waiting(HOSTILE, HOSTILE, HOSTILE),) * 9,
        (HOSTILE,) * 9,
    )
    for screen in ({}, {"details": True}, {"help": True}, {"typed": HOSTILE}):
        what = replace(shown(bad, view, cells, lines, **screen), problem=HOSTILE, page=[clean(HOSTILE)])
        found = drawn(what, cells, lines)
        assert len(found) == lines
        for text in texts(found):
            assert width(text) <= cells
            assert text.isprintable() or not text


def test_only_what_is_visible_is_drawn():
    many = cluster(tuple(node(f"n{i}") for i in range(1000)))
    what = shown(many, lines=10)
    screen = handle_key(what.screen, keys.END, what.table, layout_of(10).height, (0,))
    found = texts(drawn(replace(what, screen=screen), 100, 10))
    assert [line.split()[0] for line in found[3:9]] == [f"n{i}" for i in range(994, 1000)]


def test_nothing_is_said_where_there_is_nothing():
    assert "no pod holds a GPU" in "\n".join(texts(drawn(shown(cluster(), TopView.PODS), 80, 10)))
    assert "reading the cluster" in texts(drawn(replace(shown(cluster()), state=None), 80, 10))[0]


def test_amounts_and_ages_are_as_people_read_them():
    assert (bar(1, 1000), bar(0, 0), bar(0, 10), bar(20, 10)) == (
        "|.........   0%",
        "-",
        "..........   0%",
        "|||||||||| 100%",
    )
    since = "2027-01-15T08:00:00Z"
    assert [age(since, NOW + s) for s in (-5, 59, 119, 600, 7200, 48 * 3600)] == [
        "0s",
        "59s",
        "119s",
        "10m",
        "2h",
        "2d",
    ]
    assert age("yesterday", NOW) == "-"


def test_text_fits_by_cells_and_not_by_characters():
    assert fit_text("界界界", 5) == "界界~"
    assert width(fit_text("a界界界", 5)) == 5
    assert fit_text("12", 4, right=True) == "  12"
    assert wrap_text("aaa bbb", 3) == ["aaa", "bbb"]
    assert all(width(line) <= 3 for line in wrap_text("界界界 x" + "y" * 9, 3))
    dice = random.Random(1)
    for _ in range(300):
        text = clean("".join(chr(dice.choice((32, 97, 0x754C, 0x301, 0x1F600))) for _ in range(30)))
        cells = dice.randrange(1, 12)
        assert width(fit_text(text, cells)) == cells
        assert all(width(line) <= max(cells, 2) for line in wrap_text(text, cells))


@pytest.mark.parametrize(
    ("shown", "style"),
    [
        pytest.param(node("n", gpu(0)), Style.PLAIN, id="all well"),
        pytest.param(node("n", gpu(0), cordoned=True), Style.FAINT, id="a cordoned node"),
        pytest.param(node("n", gpu(0), gpu(1, health=StateGpuHealth.CORDONED)), Style.FAINT, id="a cordoned GPU"),
        pytest.param(node("n", gpu(0, health=StateGpuHealth.DISPUTED), cordoned=True), Style.BAD, id="a disputed GPU"),
        pytest.param(node("n", gpu(0), gpu(1, health=StateGpuHealth.UNHEALTHY)), Style.BAD, id="an unhealthy GPU"),
    ],
)
def test_a_node_is_red_for_what_is_wrong_and_dim_for_what_is_cordoned(shown: StateNode, style: Style) -> None:
    assert table_of(TopView.NODES, cluster((shown,)), 0.0).rows[0].style is style
