"""Scenario files from the command, as a user runs them."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from purser.cli import main
from tests.tiers import some

EXAMPLES = Path(__file__).parents[2] / "examples"
SCENARIOS = some(sorted((EXAMPLES / "scenarios").glob("*.yaml")), 4)
AT_ONCE = 3
PURSER = [sys.executable, "-c", "from purser.cli import main; main()"]


async def purser(*words):
    process = await asyncio.create_subprocess_exec(
        *PURSER, *map(str, words), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 240)
    return process.returncode, out.decode(), err.decode()


@pytest.fixture(scope="module")
def runs():
    """By example: exit code, output and errors. Scenarios wait more than they work, so some run at once."""
    return asyncio.run(_all_of_them())


async def _all_of_them():
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(path):
        async with gate:
            return await purser("lab", "--run", path)

    return dict(zip(SCENARIOS, await asyncio.gather(*map(one, SCENARIOS)), strict=True))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_every_example_comes_out_as_it_says(path, runs):
    code, out, err = runs[path]
    assert code == 0, out + err
    count = len(yaml.safe_load(path.read_text())["steps"])
    assert [line.split()[:2] for line in out.splitlines()] == [["ok", f"{n}/{count}"] for n in range(1, count + 1)]
    assert not _alarms(err)


async def test_a_scenario_that_fails_says_what_was_so_instead_and_exits_with_1(tmp_path):
    path = tmp_path / "scenario.yaml"
    path.write_text("nodes: [t4-4]\nsteps: [{wait: {node: t4-4-0, allocatable: 41}, within_s: 0.5}, {apply: x.yaml}]")
    code, out, _ = await purser("lab", "--run", path)
    assert code == 1
    assert out.startswith("FAILED 1/2 t4-4-0 offers 41 nvidia.com/gpu")
    assert "t4-4-0 offers 40 nvidia.com/gpu" in out.splitlines()[1]
    assert len(out.splitlines()) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--run", "none.yaml"], "none.yaml: cannot be read"),
        (["--node", "nonsense"], "no profile nonsense"),
        (["--node", "t4-4:"], "write PROFILE or PROFILE:COUNT"),
        (["--kubelet-version", "1.36"], "write one such as v1.36.2"),
        (["--node", "gb200-nvl4", "--kubelet-version", "v1.29.1"], "node gb200-nvl4-0: kubelet would not start"),
        (["--kubelet-version", "v1.20.2", "--memory-manager", "Static"], "has no memory manager: ask for v1.21.0"),
        (["--port", "65536"], "write one from 1 to 65535"),
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
        kubectl = ["kubectl", "--kubeconfig", str(kubeconfig)]
        subprocess.run([*kubectl, "apply", "-f", str(EXAMPLES / "share.yaml")], check=True, capture_output=True)
        subprocess.run(
            [*kubectl, "wait", "--for=condition=Ready", "pod/share", "--timeout=60s"], check=True, capture_output=True
        )
        shown = next(line.split() for line in lines if line.endswith("get gpus\n"))
        gpus = subprocess.run(
            [*shown, "--kubeconfig", str(kubeconfig)], check=True, capture_output=True, text=True
        ).stdout
        assert gpus.count("Tesla T4") == 4
        log = subprocess.run([*kubectl, "logs", "share"], check=True, capture_output=True, text=True).stdout
        assert "CUDA_DEVICE_MEMORY_LIMIT_0=10240m" in log
        subprocess.run(
            [*kubectl, "annotate", "node", "t4-4-0", "purser.dev/lab-lost-gpus=0,1"], check=True, capture_output=True
        )
        _until_allocatable(kubectl, "20")
        subprocess.run(
            [*kubectl, "annotate", "node", "t4-4-0", "purser.dev/lab-lost-gpus-"], check=True, capture_output=True
        )
        _until_allocatable(kubectl, "40")
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


def _until_allocatable(kubectl, count):
    path = r"jsonpath={.status.allocatable.nvidia\.com/gpu}"
    deadline = time.monotonic() + 60
    while True:
        found = subprocess.run(
            [*kubectl, "get", "node", "t4-4-0", "-o", path], check=True, capture_output=True, text=True
        ).stdout
        if found == count:
            return
        assert time.monotonic() < deadline, f"{found} are allocatable, not {count}"


def _alarms(log):
    """Lines that no lab may write, whatever breaks in it; warnings of what does are as in production."""
    return [line for line in log.splitlines() if '"level": "warning"' not in line]
