"""Schedules of CronJobs: the five fields and the names that Kubernetes takes (robfig/cron's standard parser).

Not here: ``@every``, whose next run does not follow from the time alone.
"""

import calendar
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

_MONTHS = tuple(name.lower() for name in calendar.month_abbr)[1:]
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: tuple[tuple[int, int, Sequence[str]], ...] = (
    (0, 59, ()),
    (0, 23, ()),
    (1, 31, ()),
    (1, 12, _MONTHS),
    (0, 6, _DAYS),
)
_WORDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


@dataclass(frozen=True)
class Schedule:
    """The minutes at which something is to start."""

    fields: tuple[frozenset[int], ...]
    """Minutes, hours, days of the month, months, days of the week (0: Sunday)."""
    any_day: bool
    """Whether one of the two kinds of day says nothing; else either of them is enough."""

    def has(self, moment: datetime) -> bool:
        """Whether this minute is one of them, by the clock of the moment's time zone."""
        minutes, hours, days, months, weekdays = self.fields
        matches_day_of_month, matches_weekday = moment.day in days, moment.isoweekday() % 7 in weekdays
        fits = matches_day_of_month and matches_weekday if self.any_day else matches_day_of_month or matches_weekday
        return fits and moment.minute in minutes and moment.hour in hours and moment.month in months


def parse(text: str) -> Schedule:
    """Raises ValueError for what is not a schedule, with the word at fault."""
    words = _WORDS.get(text.strip().lower(), text).split()
    if len(words) != len(_FIELDS):
        raise ValueError(f"expected exactly 5 fields, found {len(words)}: [{' '.join(words)}]")
    days = (words[2], words[4])
    return Schedule(
        tuple(_field(word, *bounds) for word, bounds in zip(words, _FIELDS, strict=True)),
        any(word in ("*", "?", "*/1") for part in days for word in part.split(",")),
    )


def _field(text: str, low: int, high: int, names: Sequence[str]) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, has_step, step = part.partition("/")
        first, is_range, last = span.partition("-")
        if first in ("*", "?") and not is_range:
            start, end = low, high
        else:
            start = _number(first, low, names, part)
            end = _number(last, low, names, part) if is_range else high if has_step else start
        every = _number(step, 1, (), part) if has_step else 1
        if not low <= start <= end <= high or not every:
            raise ValueError(f"{part} is out of range: must be from {low} to {high}")
        found.update(range(start, end + 1, every))
    return frozenset(found)


def _number(text: str, low: int, names: Sequence[str], part: str) -> int:
    if text.lower() in names:
        return names.index(text.lower()) + low
    if not (text.isascii() and text.isdecimal() and len(text) < 5):
        raise ValueError(f"failed to parse int from {text}: {part}")
    return int(text)
