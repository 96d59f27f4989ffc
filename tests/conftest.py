"""What holds for every test."""

import os
import tempfile

import pytest
import structlog

from purser.core.placement import kernels
from purser.lab.in_memory import folder_in_memory
from tests import tiers
from tests.conformance.kubelet.prediction import matrix
from tests.conformance.vectors import summary

tiers.set_up()

if named_kernels := os.environ.get(kernels.VARIABLE):  # else numba is imported by those tests alone that need it
    kernels.use(named_kernels)


def pytest_configure() -> None:
    """What tests write is in memory, too, where there is enough of it."""
    if memory := folder_in_memory():
        os.environ["TMPDIR"] = memory
        tempfile.tempdir = None


@pytest.fixture(autouse=True)
def logging_as_it_was():
    """Commands that run inside a test set logging up for a standard error that is closed when they end."""
    yield
    structlog.reset_defaults()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many vectors ran, and how predictions came true: reports carry their counts with them, so that those of
    xdist's workers are in it."""
    reports = [*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ())]
    called = [report for report in reports if report.when == "call"]
    for line in filter(None, [summary(called), *matrix.summary(called)]):
        terminalreporter.write_line(line)
