"""Runs one lane: its commands, then what failed of its tests once more, alone."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from .lanes import Lane, Run
from .reports import Failure, Report, last_failed, read_junit

PYTEST = ("python", "-m", "pytest")
_REPORT_S = 60
"""For pytest to say what failed until then, once its time is over."""
_INTERRUPTIBLE = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
)
"""Where the gate runs in a shell's background, SIGINT is ignored, and its children inherit that."""
_LAST_LINES_S = 5
"""For the last lines of a command that has ended; what it started may hold its output open for ever."""
TESTS_FAILED = 1
"""Pytest's exit status when it ran to its end and some tests failed; of others a second try shows nothing."""


_Outcome = tuple[Report, tuple[Failure, ...]]
"""Of one run: what it came to, and the tests that failed first and passed alone."""


@dataclass(frozen=True)
class LaneResult:
    """What a lane came to."""

    name: str
    passed: int
    skipped: int
    failures: tuple[Failure, ...]
    flaky: tuple[Failure, ...]
    """Tests that failed first, and passed alone."""
    seconds: float


SECOND_TRY = ("-p", "no:xdist", "-p", "no:randomly")
"""Options of pytest: alone, in the order of the file."""


@dataclass(frozen=True)
class Runner:
    """How commands of lanes run."""

    repository: Path
    folder: Path
    """Where reports go, a folder for each lane."""
    environment: Mapping[str, str]
    options: Sequence[str] = ()
    """Of every first run of pytest, after those of its lane."""
    prefix: str = ""
    """Before each line of output: where lanes run side by side."""

    def run_side_by_side(self, lanes: Sequence[Lane]) -> list[LaneResult]:
        """Run lanes at the same time; each line of output begins with its lane."""
        with ThreadPoolExecutor(len(lanes)) as pool:
            return list(pool.map(lambda lane: replace(self, prefix=f"{lane.name:<5}| ").run(lane), lanes))

    def run(self, lane: Lane) -> LaneResult:
        """Run a lane to its end; a command that fails keeps later ones from running only if they need it."""
        self._print(f"\n=== {lane.name} ({time.strftime('%T')})")
        started, folder = time.monotonic(), self.folder / lane.name
        folder.mkdir(parents=True, exist_ok=True)
        outcomes: list[_Outcome] = []
        if lane.at_once > 1:
            with ThreadPoolExecutor(lane.at_once) as pool:
                outcomes = list(pool.map(lambda each: self._one(lane, folder, *each), enumerate(lane.runs, start=1)))
        else:
            for number, run in enumerate(lane.runs, start=1):
                outcomes.append(self._one(lane, folder, number, run))
                if outcomes[-1][0].failures and run.command[:3] != PYTEST:  # what follows needs it
                    break
        reports = [report for report, _ in outcomes]
        return LaneResult(
            lane.name,
            sum(report.passed for report in reports),
            sum(report.skipped for report in reports),
            tuple(failure for report in reports for failure in report.failures),
            tuple(failure for _, flaky in outcomes for failure in flaky),
            time.monotonic() - started,
        )

    def _one(self, lane: Lane, folder: Path, number: int, run: Run) -> _Outcome:
        if run.command[:3] != PYTEST:
            return (self._quiet if lane.at_once > 1 else self._loud)(run), ()
        name = f"{lane.name}-{number}"
        runner = replace(self, prefix=f"{name:<7}| ") if lane.at_once > 1 else self
        return runner._tests(run, folder / name, lane.second_try)

    def _quiet(self, run: Run) -> Report:
        """Side by side with others: what it prints is shown in one piece, when it has ended."""
        started = time.monotonic()
        ended = self._call(run, run.command, capture=True)
        self._print(f"\n--- {' '.join(run.command)} ({time.monotonic() - started:.0f} s)\n{ended.output.rstrip()}")
        return _command_report(run, ended)

    def _loud(self, run: Run) -> Report:
        return _command_report(run, self._call(run, run.command))

    def _tests(self, run: Run, stem: Path, second_try: bool) -> _Outcome:
        cache = stem.with_suffix(".cache")
        shutil.rmtree(cache, ignore_errors=True)  # it would name what failed in an earlier run
        first = self._pytest(run, (*run.command[3:], *self.options), stem.with_suffix(".xml"), cache)
        failed = last_failed(cache)
        if not (second_try and first.is_complete and failed):
            return first, ()
        self._print(f"\n--- once more, alone: {', '.join(failed)}")
        second = self._pytest(run, (*SECOND_TRY, *failed), stem.with_suffix(".second.xml"), cache)
        if not second.is_complete:
            return Report(first.passed, first.skipped, (*first.failures, *second.failures)), ()
        kept = tuple(failure for failure in first.failures if failure.name in second.names)
        new = tuple(failure for failure in second.failures if failure.name not in first.names)
        flaky = tuple(failure for failure in first.failures if failure.name not in second.names)
        return Report(first.passed + len(flaky), first.skipped, (*kept, *new)), flaky

    def _pytest(self, run: Run, arguments: Sequence[str], xml: Path, cache: Path) -> Report:
        xml.unlink(missing_ok=True)
        ended = self._call(run, (*PYTEST, f"--junitxml={xml}", "-o", f"cache_dir={cache}", *arguments))
        report = read_junit(xml)
        if report and (ended.status == 0 or (ended.status == TESTS_FAILED and report.failures)):
            return report
        broken = Failure(" ".join((*PYTEST, *arguments)), ended.reason)
        report = report or Report()
        return Report(report.passed, report.skipped, (*report.failures, broken), is_complete=False)

    def _call(self, run: Run, command: Sequence[str], capture: bool = False) -> "_Ended":
        """Run a command of the virtual environment in a process group, of which nothing is left."""
        program = str(Path(sys.executable).parent / command[0])
        piped = capture or bool(self.prefix)
        process = subprocess.Popen(
            [sys.executable, "-c", _INTERRUPTIBLE, program, *command[1:]],
            cwd=self.repository,
            env={**os.environ, **self.environment, **dict(run.environment)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if piped else None,
            stderr=subprocess.STDOUT if piped else None,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        captured: list[str] = []
        with _reading(process.stdout, captured.append if capture else lambda line: self._print(line.rstrip("\n"))):
            try:
                process.wait(run.timeout_s)
            except subprocess.TimeoutExpired:
                if run.command[:3] == PYTEST:
                    process.send_signal(signal.SIGINT)
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(_REPORT_S)
                return _Ended(-1, f"It did not end within {run.timeout_s:.0f} s.")
            finally:
                _kill_group(process)
        return _Ended(process.returncode, "".join(captured))

    def _print(self, text: str) -> None:
        lines = "".join(f"{self.prefix}{line}\n" for line in text.split("\n"))
        sys.stdout.write(lines)  # in one piece, whatever other lanes print
        sys.stdout.flush()


@dataclass(frozen=True)
class _Ended:
    status: int
    output: str

    @property
    def reason(self) -> str:
        return self.output or f"It ended with exit status {self.status}; its output above says why."


def _command_report(run: Run, ended: _Ended) -> Report:
    if ended.status == 0:
        return Report(passed=1)
    return Report(failures=(Failure(" ".join(run.command), ended.reason),))


@contextmanager
def _reading(output: IO[str] | None, take: Callable[[str], object]) -> Iterator[None]:
    """While in it, hands on each line of an output that is a pipe."""

    def read(pipe: IO[str]) -> None:
        with pipe:
            for line in pipe:
                take(line)

    if output is None:
        yield
        return
    reader = threading.Thread(target=read, args=(output,), daemon=True)
    reader.start()
    try:
        yield
    finally:
        reader.join(_LAST_LINES_S)


def _kill_group(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()
