"""Times as text and back."""

import time

import pytest

from purser.core.kubernetes.times import parsed, spelled


@pytest.fixture
def far_from_utc(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00.000000Z",
        "2026-01-01T01:00:00+01:00",
        pytest.param("2026-01-01T00:00:00", id="without a zone: UTC, wherever it is read"),
    ],
)
def test_a_time_is_the_same_however_it_is_written(far_from_utc, text):
    assert parsed(text) == 1767225600.0
    assert spelled(1767225600.9) == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize("text", [None, "", "yesterday", "2026-13-01T00:00:00Z"])
def test_what_is_no_time_is_none(text):
    assert parsed(text) is None
