"""Which rows `purser get` shows, in which order, and what it shows again while it watches."""

import contextlib
import dataclasses
import io

import msgspec
import pytest
from tests.unit.cli.typed import beside
from tests.unit.kube.servers import api_server, eventually, running

from purser.cli import get_tables
from purser.cli.choosing import StateFilter, is_in_state, sort_rows
from purser.cli.output import FAILED, MISUSED, Column, OutputFormat, cell, table_lines
from purser.cli.shown_cluster import node_status, shown_of_fleet
from purser.cli.watching import watch_rows
from purser.core.fleet import Fleet
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Enforcement, Grant, NodeInventory
from purser.core.names import CORDONED_GPUS_ANNOTATION, INVENTORY_ANNOTATION
from purser.kube.objects import ObjectMeta, Pod
from purser.kube.resource_quotas import ResourceQuota, ResourceQuotaSpec
from purser.kube.resources import NODES

GPUS = {
    "a1": [Device("GPU-0", 0, "NVIDIA A100", 100), Device("GPU-1", 1, "NVIDIA A100", 100)],
    "t10": [Device("GPU-2", 0, "Tesla T4", 20, healthy=False, unhealthy_reason="lost")],
    "t9": [Device("GPU-3", 0, "Tesla T4", 20)],
}


def node(name, **spec):
    inventory = msgspec.json.encode(NodeInventory(name, tuple(GPUS[name]))).decode()
    annotations = {INVENTORY_ANNOTATION: inventory}
    if name == "a1":
        annotations[CORDONED_GPUS_ANNOTATION] = "GPU-1"
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    metadata = {"name": name, "annotations": annotations, "labels": {"kind": name[0]}}
    return {"metadata": metadata, "spec": spec, "status": ready}


@pytest.fixture
async def ask(tmp_path):
    """A cluster of three nodes, one of them cordoned; called with the words of a command."""
    kubeconfig = tmp_path / "kubeconfig"
    async with api_server(kubeconfig) as (_, client):
        for name in GPUS:
            await client.create(NODES, node(name, unschedulable=name == "t9"))

        async def run(*words):
            return await beside("get", *words, f"--kubeconfig={kubeconfig}")

        yield run


async def rows(ask, *words):
    code, out, says = await ask(*words, "--no-headers")
    assert code == 0, says
    return [tuple(line.split()[:2]) for line in out.splitlines()]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ((), "a1 0, a1 1, t10 0, t9 0"),
        (("--node", "a1"), "a1 0, a1 1"),
        (("--node", "t9", "--node", "t10"), "t10 0, t9 0"),
        (("--model", "t4"), "t10 0, t9 0"),
        (("-l", "kind=t"), "t10 0, t9 0"),
        (("--state", "unhealthy"), "t10 0"),
        (("--state", "cordoned"), "a1 1, t9 0"),
        (("--state", "free"), "a1 0"),
        (("--state", "healthy", "--model", "A100"), "a1 0"),
        (("--sort-by", "node"), "a1 0, a1 1, t9 0, t10 0"),
        (("--sort-by", "-node"), "t10 0, t9 0, a1 0, a1 1"),
        (("--sort-by", "memory mib"), "t10 0, t9 0, a1 0, a1 1"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
async def test_gpus_are_chosen_and_sorted(ask, words, wanted):
    assert [" ".join(each) for each in await rows(ask, "gpus", *words)] == wanted.split(", ")


async def test_nodes_have_kubernetes_status(ask):
    assert (await ask("ns"))[2].endswith("No such command 'ns'. Did you mean 'namespaces'?\n")
    assert "No namespace holds GPUs" in (await ask("namespaces"))[2]
    assert await rows(ask, "nodes") == [("a1", "Ready"), ("t10", "Ready"), ("t9", "Ready,SchedulingDisabled")]
    assert await rows(ask, "node", "--model", "tesla", "-l", "kind=t") == [
        ("t10", "Ready"),
        ("t9", "Ready,SchedulingDisabled"),
    ]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("gpus", "--node", "t100"), FAILED, "node t100 does not exist or has not published GPUs. Did you mean t10?"),
        (
            ("gpus", "--sort-by", "age"),
            MISUSED,
            "invalid value 'age' for --sort-by: must be one of node, gpu, model, health",
        ),
        (("gpus", "--watch", "-o", "json"), MISUSED, "--watch supports only table output"),
        (("gpus", "--watch", "--sort-by", "age"), MISUSED, "invalid value 'age' for --sort-by"),
        (
            ("gpus", "--watch", "--node", "t100"),
            FAILED,
            "node t100 does not exist or has not published GPUs. Did you mean t10?",
        ),
        (
            ("gpus", "--node", "a1", "-l", "kind=t"),
            FAILED,
            "node a1 with labels kind=t does not exist or has not published GPUs",
        ),
        (("gpus", "--view", "gpushare", "--node", "t9"), MISUSED, "--view gpushare shows all nodes"),
        (("grants", "--check", "--node", "t9"), MISUSED, "--check compares the records of all nodes"),
        (("pods",), MISUSED, "Did you mean 'grants'?"),
        (("gpus", "--model", "H100"), 0, "No GPU matches."),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
async def test_what_cannot_be_shown_is_said(ask, words, code, says):
    found, out, err = await ask(*words)
    assert (found, out) == (code, "")
    assert says in err


