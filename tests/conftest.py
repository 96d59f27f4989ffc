"""What holds for every test."""

import functools
import gc
import os
import sys
import tempfile
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
import typer.main
import typer.testing

from purser.core.placement import kernels
from purser.lab.in_memory import folder_in_memory
from tests import tiers, waiting
from tests.conformance.kubelet.prediction import matrix
from tests.conformance.vectors import summary
from tests.gate.lanes import lane_of

tiers.set_up()

if not tiers.IS_LONG:  # numba compiles for ten seconds, and each worker by itself
    os.environ.setdefault(kernels.VARIABLE, "numpy")
    os.environ.setdefault("NUMBA_DISABLE_JIT", "1")  # what it would compile runs as Python in tests of its kernels
    # aiohttp reads all of the system's authorities as it is imported, in each process; nothing here needs one.
    os.environ.setdefault("SSL_CERT_FILE", os.devnull)
# The whole tree of commands, which takes longer than most of them do; a process of `purser` makes it once, too.
typer.main.get_command = typer.testing._get_command = functools.cache(typer.main.get_command)
# Before the first import of grpc: what a test starts needs no gRPC between fork and exec.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
if named_kernels := os.environ.get(kernels.VARIABLE):  # else numba is imported by those tests alone that need it
    kernels.use(named_kernels)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lane", choices=["unit", "lab"], help="run the files of this lane alone (tests/gate/lanes.py)")
    parser.addoption("--part", default="1/1", metavar="K/N", help="run the Kth of N parts of the files alone")


def pytest_configure(config: pytest.Config) -> None:
    """Logs are plain. What tests write is in memory, too, where there is enough of it."""
    log_plainly()
    if memory := folder_in_memory():
        os.environ["TMPDIR"] = memory
        tempfile.tempdir = None
    runs_tests = hasattr(config, "workerinput") or not config.getoption("numprocesses", None)
    if config.getoption("--lane") == "unit" and runs_tests:
        sys.addaudithook(_refuse_processes)


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(settings: Any) -> None:
    """Before pytest-timeout sets it: a test's own waits end a little earlier."""
    waiting.begins(settings.timeout)


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_cancel_timer() -> None:
    waiting.ends()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not collection_path.match("test_*.py"):
        return None
    lane = config.getoption("--lane")
    part, parts = map(int, config.getoption("--part").split("/"))
    place = zlib.crc32(bytes(collection_path.relative_to(config.rootpath))) % parts
    is_of_another = place != part - 1 or (lane and lane_of(collection_path) != lane)
    return True if is_of_another else None


_is_testing = False
"""Whether a test runs: pytest itself, and its plugins, may start processes."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    global _is_testing
    _is_testing = True
    try:
        return (yield)
    finally:
        _is_testing = False


_STARTS = frozenset({"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system"})


def _refuse_processes(event: str, _: Any) -> None:
    if event in _STARTS and _is_testing:
        raise RuntimeError(
            "A test of the lane unit starts a process. Write `pytestmark = pytest.mark.processes` into its file, which"
            " puts it into the lane lab, or test the same without a process."
        )


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


def log_plainly() -> None:
    """As structlog does by itself, but without tracebacks in colours and frames, each of which takes longer than most
    tests, and to the process' standard error: what a command prints that runs beside a lab is the command's alone."""
    structlog.reset_defaults()
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(
        processors=[*structlog.get_config()["processors"][:-1], plain],
        logger_factory=structlog.PrintLoggerFactory(sys.__stderr__),
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many vectors ran, and how predictions came true: reports carry their counts with them, so that those of
    xdist's workers are in it."""
    reports = [*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ())]
    called = [report for report in reports if report.when == "call"]
    for line in filter(None, [summary(called), *matrix.summary(called)]):
        terminalreporter.write_line(line)
