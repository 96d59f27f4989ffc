"""Many runs, each in one of several processes."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from typing import Any

import msgspec

from purser.core.placement import kernels
from purser.core.placement.policies import parse_policy
from purser.simulator import arrivals, departures
from purser.simulator.bounds import bounds
from purser.simulator.decision_log import opened
from purser.simulator.results import AnyRun, arrivals_result, timed_result
from purser.simulator.workload import Order, SimWorkload, has_bounds

FRAGMENTATION = "fragmentation"
"""The policy whose first failure the bound C is about."""

EVENTS_PER_PROCESS = 10_000
"""As many as make another process worth its start, of a second or two."""

OnProgress = Callable[[int, int], None]
"""Called with the task and its number of events done."""


class Task(msgspec.Struct, frozen=True):
    """One run to be made."""

    policy: str
    order: Order
    learns: bool = False
    """Whether the policy has to learn the mix of pods from those that arrive."""
    bound: bool = False
    """Whether to compute the bounds on this order too."""
    log: str = ""
    """Path of the file that takes its decisions; empty: none."""


class LostProcess(RuntimeError):
    """A process ended without an answer."""


def run_all(workload: SimWorkload, tasks: Sequence[Task], jobs: int, on_progress: OnProgress) -> list[AnyRun]:
    """The runs in the order of the tasks. Raises ValueError for a policy that there is none of, `LostProcess`,
    `SolverError`.
    """
    for task in tasks:
        parse_policy(task.policy)
    if min(jobs, len(tasks)) <= 1:
        return [_run(workload, task, _reporter(on_progress, place)) for place, task in enumerate(tasks)]
    return _run_in_processes(workload, tasks, min(jobs, len(tasks)), on_progress)


def fitting_jobs(tasks: Sequence[Task]) -> int:
    """One per processor, or fewer for little work: a process takes as long to start as many decisions."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(min(processors, sum(len(task.order.pods) for task in tasks) // EVENTS_PER_PROCESS), 1)


def _reporter(on_progress: OnProgress, place: int) -> arrivals.Tick:
    return lambda events: on_progress(place, events)


def _run(workload: SimWorkload, task: Task, tick: arrivals.Tick) -> AnyRun:
    _warm_up(workload, task)
    if task.order.arrives_s is not None:
        with opened(task.log) as log:
            timed = departures.run(workload, task.order, task.policy, task.learns, tick, log=log)
        return timed_result(task.policy, workload, task.order, task.learns, timed)
    with opened(task.log) as log:
        found = arrivals.run(workload, task.order, task.policy, task.learns, tick, log)
    limit = None
    if task.bound and has_bounds(workload.nodes):
        first = found.first_failure
        if task.policy != FRAGMENTATION or task.learns:
            first = arrivals.run(workload, task.order, FRAGMENTATION).first_failure
        limit = bounds(workload, task.order, first)
    return arrivals_result(task.policy, workload, task.order, task.learns, found, limit)


def _warm_up(workload: SimWorkload, task: Task) -> None:
    """Kernels are compiled when they are first called: that is no part of what is measured."""
    few = msgspec.structs.replace(task.order, pods=task.order.pods[:32], arrives_s=None)
    arrivals.run(workload, few, task.policy, task.learns)


def _run_in_processes(workload: SimWorkload, tasks: Sequence[Task], jobs: int, on_progress: OnProgress) -> list[AnyRun]:
    # Spawned, not forked: a fork copies locks that other threads of this process may hold.
    context = multiprocessing.get_context("spawn")
    done = context.Array("q", len(tasks), lock=False)
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(jobs, context, _begin, (workload, done, kernels.name())) as pool:
        try:
            with _block_interrupts_in_children():
                futures = [pool.submit(_run_task, place, task) for place, task in enumerate(tasks)]
            workers = set(multiprocessing.active_children()) - others
            _watch(futures, workers, done, on_progress)
            return [future.result() for future in futures]
        except BaseException as error:
            # Their results are not needed, and they hold nothing that needs a clean-up.
            for process in set(multiprocessing.active_children()) - others:
                process.kill()
            if isinstance(error, BrokenProcessPool):
                raise LostProcess(
                    "a simulation process was killed, possibly because the machine ran out of memory: try fewer --jobs"
                ) from error
            raise


@contextmanager
def _block_interrupts_in_children() -> Iterator[None]:
    """A terminal interrupts all processes at once; this one alone heeds it, and ends the others, which were started
    meanwhile. They inherit that the signal is blocked. Here it waits until all are started: a process that was started
    by half would wait for its other half for ever.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    resource_tracker.ensure_running()  # it would unblock the signal when it is started
    interrupts: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: interrupts.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, before)
    if interrupts:
        raise KeyboardInterrupt


def _watch(futures: Sequence["Future[AnyRun]"], workers: Set[BaseProcess], done: Any, on_progress: OnProgress) -> None:
    """Until all are done. Raises `BrokenProcessPool` for a worker that was killed: Python's pool may not notice that by
    itself, as it begins to look after its workers before it has started the last one."""
    left = set(futures)
    while left:
        finished, left = wait(left, timeout=0.2, return_when=FIRST_COMPLETED)
        for future in finished:
            future.result()
        for place in range(len(futures)):
            on_progress(place, done[place])
        if left and any(worker.exitcode for worker in workers):
            raise BrokenProcessPool


_worker_state: "tuple[SimWorkload, Any] | None" = None


def _begin(workload: SimWorkload, done: Any, kernels_name: str) -> None:
    global _worker_state
    kernels.use(kernels_name)
    _worker_state = (workload, done)


def _run_task(place: int, task: Task) -> AnyRun:
    assert _worker_state is not None
    workload, done = _worker_state

    def tick(events: int) -> None:
        done[place] = events

    result = _run(workload, task, tick)
    done[place] = len(task.order.pods)
    return result
