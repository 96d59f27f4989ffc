"""`purser get gpus|grants|nodes`: inventories and grants as tables."""

import sys
from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from purser.cli.options import Context, Kubeconfig, OutputOption
from purser.cli.output import FAILED, MISUSED, Column, OutputFormat, fail, show

if TYPE_CHECKING:
    from purser.core.fleet import DeviceState, Fleet, NodeState
    from purser.core.grant.reconcile import BookDifference
    from purser.core.model import ContainerGrant, DeviceShare, Grant, GrantState
    from purser.kube import Client

    GpuRow = tuple[NodeState, DeviceState]
    GrantRow = tuple[Grant, ContainerGrant, str]

T = TypeVar("T")


class GpuView(StrEnum):
    """Tables of other systems."""

    GPUSHARE = "gpushare"


app = typer.Typer(
    help="Show GPUs, grants and nodes as the scheduler counts them."
    "\n\nExit code: 0 they are shown; 1 the cluster did not answer, or with --check records differ; 2 wrong usage, or "
    "a kubeconfig that cannot be used.\n\nExample: purser get gpus",
    no_args_is_help=True,
    rich_markup_mode=None,
)

GPUS_HELP = """Each GPU with what is held of it.

With --view gpushare, instead, the table of "kubectl inspect gpushare": a row per node, memory in gpushare's unit; and
with -o wide that of "kubectl inspect gpushare -d": the pods of each node, with what each holds.

Example: purser get gpus -o wide

Example: purser get gpus --view gpushare
"""
GRANTS_HELP = """What each container holds.

With --check, instead, where records of who holds which GPU differ: pods that hold GPUs without a valid grant, GPUs that
were granted twice, what nodes refused; with -o wide who settles it.

Exit code: 0 they are shown, or with --check all records agree; 1 the cluster did not answer, or records differ; 2 wrong
usage, or a kubeconfig that cannot be used.

Example: purser get grants -n team-a -o json

Example: purser get grants --check
"""
NODES_HELP = """Each node that has an inventory, summed up.

Example: purser get nodes -o yaml
"""


