"""What `purser get` says of GPU instances: columns and documents, read from a fleet."""

import json

import msgspec
import pytest
from tests.unit.core.placement.test_instances import gpu
from tests.unit.top import states as top_states

from purser.cli.get_tables import (
    GpuRow,
    GrantRow,
    NodeRow,
    _state,
    gpu_document,
    gpu_rows,
    grant_columns,
    grant_document,
)
from purser.cli.get_tables import gpu_columns as get_gpu_columns
from purser.cli.get_tables import node_columns as get_node_columns
from purser.cli.output import OutputFormat, show
from purser.cli.shown_cluster import shown_of_fleet
from purser.core.fleet import Fleet
from purser.core.mig import MigPlacement
from purser.core.model import (
    ContainerGrant,
    ContainerKind,
    Device,
    DeviceShare,
    Enforcement,
    Grant,
    GrantState,
    NodeInventory,
)
from purser.top.views import gpu_columns, node_columns

HELD = MigPlacement("1g.5gb", 2)
MIXED = Device("MIG-1", 7, "A100", 4864, resource="nvidia.com/mig-1g.5gb", parent="GPU-9")


def fleet_with(*shares):
    fleet = Fleet()
    fleet.set_inventory(NodeInventory("n", (gpu("GPU-0", 0, held=[HELD]), gpu("GPU-1", 1), MIXED)))
    part = ContainerGrant("c", ContainerKind.APP, shares, Enforcement.MIG)
    grant = Grant("u", "ns", "p", "n", (part,))
    fleet.ledger.reserve(grant)
    return fleet, grant


def instance(uuid, profile, start, memory_mib=4864, cores_percent=14):
    return DeviceShare(uuid, memory_mib, cores_percent, MigPlacement(profile, start))


def cells(columns, row):
    return {column.head: column.read(row) for column in columns}


def test_gpus_that_are_cut_show_their_instances_and_whose_they_are():
    fleet, _ = fleet_with(instance("GPU-0", "3g.20gb", 4, 19968, 42), instance("GPU-0", "1g.5gb+me", 0))
    node = fleet.node("n")
    first, second, listed = (cells(get_gpu_columns(), GpuRow(node, state)) for state in node.devices)
    assert first["INSTANCES"] == ["1g.5gb+me at 0", "3g.20gb at 4", "(1g.5gb at 2)"]
    assert (first["PODS"], first["SLOTS"], first["MEMORY MiB"], first["CORES %"]) == (1, "2/7", "24832/40960", "56/100")
    assert (first["MODE"], first["ENFORCES"], first["RESOURCE"]) == ("mig", "mig", "nvidia.com/gpu")
    assert (second["INSTANCES"], second["SLOTS"]) == ([], "0/7")
    assert (listed["INSTANCES"], listed["RESOURCE"]) == ([], "nvidia.com/mig-1g.5gb")
    assert cells(get_node_columns(), NodeRow(node))["SLOTS"] == "2/15"


def test_grants_name_the_instance_beside_the_gpu_also_of_one_that_is_gone():
    shares = (instance("GPU-1", "1g.5gb", 6), DeviceShare("MIG-1", 4864, 100))
    fleet, grant = fleet_with(*shares)
    found = cells(grant_columns(shown_of_fleet(fleet, {})), GrantRow(grant, grant.containers[0], "reserved"))
    assert found["GPUS"] == ["1 (1g.5gb at 6)", 7]
    assert (found["MEMORY MiB"], found["CORES %"], found["ENFORCED BY"]) == (4864, [14, 100], "mig")
    sick = msgspec.structs.replace(MIXED, healthy=False, unhealthy_reason="lost")
    fleet.set_inventory(NodeInventory("n", (gpu("GPU-0", 0, held=[HELD]), gpu("GPU-1", 1), sick)))
    row = GrantRow(grant, grant.containers[0], "reserved")
    assert cells(grant_columns(shown_of_fleet(fleet, {})), row)["GPUS"] == ["1 (1g.5gb at 6)", "7 (unhealthy)"]
    fleet.remove_node("n")
    assert (
        cells(grant_columns(shown_of_fleet(fleet, {})), GrantRow(grant, grant.containers[0], "x"))["GPUS"][0]
        == "GPU-1 (gone) (1g.5gb at 6)"
    )


@pytest.mark.parametrize(
    ("kind", "state", "shown"),
    [
        (ContainerKind.INIT, GrantState.BOUND, "bound"),
        (ContainerKind.INIT, GrantState.RUNNING, "ended"),
        (ContainerKind.SIDECAR, GrantState.RUNNING, "running"),
        (ContainerKind.APP, GrantState.RUNNING, "running"),
    ],
)
def test_an_init_container_of_a_pod_that_runs_has_ended(kind, state, shown):
    assert _state(state, ContainerGrant("c", kind, (), Enforcement.NONE)) == shown


def test_wide_tables_have_the_instances_and_documents_their_places(capsys):
    fleet, grant = fleet_with(instance("GPU-0", "1g.5gb", 6))
    rows = gpu_rows(shown_of_fleet(fleet, {}))
    for output, shown in ((OutputFormat.TABLE, False), (OutputFormat.WIDE, True)):
        show(rows, get_gpu_columns(), output, empty="", document=gpu_document)
        printed = capsys.readouterr().out
        assert ("INSTANCES" in printed and "1g.5gb at 6,(1g.5gb at 2)" in printed) is shown
    show(rows[:1], get_gpu_columns(), OutputFormat.JSON, empty="", document=gpu_document)
    (document,) = json.loads(capsys.readouterr().out)
    assert (document["mig_kind"], document["mig_held"]) == ("A100-40GB", [["1g.5gb", 2]])
    assert document["held"]["instances"] == [["1g.5gb", 6]]
    assert grant_document(GrantRow(grant, grant.containers[0], "x"))["shares"][0]["mig"] == ["1g.5gb", 6]


def test_memory_that_is_not_known_is_not_shown_as_none_at_all():
    """Of a GPU that uses the machine's; `purser top` has the same."""
    fleet = Fleet()
    fleet.set_inventory(NodeInventory("n", (Device("GPU-0", 0, "NVIDIA GB10", 0),)))
    node = fleet.node("n")
    assert cells(get_gpu_columns(), GpuRow(node, node.devices[0]))["MEMORY MiB"] is None
    assert cells(get_node_columns(), NodeRow(node))["MEMORY MiB"] is None
    told = top_states.node("n", msgspec.structs.replace(top_states.gpu(), memory_mib=0))
    for columns, row in ((gpu_columns(), (told, told.gpus[0])), (node_columns(), told)):
        assert {column.head: column.read(row) for column in columns}["MIB"] == "-"
