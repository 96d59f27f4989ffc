"""Curves as pictures: all that a template draws as SVG, without a script."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby

WIDTH, HEIGHT = 720, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 8, 8, 24
_MAX_TICKS = 5
_MIN_TOP = 0.1
"""Of the axis of values: labels have two decimals."""
_ROWS = 12
_HOUR_S, _DAY_S = 3600, 86400
_TIME_STEPS_S = (
    600,
    900,
    1800,
    _HOUR_S,
    2 * _HOUR_S,
    4 * _HOUR_S,
    6 * _HOUR_S,
    12 * _HOUR_S,
    _DAY_S,
    2 * _DAY_S,
    7 * _DAY_S,
)


@dataclass(frozen=True)
class Curve:
    """A line of the picture."""

    label: str
    segments: Sequence[str]
    """Each the ``points`` of a polyline: a curve has gaps where there are no values."""


@dataclass(frozen=True)
class Tick:
    """A mark on an axis."""

    position: float
    label: str


@dataclass(frozen=True)
class Chart:
    """A picture, ``WIDTH`` wide and ``HEIGHT`` high, and the table behind it."""

    lines: Sequence[Curve]
    y_ticks: Sequence[Tick]
    x_ticks: Sequence[Tick]
    rows: Sequence[tuple[str, Sequence[str]]]
    """Of some times, the time and each curve's value, newest first."""

    left, right, top, bottom = _LEFT, WIDTH - _RIGHT, _TOP, HEIGHT - _BOTTOM
    width, height = WIDTH, HEIGHT


def chart(times_s: Sequence[float], curves: Sequence[tuple[str, Sequence[float]]]) -> Chart | None:
    """The picture of curves over unix times; None where there is nothing to draw."""
    known = [value for _, values in curves for value in values if math.isfinite(value)]
    if len(times_s) < 2 or not known:
        return None
    most = max(*known, _MIN_TOP)
    step = _nice_step(most)
    top = step * math.ceil(most / step)
    start, end = times_s[0], times_s[-1]

    def x(at_s: float) -> float:
        return round(_LEFT + (WIDTH - _LEFT - _RIGHT) * (at_s - start) / (end - start), 1)

    def y(value: float) -> float:
        return round(HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * max(value, 0) / top, 1)

    def segments(values: Sequence[float]) -> Iterator[str]:
        known = zip(times_s, values, strict=True)
        for is_finite, run in groupby(known, lambda each: math.isfinite(each[1])):
            if is_finite:
                points = [f"{x(at_s)},{y(value)}" for at_s, value in run]
                yield " ".join(points * 2 if len(points) == 1 else points)  # a line of one point is not drawn

    time_step = next((each for each in _TIME_STEPS_S if (end - start) / each <= _MAX_TICKS), _TIME_STEPS_S[-1])
    marks = range(math.ceil(start / time_step), math.floor(end / time_step) + 1)
    return Chart(
        lines=[Curve(label, tuple(segments(values))) for label, values in curves],
        y_ticks=[Tick(y(step * number), _amount(step * number)) for number in range(round(top / step) + 1)],
        x_ticks=[Tick(x(each * time_step), _tick_text(each * time_step, time_step)) for each in marks],
        rows=list(_rows(times_s, curves)),
    )


def _rows(
    times_s: Sequence[float], curves: Sequence[tuple[str, Sequence[float]]]
) -> Iterator[tuple[str, Sequence[str]]]:
    apart = max(len(times_s) // _ROWS, 1)
    for place in range(len(times_s) - 1, -1, -apart):
        yield time_text(times_s[place]), [_amount(values[place]) for _, values in curves]


def time_text(at_s: float) -> str:
    """``2026-01-31 09:05``, in UTC."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M")


def _tick_text(at_s: float, step_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%d %b" if step_s >= _DAY_S else "%H:%M")


def _nice_step(most: float) -> float:
    """1, 2 or 5 times a power of ten, so that few steps reach the top."""
    power = 10.0 ** math.floor(math.log10(most / _MAX_TICKS))
    return next(power * each for each in (1, 2, 5, 10) if power * each * _MAX_TICKS >= most or each == 10)


def _amount(value: float) -> str:
    return "-" if not math.isfinite(value) else f"{round(value, 2) + 0.0:,.2f}".rstrip("0").rstrip(".")
