"""`purser get gpus|grants|namespaces|nodes`: inventories and grants as tables."""

import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from purser.cli.choosing import (
    Model,
    Nodes,
    NoHeaders,
    Selector,
    SortBy,
    State,
    Watch,
    has_model,
    is_in_state,
    sort_rows,
)
from purser.cli.cluster_source import ask_cluster
from purser.cli.groups import PluralCommands
from purser.cli.options import Context, Kubeconfig, OutputOption
from purser.cli.output import FAILED, MISUSED, Column, OutputFormat, fail, show

if TYPE_CHECKING:
    from purser.core.fleet import Fleet
    from purser.kube import Client
    from purser.kube.objects import Node, Pod

T = TypeVar("T")


class GpuView(StrEnum):
    """Whose table `get gpus` prints in the place of Purser's own."""

    GPUSHARE = "gpushare"


app = typer.Typer(
    cls=PluralCommands,
    help="Show GPUs, grants, namespaces and nodes as the scheduler sees them.\n\nExample: purser get gpus",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_EXIT_CODES_HELP = """Exit code: 0 the list is shown; 1 the cluster did not answer, or a node that you named does not
exist or has no GPUs; 2 wrong usage, or a kubeconfig that cannot be used."""

GPUS_HELP = f"""List GPUs and how much of each GPU is held by pods.

--view gpushare prints the table of "kubectl inspect gpushare" instead, with a row per node and memory in gpushare's
unit. With -o wide, the view prints the table of "kubectl inspect gpushare -d", with the pods on each node and what they
hold.

{_EXIT_CODES_HELP}

Example: purser get gpus -o wide

Example: purser get gpus --model a100 --state free --sort-by node

Example: purser get gpus --view gpushare
"""
GRANTS_HELP = """List the GPUs that each container holds.

--check instead shows where records of who holds which GPU differ: pods that hold GPUs without a valid grant, GPUs that
were granted twice, and grants that nodes refused. -o wide also shows which component resolves each difference.

Exit code: 0 the list is shown, or with --check all records agree; 1 the cluster did not answer, a node that you named
does not exist or has no GPUs, or --check found records that differ; 2 wrong usage, or a kubeconfig that cannot be used.

Example: purser get grants -n team-a -o json

Example: purser get grants --node node-1 --sort-by -memory

Example: purser get grants --check
"""
NODES_HELP = f"""List the nodes with GPUs, with totals over each node's GPUs.

{_EXIT_CODES_HELP}

Example: purser get nodes -l topology.kubernetes.io/zone=a -o yaml
"""


NAMESPACES_HELP = """List each namespace's GPU usage, quota and number of waiting pods.

GPUS is the memory that the namespace's pods hold, expressed as a number of whole GPUs. MEMORY and CORES show held/limit
if a ResourceQuota has limits.nvidia.com/gpumem or limits.nvidia.com/gpucores.

Exit code: 0 the list is shown; 1 the cluster did not answer; 2 wrong usage, or a kubeconfig that cannot be used.

Example: purser get namespaces --sort-by -gpus
"""


@dataclass(frozen=True)
class TableOptions:
    """What commands that print a table of the cluster have in common."""

    kubeconfig: Path | None
    context: str | None
    nodes: Sequence[str]
    selector: str | None
    sort_by: str | None
    output: OutputFormat
    headers: bool
    watch: bool


@app.command("gpus", help=GPUS_HELP)
def gpus(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    node: Nodes = None,
    model: Model = None,
    state: State = None,
    selector: Selector = None,
    sort_by: SortBy = None,
    watch: Watch = False,
    no_headers: NoHeaders = False,
    view: Annotated[
        GpuView | None, typer.Option("--view", help='Print the table of "kubectl inspect gpushare" instead.')
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print the GPUs of the cluster."""
    from purser.cli import get_tables

    if view is GpuView.GPUSHARE:
        if any((node, model, state, selector, sort_by, watch, no_headers)):
            fail("--view gpushare shows all nodes and cannot be used with options that filter or sort rows", MISUSED)
        _show_gpushare(kubeconfig, context, output)
        return

    def rows(fleet: "Fleet", nodes: "Mapping[str, Node]") -> list[get_tables.GpuRow]:
        found = get_tables.gpu_rows(fleet, nodes)
        with_model = [row for row in found if has_model(row.state.device.model, model)]
        chosen = [row for row in with_model if not node or row.node.name in node]
        return [row for row in chosen if state is None or is_in_state(row, state)]

    options = TableOptions(kubeconfig, context, node or (), selector, sort_by, output, not no_headers, watch)
    empty = "No GPU matches." if any((node, model, state, selector)) else "No node has published GPUs."
    _present(options, rows, lambda _: get_tables.gpu_columns(), get_tables.gpu_document, empty)


@app.command("grants", help=GRANTS_HELP)
def grants(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Show only pods in this namespace.")
    ] = None,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Show pods in all namespaces, which is the default.")
    ] = False,
    node: Nodes = None,
    selector: Selector = None,
    sort_by: SortBy = None,
    watch: Watch = False,
    no_headers: NoHeaders = False,
    check: Annotated[
        bool, typer.Option("--check", help="Show where records differ, and exit with 1 if any do.")
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print the grants of the cluster."""
    from purser.cli import get_tables

    namespace = None if all_namespaces else namespace

    if check:
        if any((node, selector, sort_by, watch)):
            fail(
                "--check compares the records of all nodes and cannot be used with --watch or options that filter or "
                "sort rows",
                MISUSED,
            )
        _check(kubeconfig, context, namespace, output, headers=not no_headers)
        return

    def rows(fleet: "Fleet", nodes: "Mapping[str, Node]") -> list[get_tables.GrantRow]:
        found = [row for row in get_tables.grant_rows(fleet) if namespace in (None, row.grant.namespace)]
        chosen = [row for row in found if selector is None or row.grant.node in nodes]
        return [row for row in chosen if not node or row.grant.node in node]

    options = TableOptions(kubeconfig, context, node or (), selector, sort_by, output, not no_headers, watch)
    empty = "No grant matches." if any((namespace, node, selector)) else "No pod has a grant."
    _present(options, rows, get_tables.grant_columns, get_tables.grant_document, empty)


@app.command("nodes", help=NODES_HELP)
def nodes(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    node: Nodes = None,
    model: Model = None,
    selector: Selector = None,
    sort_by: SortBy = None,
    watch: Watch = False,
    no_headers: NoHeaders = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print the nodes of the cluster that have GPUs."""
    from purser.cli import get_tables

    def rows(fleet: "Fleet", nodes: "Mapping[str, Node]") -> list[get_tables.NodeRow]:
        found = [row for row in get_tables.node_rows(fleet, nodes) if not node or row.node.name in node]
        return [
            row for row in found if model is None or any(has_model(s.device.model, model) for s in row.node.devices)
        ]

    options = TableOptions(kubeconfig, context, node or (), selector, sort_by, output, not no_headers, watch)
    empty = "No node matches." if any((node, model, selector)) else "No node has published GPUs."
    _present(options, rows, lambda _: get_tables.node_columns(), get_tables.node_document, empty)


@app.command("namespaces", help=NAMESPACES_HELP)
def namespaces(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    sort_by: SortBy = None,
    no_headers: NoHeaders = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print the namespaces that hold GPUs, wait for GPUs or have a GPU quota."""
    from purser.adapters.snapshot import read_objects
    from purser.cli import get_tables
    from purser.kube.resource_quotas import RESOURCE_QUOTAS, ResourceQuota

    async def read(client: "Client") -> "tuple[list[Node], list[Pod], list[ResourceQuota]]":
        nodes, pods = await read_objects(client)
        return nodes, pods, (await client.list(RESOURCE_QUOTAS)).items

    nodes, pods, quotas = _ask(kubeconfig, context, read)
    fleet, _ = _fleet(nodes, pods)
    columns = get_tables.namespace_columns()
    rows = sort_rows(get_tables.namespace_rows(fleet, pods, quotas), columns, sort_by)
    empty = "No namespace holds GPUs, is waiting for GPUs, or has a GPU quota."
    show(rows, columns, output, empty=empty, document=get_tables.namespace_document, headers=not no_headers)


def _present(
    options: TableOptions,
    rows_of: "Callable[[Fleet, Mapping[str, Node]], list[T]]",
    columns_of: "Callable[[Fleet], list[Column[T]]]",
    document: Callable[[T], dict[str, Any]],
    empty: str,
) -> None:
    """Print the rows, once or again and again."""
    if options.watch:
        from purser.cli.watching import watch_rows

        if options.output not in (OutputFormat.TABLE, OutputFormat.WIDE):
            fail("--watch supports only table output: omit --output, or use -o wide", MISUSED)

        said: set[str] = set()
        is_first = True

        def chosen(nodes: "Iterable[Node]", pods: "Iterable[Pod]") -> tuple[list[T], list[Column[T]]]:
            nonlocal is_first
            fleet, by_name = _fleet(nodes, pods, said)
            if is_first:  # nodes may go while they are watched
                _check_names(options, fleet)
            is_first = False
            columns = columns_of(fleet)
            return sort_rows(rows_of(fleet, by_name), columns, options.sort_by), columns

        _ask(
            options.kubeconfig,
            options.context,
            lambda client: watch_rows(client, options.selector, chosen, options.output, headers=options.headers),
        )
        return
    fleet, by_name = _read(options)
    columns = columns_of(fleet)
    rows = sort_rows(rows_of(fleet, by_name), columns, options.sort_by)
    show(rows, columns, options.output, empty=empty, document=document, headers=options.headers)


def _check(
    kubeconfig: Path | None, context: str | None, namespace: str | None, output: OutputFormat, *, headers: bool
) -> None:
    from purser.adapters.snapshot import read_node_records
    from purser.cli.get_tables import difference_columns, difference_document
    from purser.core.grant.reconcile import differences

    found = [each for records in _ask(kubeconfig, context, read_node_records) for each in differences(records)]
    left = [each for each in found if namespace is None or not each.pod or each.pod.startswith(f"{namespace}/")]
    agree = "All records agree." if namespace is None else f"All records of namespace {namespace} agree."
    show(left, difference_columns(), output, empty=agree, document=difference_document, headers=headers)
    if left:
        raise typer.Exit(FAILED)


def _show_gpushare(kubeconfig: Path | None, context: str | None, output: OutputFormat) -> None:
    from purser.adapters.snapshot import read_gpushare, read_objects
    from purser.cli.gpushare_view import gpushare_details, gpushare_table, listed_unit_mib

    if output not in (OutputFormat.TABLE, OutputFormat.WIDE):
        fail("--view gpushare supports only table output: omit --output, or use -o wide", MISUSED)
    addresses, memory, gpus = _ask(kubeconfig, context, read_gpushare)
    fleet, _ = _fleet(*_ask(kubeconfig, context, read_objects))
    unit_mib = listed_unit_mib(memory, gpus)
    if output is OutputFormat.WIDE:
        print(gpushare_details(fleet, fleet.ledger.grants(), addresses, unit_mib))
    else:
        print(gpushare_table(fleet, addresses, unit_mib))


def _ask(kubeconfig: Path | None, context: str | None, read: "Callable[[Client], Awaitable[T]]") -> T:
    """What the API server answers; ends the command where it does not."""
    from purser.cli.serving import LogLevel, configure_logs

    configure_logs(LogLevel.WARNING)
    return ask_cluster(kubeconfig, context, read)


def _read(options: TableOptions) -> "tuple[Fleet, Mapping[str, Node]]":
    """What there is now; ends the command where a node that was named has no GPUs."""
    from purser.adapters.snapshot import read_objects

    fleet, by_name = _fleet(
        *_ask(options.kubeconfig, options.context, lambda client: read_objects(client, options.selector))
    )
    _check_names(options, fleet)
    return fleet, by_name


def _check_names(options: TableOptions, fleet: "Fleet") -> None:
    """End the command where a node that was named has no GPUs, and no pod there holds any."""
    import difflib

    there = {*(node.name for node in fleet), *(grant.node for grant in fleet.ledger.grants())}
    for name in options.nodes:
        if name not in there:
            close = difflib.get_close_matches(name, sorted(there), 1)
            hint = f". Did you mean {close[0]}?" if close else ""
            labelled = f" with labels {options.selector}" if options.selector else ""
            fail(f"node {name}{labelled} does not exist or has not published GPUs{hint}")


def _fleet(
    nodes: "Iterable[Node]", pods: "Iterable[Pod]", said: set[str] | None = None
) -> "tuple[Fleet, Mapping[str, Node]]":
    """The fleet, and the nodes by name. What cannot be read goes to standard error, unless it is in ``said``."""
    from purser.adapters.snapshot import fleet_of

    by_name = {node.metadata.name: node for node in nodes}
    fleet, problems = fleet_of(by_name.values(), pods)
    sentences = list(problems)
    if problems or any(state.disputed for node in fleet for state in node.devices):
        sentences.append("records of who holds which GPU differ: run purser get grants --check to see where")
    for sentence in sentences:
        if said is None or sentence not in said:
            print(f"purser: {sentence}", file=sys.stderr)
    if said is not None:
        said.update(sentences)
    return fleet, by_name
