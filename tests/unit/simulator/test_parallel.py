"""Many runs at once: the same as one after the other."""

import multiprocessing
import os
import signal
from multiprocessing.process import BaseProcess
from pathlib import Path

import msgspec
import pytest
from tests.unit.simulator.builders import small_demo

from purser.simulator.orders import draw_order
from purser.simulator.parallel import LostProcess, Task, _block_interrupts_in_children, run_all

JOBS = 2

pytestmark = pytest.mark.processes


@pytest.mark.gate
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
    with pytest.raises(ValueError, match="policy 'nothing' for nodes"):
        run_all(made_up, [Task("best-fit", order), Task("nothing", order)], 2, lambda place, events: pytest.fail("ran"))


class Workers:
    """The processes that a call of `run_all` has started; those of other tests are none of them."""

    def __init__(self) -> None:
        self._others = set(multiprocessing.active_children())
        self.all: list[BaseProcess] = []

    def find(self) -> None:
        """To be called while they run."""
        self.all = self.all or [each for each in multiprocessing.active_children() if each not in self._others]

    def send(self, number: signal.Signals, *, to: int = JOBS) -> None:
        for process in self.all[:to]:
            assert process.pid is not None
            os.kill(process.pid, number)


@pytest.mark.gate
def test_workers_heed_no_interrupt() -> None:
    """A terminal sends it to them as well: which of them ends is for the process that started them to say."""
    workers = Workers()

    def interrupted(place: int, events: int) -> None:
        workers.find()
        workers.send(signal.SIGINT)

    made_up = small_demo()
    order = draw_order(made_up, 1, 60)
    found = run_all(made_up, [Task("best-fit", order), Task("fragmentation", order)], JOBS, interrupted)
    assert [run.policy for run in found] == ["best-fit", "fragmentation"]
    assert [each.exitcode for each in workers.all] == [0] * JOBS


def test_an_interrupt_ends_all_workers_at_once() -> None:
    workers = Workers()

    def interrupted(place: int, events: int) -> None:
        workers.find()
        raise KeyboardInterrupt

    made_up = small_demo()
    order = draw_order(made_up, 1, 60)
    with pytest.raises(KeyboardInterrupt):
        run_all(made_up, [Task("best-fit", order)] * 2, JOBS, interrupted)
    assert [each.exitcode for each in workers.all] == [-signal.SIGKILL] * JOBS


def test_an_interrupt_while_workers_start_waits_until_they_have() -> None:
    before = signal.getsignal(signal.SIGINT), signal.pthread_sigmask(signal.SIG_BLOCK, ())
    started = []
    with pytest.raises(KeyboardInterrupt), _block_interrupts_in_children():
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()), "as workers inherit it"
        signal.raise_signal(signal.SIGINT)
        started.append("the last one")
    assert started
    assert (signal.getsignal(signal.SIGINT), signal.pthread_sigmask(signal.SIG_BLOCK, ())) == before


def test_a_worker_that_is_killed_is_said_and_the_others_end(tmp_path: Path) -> None:
    """Neither ends by itself: each waits for somebody who reads its log."""
    workers = Workers()

    def killed(place: int, events: int) -> None:
        workers.find()
        workers.send(signal.SIGKILL, to=1)

    made_up = small_demo()
    logs = [tmp_path / "one", tmp_path / "two"]
    for log in logs:
        os.mkfifo(log)
    tasks = [Task("best-fit", draw_order(made_up, 1, 60), log=str(log)) for log in logs]
    with pytest.raises(LostProcess, match="try fewer --jobs"):
        run_all(made_up, tasks, JOBS, killed)
    assert len(workers.all) == JOBS
    assert not any(each.is_alive() for each in workers.all)
