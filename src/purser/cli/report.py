"""`purser report usage`: GPU-hours by namespace."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from purser.cli.groups import CommandGroup
from purser.cli.options import OutputOption
from purser.cli.output import Column, DocumentFormat, OutputFormat, dump, fail, print_table
from purser.cli.prometheus import prometheus_at, seconds_of, token_of

if TYPE_CHECKING:
    from purser.usage import UsageReport

_HELP = """Report how GPUs were used, from the metrics in Prometheus.

Example: purser report usage --since 7d --prometheus http://prometheus.monitoring:9090
"""

USAGE_HELP = """Report GPU-hours by namespace: granted, used, busy.

GRANTED counts the GPU-hours that pods held. A share counts in proportion to the GPU memory that it holds. USED counts
the part of this memory that the pods' processes used, and BUSY the compute that they used. Granted hours and hours that
were not granted add up to the hours of all GPUs. Prometheus must scrape Purser's metrics, for example with the chart's
PodMonitor.

Exit code: 0 the report is shown; 1 Prometheus did not answer, or has no metrics for that time; 2 wrong usage.

\b
Examples:
  purser report usage --since 7d --prometheus http://prometheus.monitoring:9090
  purser report usage --since 30d -o json
"""

app = typer.Typer(cls=CommandGroup, name="report", help=_HELP, no_args_is_help=True, rich_markup_mode=None)

_NOT_GRANTED_ROW, _FOREIGN_ROW, _TOTAL_ROW = "(not granted)", "(foreign processes)", "(total)"
"""Rows below the namespaces; no namespace can be called so."""


@app.callback()
def group() -> None:
    """Has a group of one command stay a group."""


@app.command("usage", help=USAGE_HELP)
def usage(
    since: Annotated[str, typer.Option(help="How far back to report, such as 30m, 12h, 7d or 4w.")] = "7d",
    prometheus: Annotated[
        str, typer.Option(help="URL of Prometheus.", envvar="PROMETHEUS_URL")
    ] = "http://localhost:9090",
    token_file: Annotated[Path | None, typer.Option(help="File that holds a bearer token for Prometheus.")] = None,
    selector: Annotated[str, typer.Option(help='Label matchers that select this cluster, such as cluster="a".')] = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print the report."""
    import asyncio
    import time

    from purser.usage import PrometheusError, UsageReport, read_usage

    seconds = seconds_of(since)
    server = prometheus_at(prometheus, token_of(token_file), selector)

    async def ask() -> UsageReport:
        async with server:
            return await read_usage(server, seconds, time.time(), selector)

    try:
        report = asyncio.run(ask())
    except PrometheusError as error:
        fail(str(error))
    if not report.covered_s:
        fail(
            f"{prometheus} has no purser_cluster_gpus metric for the last {since}: check that it scrapes Purser's "
            "scheduler"
        )
    _print(report, output)


def _print(report: "UsageReport", output: OutputFormat) -> None:
    import sys

    import msgspec

    from purser.usage import NamespaceUsage

    if output in (OutputFormat.JSON, OutputFormat.YAML):
        dump({**msgspec.to_builtins(report), "not_granted": report.not_granted}, DocumentFormat(output.value))
        return
    rows = list(report.namespaces)
    used, busy = sum(each.used for each in rows), sum(each.busy for each in rows)
    rows.append(NamespaceUsage(_NOT_GRANTED_ROW, report.not_granted, 0.0, 0.0))
    rows.append(NamespaceUsage(_FOREIGN_ROW, 0.0, report.foreign, 0.0))
    rows.append(NamespaceUsage(_TOTAL_ROW, report.total, used + report.foreign, busy))
    columns: list[Column[NamespaceUsage]] = [
        Column("NAMESPACE", lambda each: each.namespace),
        Column("GRANTED GPU-HOURS", lambda each: f"{each.granted:.2f}"),
        Column("USED GPU-HOURS", lambda each: f"{each.used:.2f}"),
        Column("BUSY GPU-HOURS", lambda each: f"{each.busy:.2f}"),
        Column("GRANTED %", lambda each: f"{100 * each.granted / report.total:.1f}" if report.total else "", wide=True),
        Column("USED OF GRANTED %", lambda each: _percent_text(each.used, each.granted), wide=True),
    ]
    if report.gap:
        print(f"purser: {report.gap}", file=sys.stderr)
    print_table(rows, columns, output)


def _percent_text(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}" if whole else ""
