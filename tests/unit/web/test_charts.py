"""Curves as pictures: gaps stay gaps, axes have round numbers, and everything is inside the picture."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purser.web.charts import HEIGHT, WIDTH, chart

NAN = math.nan
HOUR = [3600.0 * number for number in range(5)]


def test_a_curve_has_gaps_where_nothing_is_known():
    found = chart(HOUR, [("a", [1, 2, NAN, 4, NAN])])
    two, alone = (each.split() for each in found.lines[0].segments)
    assert (len(two), len(set(two)), len(alone), len(set(alone))) == (2, 2, 2, 1), "one point is drawn as a dot"


def test_axes_have_round_numbers_and_rows_the_newest_first():
    found = chart(HOUR, [("a", [0, 3, 7, 12, 9]), ("b", [NAN] * 5)])
    assert [tick.label for tick in found.y_ticks] == ["0", "5", "10", "15"]
    assert [tick.label for tick in found.x_ticks] == ["00:00", "01:00", "02:00", "03:00", "04:00"]
    assert found.rows[0] == ("1970-01-01 04:00", ["9", "-"])


def test_of_next_to_nothing_the_axis_has_labels_that_differ():
    for value in (0.0, -0.0, -3.0, 5e-324, 1e-320, 0.004, 0.03):
        found = chart(HOUR, [("a", [value] * 5)])
        labels = [tick.label for tick in found.y_ticks]
        assert len(set(labels)) == len(labels) and labels[0] == "0"
        assert found.rows[0][1] != ["-0"]


@pytest.mark.parametrize(("times", "values"), [([1.0], [1.0]), (HOUR, [NAN] * 5), ([], [])])
def test_of_nothing_there_is_no_picture(times, values):
    assert chart(times, [("a", values)]) is None


@given(st.lists(st.floats(min_value=0, max_value=1e6) | st.just(NAN), min_size=2, max_size=50), st.integers(1, 50_000))
def test_everything_is_inside_the_picture(values, step_s):
    found = chart([1e9 + step_s * number for number in range(len(values))], [("a", values)])
    if found is None:
        assert all(map(math.isnan, values))
        return
    points = [each.split(",") for segment in found.lines[0].segments for each in dict.fromkeys(segment.split())]
    assert len(points) == sum(map(math.isfinite, values))
    assert all(0 <= float(x) <= WIDTH and 0 <= float(y) <= HEIGHT for x, y in points)
    assert 2 <= len(found.y_ticks) <= 11 and len(found.x_ticks) <= 12