@app.command("gpus", help=GPUS_HELP)
def gpus(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    view: Annotated[GpuView | None, typer.Option("--view", help="Show the table of another system.")] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print the GPUs of the cluster."""
    if view is GpuView.GPUSHARE:
        _show_gpushare(kubeconfig, context, output)
        return
    fleet = _read(kubeconfig, context)
    rows = [(node, state) for node in fleet for state in (*node.devices, *_without_mig_devices(node))]
    show(rows, _gpu_columns(), output, empty="No node has published GPUs.", document=_gpu_document)


@app.command("grants", help=GRANTS_HELP)
def grants(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Show only pods of this namespace.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Show where records differ; exit with 1 if they do.")] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print the grants of the cluster."""
    if check:
        _check(kubeconfig, context, namespace, output)
        return
    fleet = _read(kubeconfig, context)
    held = sorted(fleet.ledger.grants(), key=lambda grant: (grant.namespace, grant.pod, grant.pod_uid))
    rows = [
        (grant, part, _state(fleet.ledger.state(grant.pod_uid), part))
        for grant in held
        if namespace in (None, grant.namespace)
        for part in grant.containers
    ]
    show(rows, _grant_columns(fleet), output, empty="No pods have grants.", document=_grant_document)


@app.command("nodes", help=NODES_HELP)
def nodes(kubeconfig: Kubeconfig = None, context: Context = None, output: OutputOption = OutputFormat.TABLE) -> None:
    """Print the nodes of the cluster that have GPUs."""
    fleet = _read(kubeconfig, context)
    show(list(fleet), _node_columns(), output, empty="No node has published GPUs.", document=_node_document)


def _check(kubeconfig: Path | None, context: str | None, namespace: str | None, output: OutputFormat) -> None:
    from purser.adapters.snapshot import read_books
    from purser.core.grant.reconcile import differences

    found = [each for books in _ask(kubeconfig, context, read_books) for each in differences(books)]
    left = [each for each in found if namespace is None or not each.pod or each.pod.startswith(f"{namespace}/")]
    show(left, _difference_columns(), output, empty="All records agree.", document=_difference_document)
    if left:
        raise typer.Exit(FAILED)


def _show_gpushare(kubeconfig: Path | None, context: str | None, output: OutputFormat) -> None:
    from purser.adapters.snapshot import read_gpushare
    from purser.cli.gpushare_view import gpushare_details, gpushare_table, listed_unit_mib

    if output not in (OutputFormat.TABLE, OutputFormat.WIDE):
        fail("--view gpushare is a table: leave --output out, or give it as wide", MISUSED)
    addresses, memory, gpus = _ask(kubeconfig, context, read_gpushare)
    fleet, unit_mib = _read(kubeconfig, context), listed_unit_mib(memory, gpus)
    if output is OutputFormat.WIDE:
        print(gpushare_details(fleet, fleet.ledger.grants(), addresses, unit_mib))
    else:
        print(gpushare_table(fleet, addresses, unit_mib))


def _difference_columns() -> "list[Column[BookDifference]]":
    return [
        Column("DIFFERENCE", lambda each: str(each.kind)),
        Column("NODE", lambda each: each.node),
        Column("POD", lambda each: each.pod),
        Column("GPUS", lambda each: each.uuids),
        Column("DETAIL", lambda each: each.detail),
        Column("SETTLED BY", lambda each: each.settled_by, wide=True),
    ]


def _difference_document(each: "BookDifference") -> dict[str, Any]:
    return {**_plain(each), "settled_by": each.settled_by}


def _ask(kubeconfig: Path | None, context: str | None, read: "Callable[[Client], Awaitable[T]]") -> T:
    """What the API server answers; ends the command where it does not."""
    import asyncio

    from purser.cli.serving import LogLevel, configure_logs
    from purser.kube import Client, ClusterConfig, ConfigError, KubeError

    async def ask() -> T:
        async with Client(ClusterConfig.load(kubeconfig, context)) as client:
            return await read(client)

    configure_logs(LogLevel.WARNING)
    try:
        return asyncio.run(ask())
    except ConfigError as error:
        fail(str(error), MISUSED)
    except KubeError as error:
        fail(str(error))


def _read(kubeconfig: Path | None, context: str | None) -> "Fleet":
    from purser.adapters.snapshot import read_fleet

    fleet, problems = _ask(kubeconfig, context, read_fleet)
    for problem in problems:
        print(f"purser: {problem}", file=sys.stderr)
    if problems or any(state.disputed for node in fleet for state in node.devices):
        print("purser: records of who holds which GPU differ; purser get grants --check says where", file=sys.stderr)
    return fleet


def _gpu_columns() -> "list[Column[GpuRow]]":
    return [
        Column("NODE", lambda row: row[0].name),
        Column("GPU", lambda row: row[1].device.index),
        Column("MODEL", lambda row: row[1].device.model),
        Column("HEALTH", lambda row: _health(row[1])),
        Column("PODS", lambda row: row[1].usage.pods),
        Column("SLOTS", lambda row: f"{row[1].usage.slots}/{row[1].device.slots}"),
        Column("MEMORY MiB", lambda row: _memory(row[1].usage.memory_mib, row[1].device.memory_mib)),
        Column("CORES %", lambda row: f"{row[1].usage.cores_percent}/{row[1].device.cores_percent}"),
        Column("INSTANCES", lambda row: _instances(row[1]), wide=True),
        Column("RESOURCE", lambda row: row[1].device.resource, wide=True),
        Column("UUID", lambda row: row[1].device.uuid, wide=True),
        Column("PCI", lambda row: row[1].device.pci_bus_id, wide=True),
        Column("NUMA", lambda row: row[1].device.numa_nodes, wide=True),
        Column("MODE", lambda row: str(row[1].device.mode), wide=True),
        Column("ENFORCES", lambda row: str(row[1].device.enforcement), wide=True),
        Column("REASON", lambda row: row[1].device.unhealthy_reason or row[1].disputed, wide=True),
    ]


def _without_mig_devices(node: "NodeState") -> "list[DeviceState]":
    """GPUs in MIG mode of which pods can have nothing, so that nobody misses them here."""
    from purser.core.fleet import DeviceState
    from purser.core.model import Device, DeviceMode

    parents = {state.device.parent for state in node.devices}
    return [
        DeviceState(
            Device(
                gpu.uuid,
                -1 if gpu.index is None else gpu.index,
                gpu.model,
                gpu.memory_mib,
                slots=0,
                mode=DeviceMode.MIG,
                healthy=False,
                unhealthy_reason="MIG mode is on but there are no MIG devices: create MIG devices, or disable MIG mode",
            )
        )
        for gpu in node.inventory.cut
        if gpu.uuid not in parents
    ]


def _instances(state: "DeviceState") -> list[str]:
    """GPU instances of a GPU that is cut on demand; in brackets those that no grant made."""
    from purser.core.mig.on_demand import named

    return [*map(named, state.usage.instances), *(f"({named(each)})" for each in state.device.mig_held)]


def _health(state: "DeviceState") -> str:
    if not state.device.healthy:
        return "Unhealthy"
    if state.cordoned:
        return "Cordoned"
    return "Disputed" if state.disputed else "Healthy"


def _gpu_document(row: "GpuRow") -> dict[str, Any]:
    node, state = row
    closed = {"cordoned": state.cordoned, "disputed": state.disputed}
    return {"node": node.name, **_plain(state.device), **closed, "held": _plain(state.usage)}


def _state(state: "GrantState | None", part: "ContainerGrant") -> str:
    """How far a container is: the init containers of a pod that runs have ended."""
    from purser.core.model import ContainerKind, GrantState

    has_ended = state is GrantState.RUNNING and part.kind is ContainerKind.INIT
    return "ended" if has_ended else str(state)


def _grant_columns(fleet: "Fleet") -> "list[Column[GrantRow]]":
    return [
        Column("NAMESPACE", lambda row: row[0].namespace),
        Column("POD", lambda row: row[0].pod),
        Column("CONTAINER", lambda row: row[1].container),
        Column("NODE", lambda row: row[0].node),
        Column("GPUS", lambda row: [_gpu(fleet, row[0].node, share) for share in row[1].shares]),
        Column("MEMORY MiB", lambda row: _same([share.memory_mib for share in row[1].shares])),
        Column("CORES %", lambda row: _same([share.cores_percent for share in row[1].shares])),
        Column("ENFORCED BY", lambda row: str(row[1].enforcement)),
        Column("STATE", lambda row: row[2]),
        Column("UUIDS", lambda row: row[1].uuids, wide=True),
    ]


def _gpu(fleet: "Fleet", node: str, share: "DeviceShare") -> object:
    """Its index, and the GPU instance where the share is one: ``0 (1g.5gb at 3)``."""
    from purser.core.mig.on_demand import named

    index = _index(fleet, node, share.uuid)
    return index if share.mig is None else f"{index} ({named(share.mig)})"


def _index(fleet: "Fleet", node: str, uuid: str) -> object:
    state = fleet.node(node)
    known = {s.device.uuid: s.device.index for s in state.devices} if state is not None else {}
    return known.get(uuid, f"{uuid} (gone)")


def _same(values: list[int]) -> object:
    return values[0] if len(set(values)) == 1 else values


def _grant_document(row: "GrantRow") -> dict[str, Any]:
    grant, part, state = row
    head = {"namespace": grant.namespace, "pod": grant.pod, "pod_uid": grant.pod_uid, "node": grant.node}
    return {**head, **_plain(part), "state": state}


def _node_columns() -> "list[Column[NodeState]]":
    return [
        Column("NODE", lambda node: node.name),
        Column("GPUS", lambda node: len(node.devices)),
        Column("HEALTHY", lambda node: sum(state.device.healthy for state in node.devices)),
        Column("MODEL", lambda node: sorted({state.device.model for state in node.devices})),
        Column("SLOTS", lambda node: _of(node, lambda s: s.usage.slots, lambda s: s.device.slots)),
        Column("MEMORY MiB", _memory_of),
        Column("CORES %", lambda node: _of(node, lambda s: s.usage.cores_percent, lambda s: s.device.cores_percent)),
        Column("ENFORCES", lambda node: sorted({str(state.device.enforcement) for state in node.devices})),
        Column("DRIVER", lambda node: node.inventory.driver_version, wide=True),
        Column("AGENT", lambda node: node.inventory.agent_version, wide=True),
    ]


def _memory_of(node: "NodeState") -> str | None:
    held, total = (state.usage.memory_mib for state in node.devices), (s.device.memory_mib for s in node.devices)
    return _memory(sum(held), sum(total))


def _memory(held: int, total: int) -> str | None:
    """None: it is not known, of GPUs that use the machine's."""
    return f"{held}/{total}" if total else None


def _of(node: "NodeState", used: "Callable[[DeviceState], int]", total: "Callable[[DeviceState], int]") -> str:
    return f"{sum(map(used, node.devices))}/{sum(map(total, node.devices))}"


def _node_document(node: "NodeState") -> dict[str, Any]:
    devices = [_gpu_document((node, state)) for state in node.devices]
    return {**_plain(node.inventory), "devices": devices}


def _plain(value: object) -> dict[str, Any]:
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(value)
    return plain
