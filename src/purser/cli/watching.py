"""``--watch`` of `purser get`: the table, and from then on each row again when it has changed."""

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from purser.adapters.snapshot import read_objects
from purser.cli.output import Column, OutputFormat, has_colours, row_cells, shown_columns, table_line
from purser.kube import Client, Informer
from purser.kube.errors import first_error
from purser.kube.objects import Node, Pod
from purser.kube.resources import NODES, PODS

Row = TypeVar("Row")

_COALESCE_S = 0.3
"""Changes within this time are shown as one: a pod's start is several."""


async def watch_rows(
    client: Client,
    selector: str | None,
    rows_of: Callable[[Iterable[Node], Iterable[Pod]], tuple[list[Row], list[Column[Row]]]],
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
        await _follow(nodes, pods, changed, rows_of, output, headers=headers)
    except BaseExceptionGroup as errors:
        raise first_error(errors) from None


async def _follow(
    nodes: Informer[Node],
    pods: Informer[Pod],
    changed: asyncio.Event,
    rows_of: Callable[[Iterable[Node], Iterable[Pod]], tuple[list[Row], list[Column[Row]]]],
    output: OutputFormat,
    *,
    headers: bool,
) -> None:
    seen: set[tuple[str, ...]] = set()
    widths: list[int] = []
    async with asyncio.TaskGroup() as group:
        for running in (nodes.run(), pods.run()):
            group.create_task(running)
        await nodes.synced()
        await pods.synced()
        while True:
            changed.clear()
            rows, columns_shown = rows_of(nodes.store.values(), pods.store.values())
            columns = shown_columns(columns_shown, output)
            heads, lines = [each.head for each in columns], [row_cells(row, columns) for row in rows]
            needed = [max(map(len, each)) for each in zip(heads, *lines, strict=True)]
            if lines and not widths and headers:
                print(table_line(heads, columns, needed, colours=False), flush=True)
            if lines:
                widths = [*map(max, needed, widths or needed)]
            for line in lines:
                if tuple(line) not in seen:
                    print(table_line(line, columns, widths, colours=has_colours()), flush=True)
            seen = set(map(tuple, lines))
            await changed.wait()
            await asyncio.sleep(_COALESCE_S)
