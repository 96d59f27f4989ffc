"""What holds for every test."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
import structlog

from purser.core.placement import kernels
from tests import tiers
from tests.conformance.kubelet.prediction import matrix
from tests.conformance.vectors import summary

tiers.set_up()

if named_kernels := os.environ.get(kernels.VARIABLE):  # else numba is imported by those tests alone that need it
    kernels.use(named_kernels)

_MEMORY = Path("/dev/shm")
_ENOUGH_BYTES = 2 * 1024**3


def pytest_configure() -> None:
    """Labs write thousands of small files, as kernels and kubelets do: in memory, where there is enough of it.

    A directory for temporary files that was chosen stays; files there must be loadable as libraries.
    """
    if "TMPDIR" not in os.environ and _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK):
        may_load = not os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC
        if may_load and shutil.disk_usage(_MEMORY).free >= _ENOUGH_BYTES:
            os.environ["TMPDIR"] = str(_MEMORY)
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
