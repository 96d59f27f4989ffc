"""What the vector suites share: the fixture that runs a file (tests/conftest.py prints how many vectors ran)."""

from collections.abc import Callable

import pytest
from tests.conformance.vectors import MEMBERSHIP, RUN, Check, CheckVectors, VectorFile, run_file


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
