"""A violated invariant is counted and logged once while it lasts, within limits."""

from structlog.testing import capture_logs

from purser.core.consistency import InvariantViolation
from purser.invariants import MAX_DUMP_CHARACTERS, MAX_DUMPS, InvariantReports


def test_it_is_reported_when_it_begins_and_within_limits() -> None:
    counted: list[str] = []
    reports = InvariantReports(counted.append)
    one = InvariantViolation("node-usage", "n", "x" * 10**6, "y" * 10**6)
    with capture_logs() as logs:
        for _ in range(3):
            reports.report([one, one])
            reports.end_sweep()
        assert counted == ["node-usage"]
        assert [len(line[field]) for line in logs for field in ("kept", "recounted")] == [MAX_DUMP_CHARACTERS] * 2
        reports.end_sweep()
        reports.report([one])
        assert len(counted) == len(logs) == 2
        reports.report(InvariantViolation("node-usage", f"n{n}", "", "") for n in range(MAX_DUMPS))
    assert len(counted) == MAX_DUMPS + 2
    assert len(logs) == MAX_DUMPS
