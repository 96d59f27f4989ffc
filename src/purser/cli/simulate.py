"""`purser simulate`: policies on a list of nodes and pods."""

import math
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from purser.cli.cluster_source import FromFile, ask_cluster, objects_of_file
from purser.cli.output import MISUSED, DocumentFormat, OutputFormat, dump, fail, is_writable, os_error_text, write_text
from purser.cli.progress_bars import progress_bars
from purser.cli.simulate_table import print_table

if TYPE_CHECKING:
    from purser.simulator.parallel import Task
    from purser.simulator.results import AnyRun
    from purser.simulator.workload import Order, SimWorkload

HELP = """Compare placement policies on a list of nodes and pods, with the scheduler's own code.

The list comes from two CSV files with the columns of the openb traces (--nodes, --pods), from a YAML file (--workload),
from a running cluster (--cluster), from a file that purser snapshot wrote (--from), or from a demonstration that ships
with Purser (--demo). Pods arrive one by one, in an order drawn from each --seed or read from each --order, until they
have requested --load percent of all GPUs. Each pod is tried once. With --departures, pods instead arrive and leave at
the times in the list, and wait if they do not fit.

A policy is a name (fragmentation), several names with weights (fragmentation=3,spread=1), or a policy for nodes and a
policy for the GPUs on a node (best-fit/spread). Percentages refer to all GPUs.

\b
Examples:
  purser simulate --demo
  purser simulate --demo --departures --report report.html
  purser simulate --nodes nodes.csv --pods pods.csv --policy fragmentation --policy best-fit --seed 1 --seed 2
  purser simulate --nodes nodes.csv --pods pods.csv --order seed42.txt.gz --bound -o json
  purser simulate --demo --policy purser --decision-log demo.log
  purser simulate --cluster --kubeconfig ~/.kube/config --report report.html
  purser simulate --from cluster.json.gz

Exit code: 0 all runs finished; 1 the cluster did not answer, or a run failed; 2 wrong usage, or a kubeconfig or file
that cannot be used.
"""


