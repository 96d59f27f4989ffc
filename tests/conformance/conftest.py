"""What the vector suites share: the fixture that runs a file, and the count of vectors at the end of the run."""

from collections.abc import Callable

import pytest
from tests.conformance.vectors import MEMBERSHIP, RUN, Check, CheckVectors, VectorFile, run_file, summary


@pytest.fixture
def check_vectors(record_property: Callable[[str, object], None]) -> CheckVectors:
    """Check every vector of a file, and count them for the summary."""

    def check_all(file: VectorFile, check: Check) -> None:
        result = run_file(file, check)
        record_property(RUN, result.run)
        record_property(MEMBERSHIP, result.membership)
        if result.failures:
            pytest.fail(result.failures, pytrace=False)

    return check_all


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Reports carry their counts with them, so that those of xdist's workers are in it."""
    reports = [*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ())]
    line = summary([report for report in reports if report.when == "call"])
    if line is not None:
        terminalreporter.write_line(line)
