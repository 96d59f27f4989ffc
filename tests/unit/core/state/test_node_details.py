"""The document on one node: what connects its GPUs, which network devices are near, what its kubelet holds."""

from itertools import combinations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from purser.core.fleet import Fleet
from purser.core.interconnect import connection, topology
from purser.core.interconnect.topology import NVLINK_SCORE, PCIE_SCORE
from purser.core.kubelet.config import CpuPolicy, KubeletConfig, TopologyPolicy
from purser.core.kubelet.machine import Machine
from purser.core.kubelet.state import (
    Allocation,
    DeviceManagerState,
    KubeletNode,
    KubeletState,
    PluginDevice,
    PluginResource,
)
from purser.core.model import (
    ContainerGrant,
    ContainerKind,
    Device,
    DeviceShare,
    Grant,
    GrantState,
    Link,
    NodeInventory,
    NodePool,
    PcieLevel,
    PoolPlace,
    PoolShare,
)
from purser.core.state import MAX_LINKED_GPUS, StateKubeletResource, details_of_gpus, node_details

NET = "mellanox.com/net"
CONFIG = KubeletConfig("v1.34.1", TopologyPolicy.RESTRICTED, cpu_policy=CpuPolicy.STATIC)


def gpu(number, *links, numa=(), pcie=(), parent=""):
    return Device(f"g{number}", number, "A100", 1000, numa_nodes=numa, links=links, pcie=pcie, parent=parent)


def fleet_of(*devices, pools=()):
    fleet = Fleet()
    fleet.set_inventory(NodeInventory("n", devices, pools=pools))
    return fleet


def details(fleet):
    return node_details(fleet.node("n"), fleet.kubelet_report("n"))


_links = st.tuples(st.sampled_from([None, *PcieLevel]), st.integers(-1, 18))
_numa = st.sampled_from([(), (0,), (1,), (0, 1)])


@given(st.lists(_numa, min_size=2, max_size=4), st.data())
def test_connections_are_those_that_the_scheduler_scores(numa_nodes, data):
    devices = []
    for number, numa in enumerate(numa_nodes):
        peers = data.draw(st.sets(st.integers(0, len(numa_nodes) - 1)))
        links = tuple(Link(f"g{peer}", *data.draw(_links)) for peer in peers if peer != number)
        devices.append(gpu(number, *links, numa=numa))
    scores = topology(devices).scores
    for one, other in combinations(devices, 2):
        found = connection(one, other)
        assert found == connection(other, one)
        level = 0 if found.level is None else PCIE_SCORE[found.level]
        assert level + NVLINK_SCORE * found.nvlinks == scores[one.index][other.index]
        assert not (found.nvlinks_differ and found.nvlinks)


def test_each_gpu_has_what_connects_it_with_each_other_one():
    near, far = PcieLevel.SINGLE_SWITCH, PcieLevel.CROSS_CPU
    found = details(
        fleet_of(
            gpu(0, Link("g1", near, 4), Link("g2", far, 2), numa=(0,)),
            gpu(1, Link("g0", near, 4), numa=(0,)),
            gpu(2, Link("g0", far, 3), numa=(1,)),
            gpu(3, parent="g9"),
        )
    )
    assert [(each.uuid, each.numa_nodes) for each in found.gpus] == [("g0", (0,)), ("g1", (0,)), ("g2", (1,))]
    links = {(each.uuid, link.peer): (link.level, link.nvlinks) for each in found.gpus for link in each.links}
    assert links == {
        ("g0", "g1"): (near, 4),
        ("g1", "g0"): (near, 4),
        ("g0", "g2"): (far, 0),
        ("g2", "g0"): (far, 0),
        ("g1", "g2"): (far, 0),
        ("g2", "g1"): (far, 0),
    }
    differ = {(each.uuid, link.peer) for each in found.gpus for link in each.links if link.nvlinks_differ}
    assert differ == {("g0", "g2"), ("g2", "g0")}
    assert (found.pools, found.kubelet) == ((), None)


