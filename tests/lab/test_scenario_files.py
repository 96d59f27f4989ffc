"""Scenario files from the command, as a user runs them."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from purser.cli import main
from tests.tiers import IS_LONG

EXAMPLES = Path(__file__).parents[2] / "examples"
SCENARIOS = sorted((EXAMPLES / "scenarios").glob("*.yaml"))[0 if IS_LONG else -1 :]
PROCESSES = 3 if IS_LONG else 1
PURSER = [sys.executable, "-c", "from purser.cli import main; main()"]
MARK = "=== "
ONE_AFTER_THE_OTHER = f"""
import sys
from purser.cli import main

for path in sys.argv[1:]:
    for stream in sys.stdout, sys.stderr:
        print({MARK!r} + path, file=stream, flush=True)
    sys.argv = ["purser", "lab", "--run", path]
    try:
        main()
    except SystemExit as ended:
        print(ended.code)
"""
"""The command with each path in turn, and its exit code in a last line: Purser is imported once."""
FAILS = "nodes: [t4-4]\nsteps: [{wait: {node: t4-4-0, allocatable: 41}, within_s: 0.5}, {apply: x.yaml}]"


@pytest.fixture(scope="module")
def failing(tmp_path_factory):
    path = tmp_path_factory.mktemp("failing") / "scenario.yaml"
    path.write_text(FAILS)
    return path


@pytest.fixture(scope="module")
def runs(failing):
    """By scenario: exit code, output and errors. Scenarios wait more than they work, so some run at once."""
    paths = [*SCENARIOS, failing]
    shares = [paths[place::PROCESSES] for place in range(PROCESSES)]
    command = [sys.executable, "-c", ONE_AFTER_THE_OTHER]
    processes = [
        subprocess.Popen([*command, *map(str, share)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for share in shares
    ]
    found = {}
    for share, process in zip(shares, processes, strict=True):
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, err
        outs, errors = out.split(MARK)[1:], err.split(MARK)[1:]
        for path, out, err in zip(share, outs, errors, strict=True):
            *lines, code = out.splitlines()[1:]
            found[path] = int(code), lines, "".join(err.splitlines(keepends=True)[1:])
    return found


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_every_example_comes_out_as_it_says(path, runs):
    code, out, err = runs[path]
    assert code == 0, f"{out}\n{err}"
    count = len(yaml.safe_load(path.read_text())["steps"])
    assert [line.split()[:2] for line in out] == [["ok", f"{n}/{count}"] for n in range(1, count + 1)]
    assert not _alarms(err)


def test_a_scenario_that_fails_says_what_was_so_instead_and_exits_with_1(failing, runs):
    code, out, _ = runs[failing]
    assert code == 1
    assert out[0].startswith("FAILED 1/2 t4-4-0 offers 41 nvidia.com/gpu")
    assert "t4-4-0 offers 40 nvidia.com/gpu" in out[1]
    assert len(out) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--run", "none.yaml"], "cannot read none.yaml"),
        (["--node", "nonsense"], "profile nonsense does not exist"),
        (["--node", "t4-4:"], "must be PROFILE or PROFILE:COUNT"),
        (["--kubelet-version", "1.36"], "must be v1.20.0 or newer, written as v1.36.2"),
        (["--node", "gb200-nvl4", "--kubelet-version", "v1.29.1"], "node gb200-nvl4-0: kubelet would not start"),
        (["--kubelet-version", "v1.20.2", "--memory-manager", "Static"], "does not have a memory manager: use v1.21.0"),
        (["--port", "65536"], "must be from 1 to 65535"),
    ],
)
def test_bad_words_are_refused_with_2(words, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["purser", "lab", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_the_first_screen_works_as_written_and_nothing_is_left_behind(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path) if len(str(tmp_path)) < 25 else tempfile.gettempdir()}
    with (
        subprocess.Popen(
            [*PURSER, "lab", "--node", "t4-4"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        ) as process,
        _ended(process),
    ):
        lines = []
        while "Ctrl-C" not in (lines[-1] if lines else ""):
            line = process.stdout.readline()
            assert line, process.stderr.read()
            lines.append(line)
        kubeconfig = Path(next(line.split("=")[1].strip() for line in lines if "KUBECONFIG" in line))
        assert any("t4-4-0" in line and "4 x Tesla T4" in line for line in lines)
        kubectl(kubeconfig, "apply", "-f", EXAMPLES / "share.yaml")
        kubectl(kubeconfig, "wait", "--for=condition=Ready", "pod/share", "--timeout=60s")
        if IS_LONG:
            shown = next(line.split() for line in lines if "lab gpu lose" in line)
            run([*shown[: shown.index("#")], "--kubeconfig", kubeconfig])
            until_allocatable(kubeconfig, "30")
            run([*shown[: shown.index("lose")], "recover", "t4-4-0", "0", "--kubeconfig", kubeconfig])
        shown = next(line.split() for line in lines if line.endswith("get gpus\n"))
        gpus = run([*shown, "--kubeconfig", kubeconfig])  # in the gate while the cards come back
        assert gpus.count("Tesla T4") == 4
        assert "CUDA_DEVICE_MEMORY_LIMIT_0=10240m" in kubectl(kubeconfig, "logs", "share")
        if IS_LONG:
            until_allocatable(kubeconfig, "40")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert not _alarms(process.stderr.read())
    assert not kubeconfig.parent.exists()


@contextmanager
def _ended(process):
    """A test that fails while a lab runs does not wait for the lab's end, which would never come."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.kill()


def run(command):
    environment = {**os.environ, "GOGC": "off"}  # kubectl's life is too short for a collector
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


def kubectl(kubeconfig, *words):
    return run(["kubectl", "--kubeconfig", kubeconfig, *words])


def until_allocatable(kubeconfig, count):
    path = r"jsonpath={.status.allocatable.nvidia\.com/gpu}=" + count
    kubectl(kubeconfig, "wait", "node/t4-4-0", f"--for={path}", "--timeout=60s")


def _alarms(log):
    """Lines that no lab may write, whatever breaks in it; warnings of what does are as in production."""
    return [line for line in log.splitlines() if '"level": "warning"' not in line]
