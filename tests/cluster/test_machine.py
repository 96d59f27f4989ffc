"""What a run leaves of itself on the machine: nothing, however it ends."""

import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from .kubernetes import cgroups, keeper
from .kubernetes.fixtures import require_namespaces

RUN = """
import os, subprocess, sys
from pathlib import Path
from tests.cluster.kubernetes import keeper, machine
before = os.stat("/proc/self/ns/net").st_ino
name = machine.enter()
assert os.stat("/proc/thread-self/ns/net").st_ino != before
outside = [*machine.outside(), "stat", "-Lc%i", "/proc/self/ns/net"]
assert int(subprocess.run(outside, capture_output=True, check=True).stdout) == before
Path(keeper.FOLDERS, name + "folder").mkdir()
child = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
print(name, child.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("end", [lambda run: run.kill(), lambda run: run.stdin.close()], ids=["killed", "in order"])
def test_nothing_is_left_of_a_run(end: Callable[["subprocess.Popen[str]"], None]) -> None:
    require_namespaces()
    with subprocess.Popen([sys.executable, "-c", RUN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdin is not None and run.stdout is not None
        name, pid = run.stdout.readline().split()
        group = cgroups.tracking().mount / f"{name}run"
        assert {run.pid, int(pid)} == set(cgroups.processes([group]))
        end(run)
    deadline = time.monotonic() + 60
    while group.exists() or list(keeper.FOLDERS.glob(f"{name}*")):
        assert time.monotonic() < deadline
        time.sleep(0.05)  # a cgroup goes when nothing runs in it any more
