"""Purser's policy beside FGD and all the others, on the published traces: the tables of docs/policy-results.md.

    python benchmarks/policies.py --traces DIR [--workloads default gpuspec33 ...] [--jobs 2]

DIR has ``openb_*.csv`` of the FGD simulator's data and its event orders, ``orders/<workload>/seedNN.txt.gz``. Every
order that is there is replayed with every policy; Purser's own is given the mix of pods, as FGD is, and once more
learns it while it runs. Published means are of the seeds 42 to 51, whichever of them are there.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.conformance.fgd import published

from purser.core.model import NodePolicy
from purser.simulator.bounds import Bounds
from purser.simulator.openb import read_lists
from purser.simulator.orders import read_order
from purser.simulator.parallel import Task, run_all
from purser.simulator.results import Run

FGD, PURSER = "fragmentation", "purser"
OTHERS = tuple(name.value for name in NodePolicy if name not in (FGD, PURSER))
"""``topology`` is not among them: nothing is known of the links in these traces, so that it is best fit."""
CLASS = "8-GPU"


class Compared(NamedTuple):
    """One order, or the mean of several."""

    label: str
    fgd: "Result"
    told: "Result"
    learnt: "Result"
    b: float
    c: float
    c_holds: bool
    """Whether Purser's policy, told or learning, fails no pod before FGD does: C is no bound for who does."""


class Result(NamedTuple):
    """What one policy comes to, in percent of all GPUs."""

    at_100: float
    at_130: float
    fragmented_at_100: float
    failed: float
    """Pods that take all GPUs of a node of eight."""
    first_failure: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, metavar="DIR", required=True, help="the published traces")
    parser.add_argument("--workloads", nargs="+", metavar="NAME", help="only these; default: all that are there")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    options = parser.parse_args()
    there = sorted(path.name for path in (options.traces / "orders").glob("*") if path.is_dir())
    workloads = options.workloads or there
    if not set(workloads) <= set(there):
        parser.error(f"{options.traces} has event orders of {', '.join(there) or 'nothing'}")
    started = perf_counter()
    runs = {name: list(replays(options.traces, name, options.jobs)) for name in workloads}
    print("\n".join([*purser_table(runs), "", *others_table(runs)]))
    total = sum(map(len, runs.values()))
    print(f"\n{total} runs, {perf_counter() - started:.0f} s", file=sys.stderr)


def replays(traces: Path, workload: str, jobs: int) -> Iterator[Run]:
    """All policies on all orders of a workload."""
    lists = read_lists(traces / "openb_node_list_gpu_node.csv", traces / f"openb_pod_list_{workload}.csv")
    orders = [read_order(path, lists) for path in sorted((traces / "orders" / workload).glob("seed*"))]
    tasks = [
        *(Task(FGD, order, bound=True) for order in orders),
        *(Task(PURSER, order, learns) for learns in (False, True) for order in orders),
        *(Task(name, order) for name in OTHERS for order in orders),
    ]
    for run in run_all(lists, tasks, jobs, lambda place, events: None):
        assert isinstance(run, Run)
        yield run


# --- Purser beside FGD


def purser_table(runs: dict[str, list[Run]]) -> Iterator[str]:
    """Lines of markdown. What is worse than under FGD is bold."""
    columns = ("workload", "seed", "FGD", "given", "learned", "failed 8-GPU pods", "B, C", "to B", "to C")
    yield f"| {' | '.join(columns)} |"
    yield "|" + "---|" * len(columns)
    for workload, found in runs.items():
        rows = compared(found)
        for row in [*rows, mean("mean", rows)]:
            yield f"| {workload} | {_row(row)} |"


def compared(runs: Sequence[Run]) -> list[Compared]:
    """By seed."""
    by_seed: dict[int, dict[tuple[str, bool], Run]] = defaultdict(dict)
    for run in runs:
        by_seed[run.seed][run.policy, run.learned] = run
    return [_compared(str(seed), found) for seed, found in sorted(by_seed.items())]


def _compared(label: str, found: dict[tuple[str, bool], Run]) -> Compared:
    fgd, told, learnt = found[FGD, False], found[PURSER, False], found[PURSER, True]
    limits = fgd.bounds
    assert isinstance(limits, Bounds)
    results = [result(run) for run in (fgd, told, learnt)]
    holds = min(results[1].first_failure, results[2].first_failure) >= results[0].first_failure
    return Compared(label, *results, limits.b_percent, limits.c_percent, holds)


def result(run: Run) -> Result:
    """What is reported of a run here."""
    first = run.first_failure_percent
    return Result(
        run.allocation_percent[100],
        run.allocation_percent[130],
        run.fragmentation_percent[100],
        run.failed.get(CLASS, 0),
        float("inf") if first is None else first,
    )


def mean(label: str, rows: Sequence[Compared]) -> Compared:
    """Over orders."""

    def of(read: Callable[[Compared], float]) -> float:
        return sum(map(read, rows)) / len(rows)

    results = [mean_result([getattr(row, who) for row in rows]) for who in ("fgd", "told", "learnt")]
    return Compared(label, *results, of(lambda row: row.b), of(lambda row: row.c), all(row.c_holds for row in rows))


def mean_result(results: Sequence[Result]) -> Result:
    """Over orders."""
    return Result(*(sum(values) / len(results) for values in zip(*results, strict=True)))


def _row(row: Compared) -> str:
    pairs = [_pair(who, row.fgd) for who in (row.fgd, row.told, row.learnt)]
    failed = " / ".join(
        _bold(f"{who.failed:.3g}", who.failed > row.fgd.failed) for who in (row.fgd, row.told, row.learnt)
    )
    to_b = f"{row.b - row.told.at_100:.2f}, {row.b - row.learnt.at_100:.2f}"
    to_c = f"{row.c - row.told.at_130:.2f}, {row.c - row.learnt.at_130:.2f}"
    limits = f"{row.b:.2f}, {row.c:.2f}{'' if row.c_holds else '*'}"
    return " | ".join([row.label, *pairs, failed, limits, to_b, to_c])


def _pair(found: Result, fgd: Result) -> str:
    return " / ".join(
        _bold(f"{value:.2f}", value < least)
        for value, least in ((found.at_100, fgd.at_100), (found.at_130, fgd.at_130))
    )


def _bold(text: str, is_worse: bool) -> str:
    return f"**{text}**" if is_worse else text


# --- the others beside what is published of them


def others_table(runs: dict[str, list[Run]]) -> Iterator[str]:
    """Lines of markdown: a policy's mean, and the published one where there is one."""
    yield "| workload | policy | at 100 / 130 % | published | fragmented at 100 % | published |"
    yield "|---|---|---|---|---|---|"
    for workload, found in runs.items():
        for name in (*OTHERS, FGD, PURSER):
            own = mean_result([result(run) for run in found if run.policy == name and not run.learned])
            allocated = published.mean_allocation(workload, name)
            fragments = published.mean_fragmentation(workload, name)
            yield (
                f"| {workload} | {name} | {own.at_100:.2f} / {own.at_130:.2f} | {_published(allocated)} "
                f"| {own.fragmented_at_100:.2f} | {_published(fragments)} |"
            )


def _published(values: Sequence[float]) -> str:
    return " / ".join(f"{value:.2f}" for value in values)


if __name__ == "__main__":
    main()
