"""`purser conformance device-plugin` as it is typed: reports, files, exit codes, signals."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree as xml

import pytest
import yaml
from tests.unit.lab.conformance.tiny import PLUGIN
from typer.testing import CliRunner

from purser.cli import app

pytestmark = pytest.mark.processes

COMMAND = ["conformance", "device-plugin"]
PURSER = [str(Path(sys.executable).with_name("purser")), *COMMAND]
QUICK = ["--only=register", "--only=register-version", "--only=list", "--only=health-lost"]
TINY = [sys.executable, str(PLUGIN), "--dir", "{dir}"]


@pytest.fixture(autouse=True)
def quiet_grpc(monkeypatch):
    """As the command says in its own environment, which is that of the tests here."""
    monkeypatch.setenv("GRPC_VERBOSITY", "NONE")


def conformance(*words):
    return CliRunner().invoke(app, [*COMMAND, *words])


@pytest.mark.gate
def test_a_terminal_sees_where_it_is():
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        subprocess.run([*PURSER, *QUICK, *TINY], stdout=subprocess.DEVNULL, stderr=theirs, timeout=60, check=True)
        os.close(theirs)
        seen = terminal.read(4096).split(b"\r\x1b[K")
    assert seen == [b"", b"1/4 register", b"2/4 register-version", b"3/4 list", b"4/4 health-lost", b""]


def test_a_good_plugin_is_reported_as_a_table():
    done = conformance(*QUICK, *TINY)
    assert (done.exit_code, done.stderr) == (0, "")
    head, *rows, _, summary = done.stdout.splitlines()
    assert head.split() == ["CHECK", "RESULT", "SECONDS", "REASON"]
    assert [row.split()[:2] for row in rows] == [
        ["register", "PASS"],
        ["register-version", "PASS"],
        ["list", "PASS"],
        ["health-lost", "SKIP"],
    ]
    assert summary.startswith("example.org/thing: 3 passed, 0 failed, 1 skipped in ")


def test_a_plugin_that_does_not_start_is_a_few_lines_and_each_check_with_wide():
    done = conformance("/bin/false")
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines if " FAIL " in line] == [
        ["register", "FAIL"],
        ["process-survives", "FAIL"],
    ]
    assert len(lines) < 12
    counts = [int(line.split()[0]) for line in lines if "more checks were skipped: " in line]
    wide = conformance("-o", "wide", "/bin/false").stdout
    assert sum(counts) >= 48
    assert wide.count(" SKIP ") >= sum(counts)


@pytest.mark.parametrize(
    ("form", "load"), [("json", json.loads), pytest.param("yaml", yaml.safe_load, marks=pytest.mark.gate)]
)
def test_a_fault_is_exit_code_1_and_scripts_get_a_document(form, load, tmp_path):
    done = conformance(f"--output={form}", f"--junit={tmp_path / 'j.xml'}", *QUICK, *TINY, "--wrong", "version")
    assert (done.exit_code, done.stderr) == (1, "")
    document = load(done.stdout)
    assert (document["resource"], document["passed"], document["failed"], document["skipped"]) == (
        "example.org/thing",
        2,
        1,
        1,
    )
    [bad] = [check for check in document["checks"] if check["result"] == "fail"]
    assert (bad["id"], bad["sentence"]) == ("register-version", "The plugin registers with the API version v1beta1.")
    assert 'kubelet refuses the version "v1alpha"' in bad["reason"]
    [failure] = xml.parse(tmp_path / "j.xml").getroot().findall("testsuite/testcase/failure")
    assert failure.get("message") == bad["reason"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "the plugin's socket, or the command that starts the plugin, is required"),
        (["/no/such.sock"], "socket /no/such.sock does not exist"),
        (["--only=x", "true"], "no check matches x"),
        (["--size=0", "true"], "invalid value 0 for --size: must be 1 or more"),
        (["--pod=p", "true"], "invalid value 'p' for --pod: must be NAMESPACE/POD/CONTAINER"),
        (["/no/such/plugin"], "cannot start /no/such/plugin"),
        pytest.param(
            ["--only=health*", "--junit=/no/such/folder/j.xml", *TINY],
            "cannot write /no/such/folder/j.xml",
            marks=pytest.mark.gate,
        ),
        (["--only=health*", *TINY], "no check could run"),
    ],
)
def test_wrong_usage_and_what_cannot_be_done_are_one_line_and_exit_code_2(words, says):
    done = conformance(*words)
    assert done.exit_code == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("purser: ")
    assert says in line


def test_the_checks_can_be_listed_without_a_plugin():
    done = conformance("--list", "--only=list*", "-o", "json")
    assert done.exit_code == 0
    assert {"id": "list", "sentence": "The first list arrives in time.", "needs": []} in json.loads(done.stdout)


@pytest.mark.gate
def test_stopped_it_ends_the_plugin_and_says_so(tmp_path):
    log = tmp_path / "pid"
    script = f'echo $$ > {log}; exec "$@"'
    command = ["sh", "-c", script, "sh", *TINY, "--wrong", "hangs"]
    kit = subprocess.Popen(
        [*PURSER, "--only=allocate", "--timeout=50", *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 30
    while not (log.exists() and log.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    kit.send_signal(signal.SIGTERM)
    _, errors = kit.communicate(timeout=30)
    assert (kit.returncode, errors) == (2, "purser: interrupted\n")
    assert not Path(f"/proc/{log.read_text().strip()}").exists()
