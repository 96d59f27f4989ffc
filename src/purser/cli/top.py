"""`purser top`: nodes, GPUs, pods and what waits, live in a terminal or once."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from purser.cli.cluster_source import objects_of_cluster
from purser.cli.options import Context, Kubeconfig
from purser.cli.output import MISUSED, Column, DocumentFormat, OutputFormat, dump, fail, print_table
from purser.cli.read_api import (
    SchedulerCa,
    SchedulerNamespace,
    SchedulerTokenFile,
    SchedulerUrl,
    read_api_of,
    read_state,
    refuse_both_sources,
    refuse_namespace_alone,
)
from purser.top.view_names import TITLES, TopView

if TYPE_CHECKING:
    from purser.core.state import ClusterState
    from purser.top.asking import ReadApi
    from purser.top.source import StateSource

HELP = """Show nodes, GPUs, the pods that hold GPUs, and the pods that wait and why, updated live.

Keys: Tab switches the view, the arrow keys or j and k select a row, Enter shows the row's details (for a waiting pod,
the reasons), / searches, s sorts, ? lists all keys, q quits. With --once, the command prints the nodes and the waiting
pods, or one view, and exits.

The command only reads the cluster and only needs permission to list and watch pods and nodes. It also works in clusters
that do not use Purser's scheduler. With --scheduler, the command queries the read API of Purser's scheduler instead
(see "Read API" in the documentation). If you add --namespace, permission to list the pods in that namespace is enough.

Exit code: 0 you quit, or the output was printed; 1 the cluster did not answer; 2 wrong usage, such as no terminal
without --once, or a kubeconfig that cannot be used.

Example: purser top

Example: purser top --once -o json

Example: purser top --scheduler https://localhost:8445 --token-file token --certificate-authority ca.crt
"""


def top(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    view: Annotated[
        TopView | None, typer.Option("--view", help="View to show first. With --once, the only view to print.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit.")] = False,
    output: Annotated[
        OutputFormat | None, typer.Option("--output", "-o", help="With --once: output format. Default: table.")
    ] = None,
    namespace: SchedulerNamespace = None,
    scheduler: SchedulerUrl = None,
    token_file: SchedulerTokenFile = None,
    certificate_authority: SchedulerCa = None,
) -> None:
    """Show it."""
    api = read_api_of(scheduler, token_file, certificate_authority, namespace)
    refuse_namespace_alone(namespace, scheduler)
    refuse_both_sources(scheduler, kubeconfig, context)
    if output is not None and not once:
        fail("--output requires --once", MISUSED)
    from purser.cli.kernels import choose_kernels

    choose_kernels("numpy")  # importing numba takes longer than it saves
    if once:
        _print(_read_once(kubeconfig, context, api), view, output or OutputFormat.TABLE)
    else:
        _watch(kubeconfig, context, api, view or TopView.NODES)


def _read_once(kubeconfig: Path | None, context: str | None, api: "ReadApi | None") -> "ClusterState":
    import gc

    from purser.cli.serving import LogLevel, configure_logs

    configure_logs(LogLevel.ERROR)
    if api is not None:
        return read_state(api)

    from purser.scheduler.explaining import Overview

    objects = objects_of_cluster(kubeconfig, context)
    gc.disable()  # what is made here stays until the command ends
    return Overview(objects).complete()


def _print(state: "ClusterState", view: TopView | None, output: OutputFormat) -> None:
    import time

    import msgspec

    if output in (OutputFormat.JSON, OutputFormat.YAML):
        document: Any = msgspec.to_builtins(state)
        if view is not None:
            document = document[_FIELDS[view]]
        dump(document, DocumentFormat(output.value))
        return
    from purser.top.views import columns_of, rows_of_view, summary

    for note in state.notes:
        print(f"purser: {_line(note)}", file=sys.stderr)
    now = time.time()
    if view is None:
        print(summary(state))
    for each in (TopView.NODES, TopView.WAITING) if view is None else (view,):
        if view is None:
            print(f"\n{TITLES[each]}")
        columns = [Column(c.head, c.read, c.wide) for c in columns_of(each, now)]
        rows = sorted((subject for _, subject in rows_of_view(each, state)), key=columns_of(each, now)[0].key)
        print_table(rows, columns, output)


_FIELDS = {TopView.NODES: "nodes", TopView.GPUS: "nodes", TopView.PODS: "grants", TopView.WAITING: "waiting"}
"""Of the document."""


def _line(text: str) -> str:
    from purser.core.decoding import brief

    return brief(text, 2000)


def _watch(kubeconfig: Path | None, context: str | None, api: "ReadApi | None", view: TopView) -> None:
    import asyncio
    import os

    from purser.cli.serving import LogLevel, configure_logs
    from purser.kube import Client, ClusterConfig, ConfigError, KubeError, SystemClock
    from purser.top.running import Top
    from purser.top.terminal import Terminal, TerminalError

    async def show(terminal: Terminal) -> None:
        clock = SystemClock()
        if api is not None:
            from purser.top.asking import PolledScheduler, StateReader

            async with StateReader(api) as reader:
                await run(PolledScheduler(reader, api, clock, waits=True), terminal)
            return
        from purser.cli.why_text import explanation_lines
        from purser.top.following import FollowedCluster

        async with Client(ClusterConfig.load(kubeconfig, context), user_agent="purser") as client:
            await run(FollowedCluster(client, clock, lambda found: list(explanation_lines(found))), terminal)

    async def run(source: "StateSource", terminal: Terminal) -> None:
        with terminal:
            await Top(source, terminal, SystemClock(), view).run()

    try:
        terminal = Terminal(_descriptor(sys.stdin), _descriptor(sys.stdout), os.environ, _encoding())
        with _captured_stderr():
            configure_logs(LogLevel.ERROR)
            asyncio.run(show(terminal))
    except (ConfigError, TerminalError) as error:
        fail(str(error), MISUSED)
    except KubeError as error:
        fail(str(error))


def _descriptor(file: "TextIO | None") -> int:
    """-1 where there is none."""
    try:
        return -1 if file is None else file.fileno()
    except (OSError, ValueError):
        return -1


def _encoding() -> str:
    return (sys.stdout and sys.stdout.encoding) or "utf-8"


_MAX_STDERR_LINES = 20
"""Lines of the log that are printed at the end."""


@contextmanager
def _captured_stderr() -> Iterator[None]:
    """What is logged meanwhile, where it would go to the terminal: the last of it is printed afterwards."""
    from collections import deque
    from io import TextIOBase

    class CapturedStderr(TextIOBase):
        def __init__(self) -> None:
            self.lines: deque[str] = deque(maxlen=_MAX_STDERR_LINES)

        def write(self, text: str) -> int:
            self.lines.extend(_line(line) for line in text.splitlines() if line.strip())
            return len(text)

    before = sys.stderr
    if before is None or not before.isatty():
        yield
        return
    stderr = CapturedStderr()
    sys.stderr = stderr
    try:
        yield
    finally:
        sys.stderr = before
        for line in stderr.lines:
            print(line, file=before)
