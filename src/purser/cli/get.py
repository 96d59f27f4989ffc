"""`purser get gpus|grants|namespaces|nodes`: inventories and grants as tables."""

from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from purser.cli.choosing import (
    Model,
    Nodes,
    NoHeaders,
    Selector,
    SortBy,
    State,
    TableOptions,
    has_model,
    is_in_state,
    sort_rows,
)
from purser.cli.cluster_source import answer_of
from purser.cli.get_sources import GetSource, SourceView, ask, ask_state, read_shown, source_of
from purser.cli.groups import PluralCommands
from purser.cli.option_groups import grouped
from purser.cli.options import ClusterOptions, OutputOption
from purser.cli.output import FAILED, MISUSED, Column, OutputFormat, fail, show
from purser.cli.read_api import SchedulerNamespace, SchedulerOptions, refuse_namespace_alone

if TYPE_CHECKING:
    from purser.cli.get_tables import NamespaceRow
    from purser.cli.shown_cluster import ShownCluster
    from purser.kube import Client
    from purser.kube.objects import Node, Pod
    from purser.top.asking import ReadApi

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

_SCHEDULER_HELP = """With --scheduler, the command queries the read API of Purser's scheduler instead (see "Read API" in
the documentation). If you add --namespace, permission to list the pods in that namespace is enough."""
_SCHEDULER_EXAMPLE = "--scheduler https://localhost:8445 --token-file token --certificate-authority ca.crt"
_UNUSABLE_HELP = "2 wrong usage, or a kubeconfig, token file or CA file that cannot be used."
_EXIT_CODES_HELP = f"""Exit code: 0 the list is shown; 1 the cluster or the scheduler did not answer, or a node that you
named does not exist or has no GPUs; {_UNUSABLE_HELP}"""

GPUS_HELP = f"""List GPUs and how much of each GPU is held by pods.

{_SCHEDULER_HELP} --selector and --view then cannot be used.

--view gpushare prints the table of "kubectl inspect gpushare" instead, with a row per node and memory in gpushare's
unit. With -o wide, the view prints the table of "kubectl inspect gpushare -d", with the pods on each node and what they
hold.

{_EXIT_CODES_HELP}

Example: purser get gpus -o wide

Example: purser get gpus --model a100 --state free --sort-by node

Example: purser get gpus --view gpushare

Example: purser get gpus {_SCHEDULER_EXAMPLE}
"""
GRANTS_HELP = f"""List the GPUs that each container holds.

--check instead shows where records of who holds which GPU differ: pods that hold GPUs without a valid grant, GPUs that
were granted twice, and grants that nodes refused. -o wide also shows which component resolves each difference.

{_SCHEDULER_HELP} --selector and --check then cannot be used.

Exit code: 0 the list is shown, or with --check all records agree; 1 the cluster or the scheduler did not answer, a node
that you named does not exist or has no GPUs, or --check found records that differ; {_UNUSABLE_HELP}

Example: purser get grants -n team-a -o json

Example: purser get grants --node node-1 --sort-by -memory

Example: purser get grants --check
"""
NODES_HELP = f"""List the nodes with GPUs, with totals over each node's GPUs.

{_SCHEDULER_HELP} --selector then cannot be used.

{_EXIT_CODES_HELP}

Example: purser get nodes -l topology.kubernetes.io/zone=a -o yaml
"""


NAMESPACES_HELP = f"""List each namespace's GPU usage, quota and number of waiting pods.

GPUS is the memory that the namespace's pods hold, expressed as a number of whole GPUs. MEMORY and CORES show held/limit
if a ResourceQuota has limits.nvidia.com/gpumem or limits.nvidia.com/gpucores. With --scheduler, WAITING counts only the
pods of Purser's scheduler.

{_SCHEDULER_HELP}

Exit code: 0 the list is shown; 1 the cluster or the scheduler did not answer; {_UNUSABLE_HELP}

Example: purser get namespaces --sort-by -gpus
"""


