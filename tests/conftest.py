"""What holds for every test."""

import faulthandler
import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from purser.core.placement import kernels
from purser.lab.in_memory import folder_in_memory
from tests import tiers, waiting
from tests.conformance.kubelet.prediction import matrix
from tests.conformance.vectors import summary

tiers.set_up()

if not tiers.IS_LONG:  # numba compiles for ten seconds, and each worker by itself
    os.environ.setdefault(kernels.VARIABLE, "numpy")
    os.environ.setdefault("NUMBA_DISABLE_JIT", "1")  # what it would compile runs as Python in tests of its kernels
    # aiohttp reads all of the system's authorities as it is imported, in each process; nothing here needs one.
    os.environ.setdefault("SSL_CERT_FILE", os.devnull)
if named_kernels := os.environ.get(kernels.VARIABLE):  # else numba is imported by those tests alone that need it
    kernels.use(named_kernels)


def pytest_configure() -> None:
    """Logs are plain. What tests write is in memory, too, where there is enough of it."""
    faulthandler.register(signal.SIGALRM, file=os.dup(2), chain=True)  # a copy: while tests run, 2 is captured
    log_plainly()
    if memory := folder_in_memory():
        os.environ["TMPDIR"] = memory
        tempfile.tempdir = None


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(settings: Any) -> bool:
    """In place of pytest-timeout's thread for each test, which costs a third of a quick one.

    The signal shows every thread's stack, under xdist, too, and ends the process.
    """
    signal.setitimer(signal.ITIMER_REAL, settings.timeout)
    waiting.begins(settings.timeout)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_cancel_timer() -> bool:
    signal.setitimer(signal.ITIMER_REAL, 0)
    waiting.ends()
    return True


def pytest_enter_pdb() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    waiting.ends()


@pytest.fixture(autouse=True, scope="module")
def garbage() -> Iterator[None]:
    """What a file's tests leave is collected at its end, where warnings about it are still that file's.

    What lives by then, modules above all, is never looked at again: a collection among it takes longer than most files.
    """
    gc.freeze()
    yield
    gc.collect()


@pytest.fixture(autouse=True)
def logging_as_it_was():
    """Commands that run inside a test set logging up for a standard error that is closed when they end."""
    yield
    log_plainly()


_configure = structlog.configure


def _configure_uncached(**options: Any) -> None:
    """What logs while such a command runs, an agent of the same test perhaps, does not keep that standard error: a
    logger that is cached would raise at its next line, in a test of another file."""
    _configure(**{**options, "cache_logger_on_first_use": False})


def log_plainly() -> None:
    """As structlog does by itself, but for tracebacks in colours and frames: each takes longer than most tests."""
    structlog.configure = _configure_uncached
    structlog.reset_defaults()
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], plain])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many vectors ran, and how predictions came true: reports carry their counts with them, so that those of
    xdist's workers are in it."""
    reports = [*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ())]
    called = [report for report in reports if report.when == "call"]
    for line in filter(None, [summary(called), *matrix.summary(called)]):
        terminalreporter.write_line(line)