def test_links_of_a_node_with_very_many_gpus_are_those_between_the_first():
    found = details(fleet_of(*(gpu(number) for number in range(MAX_LINKED_GPUS + 3))))
    assert [len(each.links) for each in found.gpus] == [MAX_LINKED_GPUS - 1] * MAX_LINKED_GPUS + [0] * 3


def test_of_gpus_that_alone_may_be_known_of_nothing_else_is_said():
    pools = (NodePool(NET, (PoolPlace(("r", "a"), 2, 0),)),)
    fleet = fleet_of(gpu(0, Link("g1", None, 4), Link("g2", None, 4)), gpu(1), gpu(2), pools=pools)
    found = details_of_gpus(fleet.node("n"), {"g0", "g2", "other"})
    assert [(each.uuid, [link.peer for link in each.links]) for each in found.gpus] == [("g0", ["g2"]), ("g2", ["g0"])]
    assert (found.pools, found.kubelet) == ((), None)


def test_network_devices_below_a_switch_of_a_gpu_are_near_it():
    places = (PoolPlace(("r0", "a"), 4, 0), PoolPlace((), 2, 1), PoolPlace((), 1))
    fleet = fleet_of(
        gpu(0, numa=(0,), pcie=("r0", "a")),
        gpu(1, numa=(0,), pcie=("r0", "b")),
        gpu(2, numa=(0,), pcie=("r1",)),
        gpu(3, numa=(1,)),
        gpu(4),
        pools=(NodePool(NET, places),),
    )
    part = ContainerGrant("c", ContainerKind.APP, (DeviceShare("g0", 10, 0),))
    grant = Grant("uid", "default", "p", "n", (part,), pools=(PoolShare("c", NET, "a", 3),))
    fleet.ledger.adopt(grant, GrantState.BOUND)
    first, second, third = details(fleet).pools
    assert (first.resource, first.place, first.devices, first.held) == (NET, "a", 4, 3)
    single, multi, same, cross = (
        PcieLevel.SINGLE_SWITCH,
        PcieLevel.MULTI_SWITCH,
        PcieLevel.SAME_CPU,
        PcieLevel.CROSS_CPU,
    )
    assert first.levels == (single, multi, same, cross, None)
    assert (second.place, second.numa_node, second.held) == ("numa-1", 1, 0)
    assert second.levels == (cross, cross, cross, same, None)
    assert (third.place, third.numa_node, set(third.levels)) == ("", None, {None})


def kubelet_state():
    devices = {f"{name}-{n}": PluginDevice(f"{name}-{n}", n > 0, (n,)) for name in ("a", "b") for n in range(2)}
    healthy = frozenset(id_ for id_, each in devices.items() if each.healthy)
    resource = PluginResource(devices, healthy, frozenset(devices) - healthy, True)
    held = {("secret-uid", "secret-container"): {NET: Allocation({1: ("a-1",)})}}
    return KubeletState(DeviceManagerState({NET: resource}, held, {NET: frozenset({"a-1"})}))


def test_what_kubelet_reports_is_counted_and_names_no_pod():
    fleet = fleet_of(gpu(0))
    fleet.set_kubelet("n", KubeletNode(CONFIG, Machine()), kubelet_state())
    found = details(fleet).kubelet
    assert found.resources == (StateKubeletResource(NET, listed=4, healthy=2, held=1, numa_nodes=(0, 1)),)
    assert (found.version, found.source, found.topology_policy) == ("v1.34.1", "agent", "restricted")
    assert (found.topology_scope, found.cpu_policy, found.memory_policy) == ("container", "static", "None")
    assert b"secret" not in msgspec.json.encode(found)
    fleet.set_kubelet("n", KubeletNode(CONFIG, Machine()), kubelet_state(), is_anonymous=True)
    assert details(fleet).kubelet.source == "NodeResourceTopology"
