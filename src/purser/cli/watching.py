"""``--watch`` of `purser get`: the table, and from then on each row again when it has changed."""

import asyncio
import sys
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from purser.adapters.snapshot import read_objects
from purser.cli.output import Column, OutputFormat, has_colours, row_cells, shown_columns, table_line
from purser.core.decoding import brief
from purser.core.state import ClusterState
from purser.kube import Client, Clock, Informer
from purser.kube.errors import first_error
from purser.kube.objects import Node, Pod
from purser.kube.resources import NODES, PODS
from purser.top.asking import PolledScheduler, ReadApi, StateReader

Row = TypeVar("Row")
Shown = tuple[list[Row], list[Column[Row]]]
"""Rows, and the columns that they fill."""

_COALESCE_S = 0.3
"""Changes within this time are shown as one: a pod's start is several."""


class _Printer(Generic[Row]):
    """Prints the rows that were not there the last time."""

    def __init__(self, output: OutputFormat, *, headers: bool) -> None:
        self._output, self._headers = output, headers
        self._seen: set[tuple[str, ...]] = set()
        self._widths: list[int] = []

    def print(self, rows: list[Row], all_columns: list[Column[Row]]) -> None:
        """Print them; the heads before the first."""
        columns = shown_columns(all_columns, self._output)
        heads, lines = [each.head for each in columns], [row_cells(row, columns) for row in rows]
        needed = [max(map(len, each)) for each in zip(heads, *lines, strict=True)]
        if lines and not self._widths and self._headers:
            print(table_line(heads, columns, needed, colours=False), flush=True)
        if lines:
            self._widths = [*map(max, needed, self._widths or needed)]
        for line in lines:
            if tuple(line) not in self._seen:
                print(table_line(line, columns, self._widths, colours=has_colours()), flush=True)
        self._seen = set(map(tuple, lines))


async def watch_rows(
    client: Client,
    selector: str | None,
    rows_of: Callable[[Iterable[Node], Iterable[Pod]], Shown[Row]],
    output: OutputFormat,
    *,
    headers: bool,
) -> None:
    """Print until cancelled. Raises `KubeError` where the API server does not answer the first time."""
    await read_objects(client, selector)  # informers would wait for what may not be read
    changed = asyncio.Event()
    nodes = Informer(client, NODES, label_selector=selector)
    pods = Informer(client, PODS)
    for informer in (nodes, pods):
        informer.add_handler(
            on_add=lambda _: changed.set(),
            on_update=lambda _, __: changed.set(),
            on_delete=lambda _: changed.set(),
        )
    try:
        await _follow(nodes, pods, changed, rows_of, _Printer(output, headers=headers))
    except BaseExceptionGroup as errors:
        raise first_error(errors) from None


async def watch_scheduler(
    api: ReadApi, clock: Clock, rows_of: Callable[[ClusterState], Shown[Row]], output: OutputFormat, *, headers: bool
) -> None:
    """The same of the scheduler's read API; what is wrong later on is said on standard error. Raises `ConfigError` as
    well."""
    printer = _Printer[Row](output, headers=headers)
    async with StateReader(api) as reader:
        source = PolledScheduler(reader, api, clock, waits=True)
        last: ClusterState | None = None

        def show() -> None:
            nonlocal last
            if source.problem:
                print(f"purser: {brief(source.problem, 2000)}", file=sys.stderr, flush=True)
            if source.state is not None and source.state is not last:
                printer.print(*rows_of(source.state))
            last = source.state

        await source.run(show)


async def _follow(
    nodes: Informer[Node],
    pods: Informer[Pod],
    changed: asyncio.Event,
    rows_of: Callable[[Iterable[Node], Iterable[Pod]], Shown[Row]],
    printer: _Printer[Row],
) -> None:
    async with asyncio.TaskGroup() as group:
        for running in (nodes.run(), pods.run()):
            group.create_task(running)
        await nodes.synced()
        await pods.synced()
        while True:
            changed.clear()
            printer.print(*rows_of(nodes.store.values(), pods.store.values()))
            await changed.wait()
            await asyncio.sleep(_COALESCE_S)
