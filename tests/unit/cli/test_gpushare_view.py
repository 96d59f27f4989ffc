"""The table that users of ``kubectl inspect gpushare`` know."""

from purser.cli.gpushare_view import gpushare_details, gpushare_table, listed_unit_mib
from purser.core.fleet import Fleet
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Grant, NodeInventory

from .typed import here

GIB = 1024


def fleet_of(**gib: list[int]) -> Fleet:
    fleet = Fleet()
    for node, sizes in gib.items():
        devices = tuple(Device(f"{node}-{i}", i, "T4", size * GIB, slots=4) for i, size in enumerate(sizes))
        fleet.set_inventory(NodeInventory(node, devices))
    return fleet


def hold(fleet: Fleet, node: str, index: int, mib: int) -> None:
    share = DeviceShare(f"{node}-{index}", mib, 0)
    part = ContainerGrant("main", ContainerKind.APP, (share,))
    fleet.ledger.adopt(Grant(f"{node}{index}{mib}", "ns", f"p{node}{index}{mib}", node, (part,)))


def test_the_published_example() -> None:
    first, second = (f"cn-shanghai.i-uf61h64dz1tmlob9hmt{each}" for each in "bc")
    fleet = fleet_of(**{first: [15], second: [15]})
    hold(fleet, first, 0, 6 * GIB)
    hold(fleet, second, 0, 3 * GIB)
    assert gpushare_table(fleet, {first: "192.168.0.71", second: "192.168.0.70"}).splitlines() == [
        "NAME                                IPADDRESS     GPU0(Allocated/Total)  GPU Memory(GiB)",
        "cn-shanghai.i-uf61h64dz1tmlob9hmtb  192.168.0.71  6/15                   6/15",
        "cn-shanghai.i-uf61h64dz1tmlob9hmtc  192.168.0.70  3/15                   3/15",
        "-" * 78,
        "Allocated/Total GPU Memory In Cluster:",
        "9/30 (30%)",
    ]


def test_unequal_gpus_have_their_own_totals_and_nodes_with_fewer_gpus_have_none() -> None:
    fleet = fleet_of(a=[15, 23], b=[40])
    hold(fleet, "a", 1, 1)
    lines = gpushare_table(fleet, {}).splitlines()
    assert [line.split() for line in lines[1:3]] == [
        ["a", "unknown", "0/15", "1/23", "1/38"],
        ["b", "unknown", "0/40", "0/0", "0/40"],
    ]


def test_indexes_beyond_all_bounds_cost_no_columns() -> None:
    fleet = fleet_of(b=[40])
    devices = tuple(Device(f"a-{i}", i, "T4", 15 * GIB, slots=4) for i in (3, 1 << 30))
    fleet.set_inventory(NodeInventory("a", devices))
    lines = gpushare_table(fleet, {}).splitlines()
    assert [line.split()[2:] for line in lines[1:3]] == [["0/15", "0/15", "0/30"], ["0/40", "0/0", "0/40"]]


def test_a_cluster_without_gpus() -> None:
    assert gpushare_table(Fleet(), {}).splitlines()[-1] == "0/0 (0%)"


def test_it_is_a_table_only() -> None:
    code, _, said = here("get", "gpus", "--view", "gpushare", "-o", "json")
    assert (code, said) == (2, "purser: --view gpushare supports only table output: omit --output, or use -o wide\n")


def test_memory_is_counted_in_what_nodes_list():
    assert [listed_unit_mib(*each) for each in [(0, 0), (30, 2), (2 * 15360, 2), (288, 1)]] == [1024, 1024, 1, 1024]
    fleet = fleet_of(a=[15])
    hold(fleet, "a", 0, 3000)
    head, row, *_ = gpushare_table(fleet, {}, listed_unit_mib(15360, 1)).splitlines()
    assert (head.split()[-1], row.split()[-1]) == ("Memory(MiB)", "3000/15360")


def test_details_have_the_pods_of_each_node() -> None:
    fleet = fleet_of(a=[15, 15], b=[40])
    hold(fleet, "a", 1, 6 * GIB)
    hold(fleet, "a", 0, 1)
    assert gpushare_details(fleet, fleet.ledger.grants(), {"a": "192.168.0.71"}).splitlines() == [
        "",
        "NAME:       a",
        "IPADDRESS:  192.168.0.71",
        "",
        "NAME         NAMESPACE  GPU0(Allocated)  GPU1(Allocated)",
        "pa01         ns         1                0",
        "pa16144      ns         0                6",
        "Allocated :  7 (23%)",
        "Total :      30",
        "-" * 56,
        "",
        "NAME:       b",
        "IPADDRESS:  unknown",
        "",
        "NAME         NAMESPACE  GPU0(Allocated)",
        "Allocated :  0 (0%)",
        "Total :      40",
        "-" * 39,
        "",
        "",
        "Allocated/Total GPU Memory In Cluster:  7/70 (10%)",
    ]
