from datetime import datetime

import pytest

from purser.lab.cron import parse


@pytest.mark.parametrize(
    ("schedule", "moment", "has"),
    [
        ("* * * * *", "2026-11-22T07:05", True),
        ("*/5 * * * *", "2026-11-22T07:05", True),
        ("*/5 * * * *", "2026-11-22T07:06", False),
        ("1-9/4,30 7 * * *", "2026-11-22T07:05", True),
        ("1-9/4,30 7 * * *", "2026-11-22T07:30", True),
        ("1-9/4,30 7 * * *", "2026-11-22T07:04", False),
        ("10/20 * * * *", "2026-11-22T07:50", True),
        ("0 0 * NOV sun", "2026-11-22T00:00", True),
        ("0 0 ? 11 mon-fri", "2026-11-22T00:00", False),
        # Both kinds of day said: either will do, unless one of them is every day.
        ("0 0 1 * 0", "2026-11-22T00:00", True),
        ("0 0 1 * 0", "2026-12-01T00:00", True),
        ("0 0 1 * 0", "2026-12-02T00:00", False),
        ("0 0 1 * *", "2026-11-22T00:00", False),
        ("@hourly", "2026-11-22T07:00", True),
        ("@weekly", "2026-11-23T00:00", False),
    ],
)
def test_the_minutes_of_a_schedule(schedule, moment, has):
    assert parse(schedule).has(datetime.fromisoformat(moment)) is has


@pytest.mark.parametrize(
    "text",
    ["", "* * * *", "60 * * * *", "* * 0 * *", "* * * * 7", "5-1 * * * *", "*/0 * * * *", "x * * * *", "-1 * * * *",
     "1/ * * * *", "1,,2 * * * *", "²  * * * *", "@every 5m", "* * * * * *", "99999999999999999999 * * * *"],
)  # fmt: skip
def test_what_is_no_schedule(text):
    with pytest.raises(ValueError, match=r"."):
        parse(text)