@app.command("gpus", help=GPUS_HELP)
@grouped
def gpus(
    *,
    cluster: ClusterOptions,
    node: Nodes = None,
    model: Model = None,
    state: State = None,
    selector: Selector = None,
    table: TableOptions,
    view: Annotated[
        GpuView | None, typer.Option("--view", help='Print the table of "kubectl inspect gpushare" instead.')
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
    namespace: SchedulerNamespace = None,
    asked: SchedulerOptions,
) -> None:
    """Print the GPUs of the cluster."""
    from purser.cli import get_tables, shown_state

    refuse_namespace_alone(namespace, asked.scheduler)
    source = source_of(cluster, asked, namespace, selector=selector, nodes=node, shows_gpus=True)
    if view is GpuView.GPUSHARE:
        if any((node, model, state, selector, table.sort_by, table.watch, table.no_headers)):
            fail("--view gpushare shows all nodes and cannot be used with options that filter or sort rows", MISUSED)
        if source.api is not None:
            fail("--scheduler cannot be used with --view gpushare, which needs objects of the API server", MISUSED)
        _show_gpushare(source, output)
        return

    def rows(shown: "ShownCluster") -> list[get_tables.GpuRow]:
        found = get_tables.gpu_rows(shown)
        with_model = [row for row in found if has_model(row.state.device.model, model)]
        chosen = [row for row in with_model if not node or row.node.name in node]
        return [row for row in chosen if state is None or is_in_state(row, state)]

    empty = _nothing("GPU", source, is_chosen=any((node, model, state, selector)))
    document = get_tables.gpu_document if source.api is None else shown_state.state_gpu_document
    _present(source, table, output, rows, lambda _: get_tables.gpu_columns(), document, empty)


@app.command("grants", help=GRANTS_HELP)
@grouped
def grants(
    *,
    cluster: ClusterOptions,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Show only pods in this namespace.")
    ] = None,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Show pods in all namespaces, which is the default.")
    ] = False,
    node: Nodes = None,
    selector: Selector = None,
    table: TableOptions,
    check: Annotated[
        bool, typer.Option("--check", help="Show where records differ, and exit with 1 if any do.")
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
    asked: SchedulerOptions,
) -> None:
    """Print the grants of the cluster."""
    from purser.cli import get_tables

    namespace = None if all_namespaces else namespace
    source = source_of(cluster, asked, None if asked.scheduler is None else namespace, selector=selector, nodes=node)
    if check:
        if any((node, selector, table.sort_by, table.watch)):
            fail(
                "--check compares the records of all nodes and cannot be used with --watch or options that filter or "
                "sort rows",
                MISUSED,
            )
        if source.api is not None:
            fail("--scheduler cannot be used with --check, which compares objects of the API server", MISUSED)
        _check(source, namespace, output, headers=not table.no_headers)
        return

    def rows(shown: "ShownCluster") -> list[get_tables.GrantRow]:
        found = [row for row in get_tables.grant_rows(shown) if namespace in (None, row.grant.namespace)]
        chosen = [row for row in found if selector is None or row.grant.node in shown.status]
        return [row for row in chosen if not node or row.grant.node in node]

    empty = "No grant matches." if any((namespace, node, selector)) else "No pod has a grant."
    _present(source, table, output, rows, get_tables.grant_columns, get_tables.grant_document, empty)


@app.command("nodes", help=NODES_HELP)
@grouped
def nodes(
    *,
    cluster: ClusterOptions,
    node: Nodes = None,
    model: Model = None,
    selector: Selector = None,
    table: TableOptions,
    output: OutputOption = OutputFormat.TABLE,
    namespace: SchedulerNamespace = None,
    asked: SchedulerOptions,
) -> None:
    """Print the nodes of the cluster that have GPUs."""
    from purser.cli import get_tables, shown_state

    def rows(shown: "ShownCluster") -> list[get_tables.NodeRow]:
        found = [row for row in get_tables.node_rows(shown) if not node or row.node.name in node]
        return [
            row for row in found if model is None or any(has_model(s.device.model, model) for s in row.node.devices)
        ]

    refuse_namespace_alone(namespace, asked.scheduler)
    source = source_of(cluster, asked, namespace, selector=selector, nodes=node, shows_gpus=True)
    empty = _nothing("node", source, is_chosen=any((node, model, selector)))
    document = get_tables.node_document if source.api is None else shown_state.state_node_document
    _present(source, table, output, rows, lambda _: get_tables.node_columns(), document, empty)


@app.command("namespaces", help=NAMESPACES_HELP)
@grouped
def namespaces(
    *,
    cluster: ClusterOptions,
    sort_by: SortBy = None,
    no_headers: NoHeaders = False,
    output: OutputOption = OutputFormat.TABLE,
    namespace: SchedulerNamespace = None,
    asked: SchedulerOptions,
) -> None:
    """Print the namespaces that hold GPUs, wait for GPUs or have a GPU quota."""
    from purser.cli import get_tables

    refuse_namespace_alone(namespace, asked.scheduler)
    source = source_of(cluster, asked, namespace)
    columns, document = get_tables.namespace_columns(), get_tables.namespace_document
    found = _namespace_rows(source) if source.api is None else _namespace_rows_of_state(source, source.api)
    rows = sort_rows(found, columns, sort_by)
    empty = "No namespace holds GPUs, is waiting for GPUs, or has a GPU quota."
    show(rows, columns, output, empty=empty, document=document, headers=not no_headers)