class SimulationFormat(StrEnum):
    """Value of ``-o``."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"


class MixKnowledge(StrEnum):
    """Value of ``--mix``."""

    KNOWN = "known"
    LEARNED = "learned"


def simulate(
    demo: Annotated[bool, typer.Option("--demo", help="Simulate the workload that ships with Purser.")] = False,
    nodes: Annotated[Path | None, typer.Option(help="File with nodes in openb CSV format, plain or gzipped.")] = None,
    pods: Annotated[Path | None, typer.Option(help="File with pods in openb CSV format, plain or gzipped.")] = None,
    workload: Annotated[Path | None, typer.Option(help="YAML file with nodes and pods.")] = None,
    cluster: Annotated[bool, typer.Option("--cluster", help="Use the nodes and pods of a running cluster.")] = False,
    from_: FromFile = None,
    kubeconfig: Annotated[Path | None, typer.Option(help="With --cluster: path of the kubeconfig.")] = None,
    context: Annotated[str | None, typer.Option(help="With --cluster: context in the kubeconfig.")] = None,
    policy: Annotated[list[str] | None, typer.Option(help="Policy to simulate. May be repeated. Default: all.")] = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="Seed for the order of pods. May be repeated. Default: 42.")
    ] = None,
    order: Annotated[
        list[Path] | None, typer.Option(help="Read the order of pods from this file. May be repeated.", metavar="FILE")
    ] = None,
    load: Annotated[
        float | None,
        typer.Option(
            min=1,
            max=1000,
            help="Total that pods request, in percent of all GPUs. Default: 130; with --departures, as in the list.",
        ),
    ] = None,
    departures: Annotated[
        bool, typer.Option("--departures", help="Pods arrive and leave at the times in the list.")
    ] = False,
    mix: Annotated[
        MixKnowledge,
        typer.Option(help="Whether policies know the mix of pods in advance, or learn it from arriving pods."),
    ] = MixKnowledge.KNOWN,
    bound: Annotated[
        bool, typer.Option("--bound", help="Compute an upper bound on what any policy can allocate. Requires scipy.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Number of parallel processes. Default: as many as speed up the simulation."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a report with plots to this HTML file. Requires matplotlib.")
    ] = None,
    decision_log: Annotated[
        Path | None,
        typer.Option(
            help="Log each decision and its inputs to this file, for purser replay. Requires one --policy, one order.",
            metavar="FILE",
        ),
    ] = None,
    output: Annotated[SimulationFormat, typer.Option("--output", "-o", help="Output format.")] = SimulationFormat.TABLE,
) -> None:
    """Simulate, print, report."""
    from purser.simulator import bounds
    from purser.simulator.report import html

    _check_one_source(demo, nodes, pods, workload, cluster, from_)
    if bound and not bounds.has_solver():
        fail(bounds.NEEDS_SCIPY, MISUSED)
    if report is not None and not html.has_matplotlib():
        fail(html.NEEDS_MATPLOTLIB, MISUSED)
    if departures and (order or bound):
        fail("--departures cannot be used with --order or --bound, because the times come from the list", MISUSED)
    if load is not None and not math.isfinite(load):
        fail(f"invalid value {load} for --load: must be a percentage from 1 to 1000", MISUSED)
    if report is not None and not is_writable(report):
        fail(f"cannot write --report {report}: use a file in a writable folder", MISUSED)
    if decision_log is not None and not is_writable(decision_log):
        fail(f"cannot write --decision-log {decision_log}: use a file in a writable folder", MISUSED)
    if load is not None and order:
        fail("--load cannot be used with --order, because only randomly drawn orders have a load", MISUSED)
    if kubeconfig is not None and not cluster:
        fail("--kubeconfig requires --cluster", MISUSED)
    read = _read(demo, nodes, pods, workload, from_, kubeconfig, context)
    orders = _orders(read, seed, order, load, departures)
    tasks = _tasks(policy or _all_policies(), orders, mix is MixKnowledge.LEARNED, bound)
    if decision_log is not None:
        tasks = _with_decision_logs(tasks, decision_log)
    runs = _run(read, tasks, jobs)
    _print(read, runs, output)
    _print_omissions(orders)
    if report is not None:
        write_text(report, html.report(read, runs))


def _check_one_source(
    demo: bool, nodes: Path | None, pods: Path | None, workload: Path | None, cluster: bool, from_: Path | None
) -> None:
    if (nodes is None) is not (pods is None):
        fail("--nodes and --pods must be used together", MISUSED)
    if sum((demo, nodes is not None, workload is not None, cluster, from_ is not None)) != 1:
        fail(
            "exactly one of --demo, --nodes with --pods, --workload, --cluster and --from is required (see --help)",
            MISUSED,
        )


def _read(
    demo: bool,
    nodes: Path | None,
    pods: Path | None,
    path: Path | None,
    from_: Path | None,
    kubeconfig: Path | None,
    context: str | None,
) -> "SimWorkload":
    from purser.simulator import demo as demonstration
    from purser.simulator.openb import read_lists
    from purser.simulator.problems import InputError
    from purser.simulator.yamlfile import read_workload

    try:
        if demo:
            return demonstration.workload()
        if path is not None:
            return read_workload(path)
        if nodes is not None and pods is not None:
            return read_lists(nodes, pods)
    except InputError as error:
        _refuse(error.lines())
    return _read_cluster(kubeconfig, context) if from_ is None else _read_file(from_)


def _read_file(path: Path) -> "SimWorkload":
    from purser.core.decoding import brief
    from purser.kube.pods import is_terminal
    from purser.simulator.cluster import NothingToSimulate, workload_of

    objects = objects_of_file(path)
    try:
        found = workload_of(objects.nodes, [pod for pod in objects.pods if not is_terminal(pod)])
    except NothingToSimulate as error:
        fail(f"--from {path}: {error}", MISUSED)
    for note in (*objects.problems, *found.notes):
        print(f"purser: {brief(note, 2000)}", file=sys.stderr)
    return found


def _read_cluster(kubeconfig: Path | None, context: str | None) -> "SimWorkload":
    from purser.cli.serving import LogLevel, configure_logs
    from purser.simulator.cluster import NothingToSimulate, read_cluster

    configure_logs(LogLevel.WARNING)
    try:
        found = ask_cluster(kubeconfig, context, read_cluster)
    except NothingToSimulate as error:
        fail(str(error), MISUSED)
    for note in found.notes:
        print(f"purser: {note}", file=sys.stderr)
    return found


def _refuse(lines: Any) -> None:
    for line in lines:
        print(f"purser: {line}", file=sys.stderr)
    raise typer.Exit(MISUSED)


def _orders(
    read: "SimWorkload", seeds: list[int] | None, files: list[Path] | None, load: float | None, departures: bool
) -> "list[Order]":
    from purser.simulator.orders import draw_order, read_order, timed_order
    from purser.simulator.problems import InputError

    try:
        if files:
            return [read_order(path, read, seed) for path in files for seed in _seeds_of_files(seeds)]
    except InputError as error:
        _refuse(error.lines())
    if departures:
        if not read.has_times:
            fail("--departures requires a list with each pod's arrival time and run time", MISUSED)
        return [timed_order(read, seed, load) for seed in seeds or [42]]
    return [draw_order(read, seed, load or 130) for seed in seeds or [42]]


def _seeds_of_files(seeds: list[int] | None) -> "Sequence[int | None]":
    return seeds or (None,)


def _tasks(policies: Sequence[str], orders: "list[Order]", learns: bool, bound: bool) -> "list[Task]":
    from purser.simulator.parallel import FRAGMENTATION, Task

    names = list(dict.fromkeys(policies))
    # The bounds of an order are the same for all policies; on FGD's own run one more run of it is spared.
    bounded_policy = FRAGMENTATION if FRAGMENTATION in names else names[0]
    return [Task(name, order, learns, bound and name == bounded_policy) for name in names for order in orders]


def _with_decision_logs(tasks: "list[Task]", path: Path) -> "list[Task]":
    import msgspec

    if len(tasks) != 1:
        fail(f"--decision-log logs only one run, not {len(tasks)}: use one --policy and one order", MISUSED)
    return [msgspec.structs.replace(tasks[0], log=str(path))]


def _all_policies() -> list[str]:
    from purser.core.model import NodePolicy

    return [policy.value for policy in NodePolicy]


def _run(read: "SimWorkload", tasks: "list[Task]", jobs: int | None) -> "list[AnyRun]":
    from purser.cli.kernels import choose_kernels
    from purser.simulator.bounds import SolverError
    from purser.simulator.parallel import LostProcess, fitting_jobs, run_all

    choose_kernels()
    try:
        with progress_bars() as bars:
            shown = [bars.add_task(f"{task.policy}, {task.order.label}", total=len(task.order.pods)) for task in tasks]
            return run_all(
                read,
                tasks,
                jobs or fitting_jobs(tasks),
                lambda place, events: bars.update(shown[place], completed=events),
            )
    except ValueError as error:
        fail(str(error), MISUSED)
    except (LostProcess, SolverError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot write the decision log: {os_error_text(error)}")
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _print(read: "SimWorkload", runs: "list[AnyRun]", output: SimulationFormat) -> None:
    from purser.simulator.report.document import as_csv, document

    if output is SimulationFormat.CSV:
        print(as_csv(runs), end="")
    elif output in (SimulationFormat.JSON, SimulationFormat.YAML):
        dump(document(read, runs), DocumentFormat(output.value))
    else:
        print_table(document(read, runs), OutputFormat(output.value))


def _print_omissions(orders: "list[Order]") -> None:
    from purser.core.wording import counted

    for order in orders:
        if order.left_out:
            pods, verb = counted(order.left_out, "pod"), "is" if order.left_out == 1 else "are"
            print(
                f"purser: {order.label}: {pods} in the list, chosen at random, {verb} left out because "
                "all pods together request more than --load",
                file=sys.stderr,
            )
