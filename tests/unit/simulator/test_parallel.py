"""Many runs at once: the same as one after the other."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from tests.unit.simulator.builders import small_demo

from purser.simulator.orders import draw_order
from purser.simulator.parallel import Task, run_all

pytestmark = pytest.mark.processes


def test_processes_come_to_what_one_process_comes_to() -> None:
    made_up = small_demo()
    order = draw_order(made_up, 1, 60)
    tasks = [Task(name, order) for name in ("best-fit", "fragmentation")]
    seen: dict[int, int] = {}
    alone = run_all(made_up, tasks, 1, lambda place, events: None)
    together = run_all(made_up, tasks, 2, lambda place, events: seen.update({place: events}))
    assert [msgspec.structs.replace(run, pods_per_second=0) for run in together] == [
        msgspec.structs.replace(run, pods_per_second=0) for run in alone
    ]
    assert seen == {0: len(order.pods), 1: len(order.pods)}


def test_a_policy_that_there_is_none_of_is_refused_before_anything_runs() -> None:
    made_up = small_demo()
    order = draw_order(made_up, 1, 60)
    with pytest.raises(ValueError, match="no policy for nodes is called 'nothing'"):
        run_all(made_up, [Task("best-fit", order), Task("nothing", order)], 2, lambda place, events: pytest.fail("ran"))


def test_an_interrupt_stops_all_processes_at_once(tmp_path: Path) -> None:
    """As a terminal sends it: to every process of the group."""
    purser = Path(sys.executable).with_name("purser")
    words = ["simulate", "--demo", "--departures", "--load=300", "--jobs=2"]
    words += [f"--seed={seed}" for seed in range(8)]
    process = subprocess.Popen([purser, *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    while len(children(process.pid)) < 3:  # multiprocessing's own helper is one of them
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert b"Traceback" not in errors


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