def test_namespaces_have_what_they_hold_what_they_may_and_how_many_wait():
    fleet = Fleet()
    fleet.set_inventory(NodeInventory("n", (Device("GPU-0", 0, "A100", 100, slots=2), Device("GPU-1", 1, "GB10", 0))))
    for name, uuid, memory_mib, cores in (("p", "GPU-0", 25, 10), ("q", "GPU-0", 50, 20), ("r", "GPU-1", 0, 50)):
        share = ContainerGrant("c", ContainerKind.APP, (DeviceShare(uuid, memory_mib, cores),), Enforcement.NONE)
        fleet.ledger.reserve(Grant(name, "team", name, "n", (share,)))
    asks = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
    pods = [
        msgspec.convert({"metadata": {"namespace": namespace, "name": str(at)}, "spec": spec}, Pod)
        for at, (namespace, spec) in enumerate(
            [("team", asks), ("other", asks), ("other", asks), ("plain", {"containers": [{"name": "c"}]})]
        )
    ]
    hard = {"limits.nvidia.com/gpumem": "200", "requests.nvidia.com/gpu": "8"}
    quota = ResourceQuota(ObjectMeta(namespace="team", name="q"), ResourceQuotaSpec(hard))
    limits = get_tables.limits_by_namespace([quota])
    rows = get_tables.namespace_rows(shown_of_fleet(fleet, {}), get_tables.waiting_by_namespace(pods), limits)
    columns = get_tables.namespace_columns()
    assert [line.split() for line in table_lines(rows, columns, OutputFormat.TABLE)][1:] == [
        ["other", "0", "2", "0.00", "0", "0"],
        ["team", "3", "1", "1.25", "75/200", "80"],
    ]
    document = get_tables.namespace_document(rows[1])
    assert document["limits"] == {"memory_mib": 200, "cores_percent": None}


def test_the_state_of_a_gpu_is_the_first_thing_that_keeps_pods_away():
    fleet = Fleet()
    fleet.set_inventory(NodeInventory("n", (Device("GPU-0", 0, "A100", 100),)))
    share = ContainerGrant("c", ContainerKind.APP, (DeviceShare("GPU-0", 10, 10),), Enforcement.NONE)
    fleet.ledger.reserve(Grant("u", "team", "p", "n", (share,)))
    [row] = get_tables.gpu_rows(shown_of_fleet(fleet, {}))
    assert [state for state in StateFilter if is_in_state(row, state)] == [StateFilter.HEALTHY, StateFilter.USED]
    closed = dataclasses.replace(row, is_node_cordoned=True)
    assert [state for state in StateFilter if is_in_state(closed, state)] == [StateFilter.CORDONED, StateFilter.USED]
    assert row.pods == ("team/p",)


def test_a_degraded_gpu_can_be_used_and_is_not_healthy():
    fleet = Fleet()
    fleet.set_inventory(NodeInventory("n", (Device("GPU-0", 0, "A100", 100, degraded_reason="NVLink errors"),)))
    [row] = get_tables.gpu_rows(shown_of_fleet(fleet, {}))
    assert (row.status, row.reason) == ("Degraded", "NVLink errors")
    assert [state for state in StateFilter if is_in_state(row, state)] == [StateFilter.DEGRADED, StateFilter.FREE]
    assert dataclasses.replace(row, is_node_cordoned=True).status == "SchedulingDisabled"


def test_rows_are_sorted_by_numbers_and_by_columns_without_their_units():
    columns = [Column("MEMORY MiB", lambda row: row), Column("HELD BY", lambda row: [row])]
    values = ["10/20", "9/20", None]
    assert [cell(each) for each in sort_rows(values, columns, "memory")] == ["9/20", "10/20", "-"]
    assert [cell(each) for each in sort_rows(values, columns, "-held-by")] == ["-", "10/20", "9/20"]


def test_a_terminal_shows_what_is_wrong_in_colour():
    columns = [Column("HEALTH", str, coloured=True), Column("MODEL", str)]
    rows = ["Unhealthy", "Healthy", "Cordoned"]
    _, *lines = table_lines(rows, columns, OutputFormat.TABLE, colours=True)
    assert lines == [
        "\x1b[31mUnhealthy\x1b[0m   Unhealthy",
        "Healthy     Healthy",
        "\x1b[33mCordoned \x1b[0m   Cordoned",
    ]
    assert not any("\x1b" in line for line in table_lines(rows, columns, OutputFormat.TABLE))


async def test_what_changes_is_shown_again(tmp_path):
    async with api_server(tmp_path / "kubeconfig") as (_, client):
        await client.create(NODES, node("t9"))
        printed, shown = io.StringIO(), ["NODE   STATUS", "t9     Ready"]

        def chosen(nodes, pods):
            name = Column("NODE", lambda each: each.metadata.name)
            return list(nodes), [name, Column("STATUS", node_status, coloured=True)]

        def is_shown():
            return printed.getvalue().splitlines() == shown

        with contextlib.redirect_stdout(printed):
            async with running(watch_rows(client, None, chosen, OutputFormat.TABLE, headers=True)):
                await eventually(is_shown)
                await client.create(NODES, node("t10"))
                shown.append("t10    Ready")
                await eventually(is_shown)
                await client.patch_merge(NODES, "t9", {"spec": {"unschedulable": True}})
                shown.append("t9     Ready,SchedulingDisabled")
                await eventually(is_shown)
