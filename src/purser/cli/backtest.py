"""`purser backtest`: a cluster's past, replayed with other policies."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from purser.cli.options import OutputOption
from purser.cli.output import (
    MISUSED,
    Column,
    DocumentFormat,
    OutputFormat,
    dump,
    fail,
    is_writable,
    print_table,
    write_text,
)
from purser.cli.prometheus import prometheus_at, seconds_of, token_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from purser.backtest.comparing import Backtest
    from purser.backtest.history import History, Omissions
    from purser.backtest.reconstruction import Course, Reconstruction, ReconstructionError

HELP = """Replay a cluster's history with other policies, and compare allocation, waiting times and nodes needed.

The history comes from the scheduler's decision log (--log), from kubectl output (--dump: events, and the pods and nodes
that still exist), or from a Prometheus that scrapes kube-state-metrics (--prometheus). The command first replays the
history with the policy that the cluster used (--true-policy) and prints how much the result deviates from the source.
Differences between policies that are smaller than this error are not meaningful. The command then replays each
--policy, also with fewer and fewer nodes, removing the nodes with the fewest GPU-hours first. NODES NEEDED is the
smallest number of nodes on which pods do not wait longer than in the first replay.

\b
Examples:
  kubectl get events,pods,nodes -A -o json > past.json
  purser backtest --dump past.json --policy fragmentation --policy binpack
  purser backtest --prometheus http://prometheus.monitoring:9090 --since 7d --true-policy spread --policy purser
  purser backtest --log decisions-1.log --log decisions-2.log --policy spread
  purser backtest --log /var/log/purser --policy spread
  purser backtest --dump monday.json --dump tuesday.json -o json

Exit code: 0 the history was replayed; 1 the source did not answer; 2 wrong usage, or a source that
lacks required data.
"""


def backtest(
    dumps: Annotated[
        list[Path] | None,
        typer.Option(
            "--dump", help="File with the output of kubectl get events,pods,nodes -A -o json. May be repeated."
        ),
    ] = None,
    prometheus: Annotated[
        str | None, typer.Option(help="URL of a Prometheus server that scrapes kube-state-metrics.")
    ] = None,
    since: Annotated[str, typer.Option(help="With --prometheus: how far back to read, such as 12h, 7d or 4w.")] = "7d",
    token_file: Annotated[Path | None, typer.Option(help="File that holds a bearer token for --prometheus.")] = None,
    selector: Annotated[
        str, typer.Option(help='With --prometheus: label matchers that select this cluster, such as cluster="a".')
    ] = "",
    logs: Annotated[
        list[Path] | None,
        typer.Option("--log", help="File or folder with a scheduler's decision log. May be repeated.", metavar="FILE"),
    ] = None,
    true_policy: Annotated[
        str | None, typer.Option(help="Policy that the cluster used. Default: the policy in the log, otherwise purser.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Policy to replay. May be repeated. Default: the policy that the cluster used."),
    ] = None,
    with_nodes: Annotated[
        bool, typer.Option("--nodes-needed/--no-nodes-needed", help="Also replay with fewer and fewer nodes.")
    ] = True,
    report: Annotated[
        Path | None, typer.Option(help="Write a report with plots to this HTML file. Requires matplotlib.")
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Read, replay, print."""
    from purser.backtest.comparing import backtest as replayed_with
    from purser.backtest.reconstruction import Reconstruction
    from purser.cli.kernels import choose_kernels
    from purser.core.placement.policies import parse_policy
    from purser.simulator.report import html

    for each in (*([true_policy] if true_policy else []), *(policy or [])):
        try:
            parse_policy(each)
        except ValueError as error:
            fail(str(error), MISUSED)
    if sum((bool(dumps), prometheus is not None, bool(logs))) != 1:
        fail("exactly one of --dump, --prometheus and --log is required (see --help for examples)", MISUSED)
    if report is not None and not html.has_matplotlib():
        fail(html.NEEDS_MATPLOTLIB, MISUSED)
    if report is not None and not is_writable(report):
        fail(f"cannot write --report {report}: use a file in a writable folder", MISUSED)
    choose_kernels()
    try:
        with _Progress() as progress:
            if prometheus is not None:
                seconds, token = seconds_of(since), token_of(token_file)
                history = _query_history(prometheus, seconds, token, selector, progress.show)
            else:
                progress.show("reading the files")
                history = _read_history(dumps or [], logs or [])
            reconstruction = Reconstruction(history)
            in_force = true_policy or history.policy or "purser"
            policies = list(dict.fromkeys(policy or [in_force]))
            found = replayed_with(reconstruction, in_force, policies, with_nodes, progress.show)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if output in (OutputFormat.JSON, OutputFormat.YAML):
        dump(_document(reconstruction, found, with_nodes), DocumentFormat(output.value))
    else:
        _print(reconstruction, found, output, with_nodes)
    if report is not None:
        runs = [each.course.timed for each in found.policies if each.course.timed is not None]
        write_text(report, html.report(reconstruction.workload, runs))