def _namespace_rows(source: GetSource) -> "list[NamespaceRow]":
    from purser.adapters.snapshot import read_objects
    from purser.cli.get_tables import limits_by_namespace, namespace_rows, waiting_by_namespace
    from purser.kube.resource_quotas import RESOURCE_QUOTAS, ResourceQuota

    async def read(client: "Client") -> "tuple[list[Node], list[Pod], list[ResourceQuota]]":
        nodes, pods = await read_objects(client)
        return nodes, pods, (await client.list(RESOURCE_QUOTAS)).items

    nodes, pods, quotas = ask(source, read)
    shown = SourceView(source).of_objects(nodes, pods)
    return namespace_rows(shown, waiting_by_namespace(pods), limits_by_namespace(quotas))


def _namespace_rows_of_state(source: GetSource, api: "ReadApi") -> "list[NamespaceRow]":
    from purser.cli.get_tables import namespace_rows
    from purser.cli.shown_state import limits_of_state

    state = ask_state(api)
    waiting = Counter(each.namespace for each in state.waiting)
    return namespace_rows(SourceView(source).of_state(state), waiting, limits_of_state(state))


def _nothing(what: str, source: GetSource, *, is_chosen: bool) -> str:
    """What is said where no GPU or node is shown. ``is_chosen``: whether options choose some of them."""
    shown = " shown to you" if source.api is not None and source.api.namespace else ""
    return f"No {what}{shown} matches." if is_chosen else f"No node{shown} has published GPUs."


def _present(
    source: GetSource,
    table: TableOptions,
    output: OutputFormat,
    rows_of: "Callable[[ShownCluster], list[T]]",
    columns_of: "Callable[[ShownCluster], list[Column[T]]]",
    document: Callable[[T], dict[str, Any]],
    empty: str,
) -> None:
    """Print the rows, once or again and again."""

    def shown(cluster: "ShownCluster") -> tuple[list[T], list[Column[T]]]:
        columns = columns_of(cluster)
        return sort_rows(rows_of(cluster), columns, table.sort_by), columns

    if table.watch:
        _watch(source, output, shown, headers=not table.no_headers)
        return
    rows, columns = shown(read_shown(source))
    show(rows, columns, output, empty=empty, document=document, headers=not table.no_headers)


def _watch(
    source: GetSource,
    output: OutputFormat,
    shown: "Callable[[ShownCluster], tuple[list[T], list[Column[T]]]]",
    *,
    headers: bool,
) -> None:
    from purser.cli.watching import watch_rows, watch_scheduler
    from purser.kube import SystemClock

    if output not in (OutputFormat.TABLE, OutputFormat.WIDE):
        fail("--watch supports only table output: omit --output, or use -o wide", MISUSED)
    view = SourceView(source)
    if source.api is not None:
        answer_of(
            watch_scheduler(
                source.api, SystemClock(), lambda state: shown(view.of_state(state)), output, headers=headers
            )
        )
        return
    ask(
        source,
        lambda client: watch_rows(
            client,
            source.selector,
            lambda nodes, pods: shown(view.of_objects(nodes, pods)),
            output,
            headers=headers,
        ),
    )


def _check(source: GetSource, namespace: str | None, output: OutputFormat, *, headers: bool) -> None:
    from purser.adapters.snapshot import read_node_records
    from purser.cli.get_tables import difference_columns, difference_document
    from purser.core.grant.reconcile import differences

    found = [each for records in ask(source, read_node_records) for each in differences(records)]
    left = [each for each in found if namespace is None or not each.pod or each.pod.startswith(f"{namespace}/")]
    no_differences_text = "All records agree." if namespace is None else f"All records of namespace {namespace} agree."
    show(left, difference_columns(), output, empty=no_differences_text, document=difference_document, headers=headers)
    if left:
        raise typer.Exit(FAILED)


def _show_gpushare(source: GetSource, output: OutputFormat) -> None:
    from purser.adapters.snapshot import read_gpushare, read_objects
    from purser.cli.gpushare_view import gpushare_details, gpushare_table, listed_unit_mib

    if output not in (OutputFormat.TABLE, OutputFormat.WIDE):
        fail("--view gpushare supports only table output: omit --output, or use -o wide", MISUSED)
    addresses, memory, gpus = ask(source, read_gpushare)
    shown = SourceView(source).of_objects(*ask(source, read_objects))
    nodes, unit_mib = shown.nodes.values(), listed_unit_mib(memory, gpus)
    if output is OutputFormat.WIDE:
        print(gpushare_details(nodes, shown.grants, addresses, unit_mib))
    else:
        print(gpushare_table(nodes, addresses, unit_mib))
