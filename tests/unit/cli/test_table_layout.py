"""Tables in terminals: nothing is cut, and none is wider than the terminal if it can be avoided."""

from purser.cli.table_layout import layout_of, wrap

HEADS = ["NODE", "MODEL", "MEMORY MiB", "WHY"]
ROW = ["gpu-1", "NVIDIA A100-SXM4-40GB", "0/40960", "kubelet has not answered since the node was restarted"]


def lines(width: int | None, *rows: list[str]) -> list[str]:
    layout = layout_of([HEADS, *rows], width)
    gap = " " * layout.gap
    return [gap.join(map(str.ljust, line, layout.widths)).rstrip() for row in rows for line in layout.wrapped(row)]


def test_a_table_that_fits_has_the_usual_gaps():
    assert lines(None, ROW) == lines(1000, ROW) == ["   ".join([*ROW[:2], "0/40960   ", ROW[3]])]


def test_columns_move_together_before_anything_is_wrapped():
    usual = len(lines(None, ROW)[0])
    assert lines(usual, ROW) == lines(None, ROW)
    assert lines(usual - 3, ROW) == ["  ".join([*ROW[:2], "0/40960   ", ROW[3]])]
    assert lines(usual - 6, ROW) == ["  ".join(ROW)]  # the head MEMORY MiB is in two lines


def test_the_longest_text_is_wrapped_between_words():
    found = lines(80, ROW)
    assert found == [
        "gpu-1  NVIDIA A100-SXM4-40GB  0/40960  kubelet has not answered since the node",
        "                                       was restarted",
    ]
    assert max(map(len, found)) <= 80


def test_a_table_that_cannot_fit_is_left_as_it_is():
    assert lines(30, ROW) == lines(None, ROW)


def test_lists_are_wrapped_behind_commas_and_words_are_kept_whole():
    assert wrap("a/pod-1,a/pod-2,b/c", 10) == ["a/pod-1,", "a/pod-2,", "b/c"]
    assert wrap("GPU-8f5c6d1e-2a4b", 5) == ["GPU-8f5c6d1e-2a4b"]
    assert wrap("", 5) == [""]