def _read_history(dumps: list[Path], logs: list[Path]) -> "History":
    from purser.backtest.dump import HistoryError, read_dumps
    from purser.backtest.events import history_of_dump
    from purser.backtest.history import NothingToReplay, Omissions
    from purser.backtest.logs import history_of_logs
    from purser.cli.decision_logs import in_folders
    from purser.core.wording import some

    omissions = Omissions()
    name = some([path.name for path in (*dumps, *logs)], "file")
    try:
        if logs:
            return history_of_logs(in_folders(logs, "--log"), omissions)
        return history_of_dump(read_dumps(dumps, omissions), name, omissions)
    except HistoryError as error:
        fail(str(error), MISUSED)
    except NothingToReplay as error:
        _print_omissions(omissions)
        fail(f"{name}: {error}", MISUSED)


def _query_history(url: str, seconds: float, token: str, selector: str, tick: "Callable[[str], None]") -> "History":
    import asyncio
    import time

    from purser.backtest.history import NothingToReplay, Omissions
    from purser.backtest.metrics import HistoryTooLarge, history_of_metrics
    from purser.usage import PrometheusError

    omissions = Omissions()
    server = prometheus_at(url, token, selector)

    async def ask() -> "History":
        async with server:
            return await history_of_metrics(server, seconds, time.time(), selector, omissions, tick)

    try:
        return asyncio.run(ask())
    except PrometheusError as error:
        fail(str(error))
    except HistoryTooLarge as error:
        fail(f"{url}: {error}", MISUSED)
    except NothingToReplay as error:
        _print_omissions(omissions)
        fail(f"{url}: {error}. Check that Prometheus scrapes kube-state-metrics", MISUSED)


def _print_omissions(omissions: "Omissions") -> None:
    for each in omissions.found:
        print(f"purser: {each.what} ({each.count}, for example {each.example})", file=sys.stderr)


class _Progress:
    """What is being replayed, on a terminal and nowhere else."""

    def __init__(self) -> None:
        from rich.console import Console

        console = Console(stderr=True)
        self._status = console.status("") if console.is_terminal else None

    def __enter__(self) -> "_Progress":
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, what: str) -> None:
        """This is being read, or replayed."""
        if self._status is not None:
            self._status.update(what)


