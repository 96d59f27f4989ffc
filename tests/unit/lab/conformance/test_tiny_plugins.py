"""The kit against small plugins: one that does everything right, and others that each do one thing wrong."""

import asyncio
import contextlib
import shlex
import sys
import tempfile
from pathlib import Path

import pytest
from tests.tiers import IS_LONG
from tests.unit.lab.conformance.tiny import PLUGIN, WRONG

from purser.lab.conformance import CATALOGUE, CheckOutcome, Settings, run, select

pytestmark = pytest.mark.processes

PATIENT_S, IMPATIENT_S = 20.0, 6.0
"""The second for plugins that make the kit wait in vain: these are checked all at once."""

NEEDS_HOOKS = {"health-lost", "health-new-stream", "health-back", "allocate-unhealthy", "list-complete"}

FAULTS = {
    "version duplicates forgets": {"register-version", "list-unique-ids", "preferred-must-include"},
    "consumes": {"allocate-no-change"},
    "unstable dies": {"preferred-deterministic", "allocate-unknown-id", "limits-many-ids", "process-survives"},
    "health": {"list-health"},
    "resource foreign closes gives-up": {
        "register-resource-name",
        "preferred-available",
        "list-stays-open",
        "reregister-refused",
        "process-survives",
    },
    "options takes-all counts relative leaves": {
        "register-options-equal",
        "allocate-unknown-id",
        "allocate-idempotent",
        "allocate-concurrent",
        "allocate-valid",
        "process-leaves-no-socket",
    },
}
"""What fails, out of everything. Some that have nothing to do with each other are together, to save time."""

SLOW_FAULTS = {
    "again": ({"register-once"}, ["register*", "list*", "calls*", "process*"]),
    "late": ({"register-serves-first"}, ["register*", "list*"]),
    "hangs": ({"allocate"}, ["list*", "allocate*", "limits*", "calls*"]),
    "deaf": ({"reregister"}, ["register", "reregister*", "process*"]),
    "socket-blind": ({"reregister-own-socket"}, ["register", "reregister*", "process*"]),
    "own-socket": ({"reregister-socket-kept"}, ["register", "reregister*", "process*"]),
    "stubborn": ({"process-ends"}, ["register", "process*"]),
}
"""What fails, out of which checks."""


@pytest.fixture(autouse=True)
def kubelet_is_quick(monkeypatch):
    monkeypatch.setattr("purser.lab.conformance.checks.restart.KUBELET_DOWNTIME_S", 0.02)


def command(*arguments):
    return (sys.executable, str(PLUGIN), "--dir", "{dir}", *arguments)


async def checked(*arguments, only=(), skip=(), timeout_s=PATIENT_S, observe_s=0.1, **settings):
    chosen = Settings(command=command(*arguments), timeout_s=timeout_s, observe_s=observe_s, **settings)
    return await run(chosen, select(only, skip))


def ids(report, outcome):
    return {verdict.check.id for verdict in report.verdicts if verdict.outcome is outcome}


def not_passed(report):
    """For a test that fails: pytest shows all of a text, and little of a dictionary."""
    return "\n".join(
        f"{v.check.id}: {v.outcome}: {v.reason}" for v in report.verdicts if v.outcome is not CheckOutcome.PASSED
    )


def told(report):
    return {verdict.check.id: f"{verdict.outcome}: {verdict.reason}" for verdict in report.verdicts}


async def test_a_good_plugin_passes_everything_that_can_be_checked():
    report = await checked()
    assert ids(report, CheckOutcome.FAILED) == set(), not_passed(report)
    assert ids(report, CheckOutcome.SKIPPED) == NEEDS_HOOKS
    assert len(report.verdicts) == len(CATALOGUE)
    assert report.resource == "example.org/thing"


@pytest.mark.parametrize("wrong", FAULTS if IS_LONG else [*FAULTS][-1:])
async def test_a_plugin_with_a_fault_fails_the_checks_about_it_and_no_other(wrong):
    report = await checked(*(f"--wrong={fault}" for fault in wrong.split()))
    assert ids(report, CheckOutcome.FAILED) == FAULTS[wrong], not_passed(report)


@pytest.mark.gate
async def test_plugins_that_make_kubelet_wait_fail_the_checks_about_it_and_no_other():
    patience = {"timeout_s": IMPATIENT_S, "observe_s": IMPATIENT_S / 2}
    runs = (checked("--wrong", wrong, only=only, **patience) for wrong, (_, only) in SLOW_FAULTS.items())
    reports = dict(zip(SLOW_FAULTS, await asyncio.gather(*runs), strict=True))
    for wrong, (fails, _) in SLOW_FAULTS.items():
        assert ids(reports[wrong], CheckOutcome.FAILED) == fails, f"{wrong}\n{not_passed(reports[wrong])}"
    # What stands on a check that failed is skipped, and says so.
    assert told(reports["hangs"])["allocate"] == "fail: Allocate did not return within 6 s"
    assert told(reports["hangs"])["allocate-idempotent"] == "skip: needs allocate, which failed"