def _document(of: "Reconstruction", found: "Backtest", with_nodes: bool) -> dict[str, Any]:
    import msgspec

    from purser.core.kubernetes.times import spelled

    history = of.history
    return {
        "source": history.source,
        "begin": spelled(history.begin_s),
        "end": spelled(history.end_s),
        "hours": round(of.duration_s / 3600, 4),
        "nodes": len(history.nodes),
        "gpus": of.workload.gpus,
        "pods": len(of.pods),
        "left_out": msgspec.to_builtins(history.left_out),
        "notes": list(history.notes),
        "reconstruction": {
            "policy": found.error.policy,
            "allocation_error_points": round(found.error.allocation_points, 4),
            "moment_error_points": round(found.error.moment_points, 4),
            "waiting_error_percent": None
            if found.error.waiting_percent is None
            else round(found.error.waiting_percent, 3),
            "waited_p50_error_s": round(found.error.waited_p50_s, 3),
            "waited_p95_error_s": round(found.error.waited_p95_s, 3),
            "source": _course(of, found.source),
            "replayed": _course(of, found.replayed),
        },
        "policies": [
            {
                "policy": each.policy,
                **({"nodes_needed": each.nodes_needed} if with_nodes else {}),
                **_course(of, each.course),
            }
            for each in found.policies
        ],
        "removed_first": list(found.removed_first),
    }


def _course(of: "Reconstruction", course: "Course") -> dict[str, Any]:
    return {
        "allocation_percent": round(course.allocation_percent, 4),
        "waited_mean_s": round(course.waited_mean_s, 3),
        "waited_p50_s": round(course.waited_p50_s, 3),
        "waited_p95_s": round(course.waited_p95_s, 3),
        "waited_pods": course.waited_pods,
        "unplaced": course.unplaced,
        "curve": of.curve(course),
    }


def _print(of: "Reconstruction", found: "Backtest", output: OutputFormat, with_nodes: bool) -> None:
    from purser.core.wording import counted

    history, error = of.history, found.error
    rows: list[tuple[str, Course, str]] = [("(as it was)", found.source, str(len(history.nodes)))]
    rows += [(each.policy, each.course, _needed_text(each.nodes_needed, len(history.nodes))) for each in found.policies]
    columns: list[Column[tuple[str, Course, str]]] = [
        Column("POLICY", lambda row: row[0]),
        Column("ALLOCATED %", lambda row: f"{row[1].allocation_percent:.2f}"),
        Column("WAITED MEAN S", lambda row: f"{row[1].waited_mean_s:.1f}"),
        Column("P50 S", lambda row: f"{row[1].waited_p50_s:.1f}"),
        Column("P95 S", lambda row: f"{row[1].waited_p95_s:.1f}"),
        Column("WAITED", lambda row: str(row[1].waited_pods)),
        Column("WAIT AT END", lambda row: str(row[1].unplaced), wide=True),
        *([Column("NODES NEEDED", lambda row: row[2])] if with_nodes else []),
    ]
    print_table(rows, columns, output)
    print(f"Error of the reconstruction: {_error_sentence(error)}")
    hours = of.duration_s / 3600
    print(
        f"purser: {counted(len(of.pods), 'pod')} on {counted(len(history.nodes), 'node')} with "
        f"{counted(of.workload.gpus, 'GPU')}, {hours:.2f} hours",
        file=sys.stderr,
    )
    for each in history.left_out:
        print(f"purser: {each.what} ({each.count}, for example {each.example})", file=sys.stderr)
    for note in history.notes[:_NOTES]:
        print(f"purser: {note}", file=sys.stderr)
    if len(history.notes) > _NOTES:
        print(f"purser: {counted(len(history.notes) - _NOTES, 'more note')}; use -o json to see all", file=sys.stderr)


def _error_sentence(error: "ReconstructionError") -> str:
    mean = (
        "by an unknown amount because no pod waited"
        if error.waiting_percent is None
        else f"by {error.waiting_percent:.1f}%"
    )
    return (
        f"replayed with {error.policy}, ALLOCATED % is off by {error.allocation_points:.2f} points"
        f" ({error.moment_points:.2f} on average at any moment), P50 by {error.waited_p50_s:.1f} s,"
        f" P95 by {error.waited_p95_s:.1f} s, WAITED MEAN {mean}."
    )


_NOTES = 20


def _needed_text(nodes: int | None, of: int) -> str:
    return f"more than {of}" if nodes is None else str(nodes)