async def test_a_plugin_that_is_still_busy_with_a_former_kubelet_may_start_over():
    checks = ["register", "reregister", "reregister-twice-at-once"]
    # Its call reaches the second kubelet, and only afterwards it sees that this is not the one that it was meant for.
    report = await checked("--starts-over", "3", only=checks)
    assert ids(report, CheckOutcome.FAILED) == set(), not_passed(report)
    # After one restart there is no other kubelet that the call may have been for.
    report = await checked("--starts-over", "2", only=checks)
    assert ids(report, CheckOutcome.FAILED) == {"reregister"}, not_passed(report)


async def test_a_list_beyond_the_message_limit_fails_the_check_about_it_and_no_other():
    report = await checked("--wrong", "too-large", only=["list*", "preferred", "limits-list"])
    assert ids(report, CheckOutcome.FAILED) == {"limits-list"}, not_passed(report)


def test_every_fault_of_the_tiny_plugin_is_looked_for():
    assert {*" ".join(FAULTS).split(), *SLOW_FAULTS, "partial", "too-large"} == set(WRONG)


async def test_the_end_of_a_plugin_is_reported_with_its_last_words():
    report = await checked("--wrong", "dies", only=["allocate-unknown-id", "list"])
    reason = told(report)["allocate-unknown-id"]
    assert "exited unexpectedly during this check: exit code 3" in reason
    assert "panic: no such device" in reason


HOOKS = {
    "unhealthy_command": 'echo "$PURSER_DEVICE_ID" > "$PURSER_DEVICE_PLUGIN_DIR/unhealthy"',
    "healthy_command": 'rm "$PURSER_DEVICE_PLUGIN_DIR/unhealthy"',
}


async def test_health_is_watched_where_it_can_be_changed():
    report = await checked(only=["list*", "health*", "allocate-unhealthy"], **HOOKS)
    assert ids(report, CheckOutcome.PASSED) >= NEEDS_HOOKS, not_passed(report)
    assert told(report)["health-lost"] == told(report)["health-back"] == "pass: thing-0"


async def test_a_plugin_that_lists_changes_only_fails_when_health_changes():
    report = await checked("--wrong", "partial", only=["list*", "health*"], **HOOKS)
    assert ids(report, CheckOutcome.FAILED) == {"list-complete"}, not_passed(report)


async def test_a_hook_that_fails_is_not_the_plugins_fault():
    report = await checked(only=["health*"], unhealthy_command="echo no such card; exit 4")
    assert told(report)["health-lost"] == "skip: echo no such card; exit 4 exited with code 4: no such card"


@pytest.mark.gate
async def test_ten_thousand_devices_pass_too():
    report = await checked("--devices", "10000", only=["list*", "preferred*", "limits*", "calls-slow-clients"])
    assert ids(report, CheckOutcome.FAILED) == set(), not_passed(report)
    assert "for 10000 devices" in told(report)["limits-list"]


async def test_a_command_that_ends_at_once_is_reported_and_nothing_else_is_tried():
    settings = Settings(command=("sh", "-c", "echo no GPU here >&2; exit 7"), timeout_s=PATIENT_S)
    report = await run(settings, select())
    assert "exit code 7" in told(report)["register"]
    assert "no GPU here" in told(report)["register"]
    assert ids(report, CheckOutcome.PASSED) == set()
    assert ids(report, CheckOutcome.FAILED) == {"register", "process-survives"}


async def test_the_folder_reaches_a_command_that_reads_the_environment_and_neither_is_left(monkeypatch):
    # Not pytest's own folder: the path of a socket must be short.
    tmp_path = Path(tempfile.mkdtemp(prefix="pc"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    script = f'exec {shlex.quote(sys.executable)} {shlex.quote(str(PLUGIN))} --dir "$PURSER_DEVICE_PLUGIN_DIR"'
    report = await run(Settings(command=("sh", "-c", script), timeout_s=PATIENT_S), select(["register", "list"]))
    assert ids(report, CheckOutcome.PASSED) == {"register", "list"}
    tmp_path.rmdir()  # it is empty
    assert not [words for words in command_lines() if str(tmp_path).encode() in words]


def command_lines():
    """Of all processes of the machine: any of them may end while it is looked at."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.append(path.read_bytes())
    return found
