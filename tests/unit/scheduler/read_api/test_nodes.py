"""The documents on one node: who reads one of a namespace learns of its own GPUs alone, and of no pod."""

from types import SimpleNamespace

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from purser.core.fleet import Fleet
from purser.core.kubelet.config import KubeletConfig, TopologyPolicy
from purser.core.kubelet.machine import Machine
from purser.core.kubelet.state import Allocation, DeviceManagerState, KubeletNode, KubeletState, PluginResource
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
    PoolPlace,
)
from purser.core.state import NodeDetails
from purser.scheduler.read_api.nodes import NodePage
from purser.scheduler.read_api.page import Scope

NAMESPACES = ("alpha", "bravo", "crane")
"""A word of these, or a pod's uid, which begins with it, in another's document is a leak."""


def fleet_of(nodes, held):
    """``nodes``: how many GPUs each has; ``held``: a namespace each, and the numbers of a node and its GPU."""
    fleet = Fleet()
    aligned = KubeletNode(KubeletConfig(topology_policy=TopologyPolicy.RESTRICTED), Machine())
    for number, gpus in enumerate(nodes):
        uuids = [f"gpu-{number}-{i}" for i in range(gpus)]
        devices = tuple(
            Device(uuid, i, "A100", 8000, slots=10, links=tuple(Link(peer, None, 2) for peer in uuids if peer != uuid))
            for i, uuid in enumerate(uuids)
        )
        pools = (NodePool("mellanox.com/net", (PoolPlace(("r",), 2, 0),)),)
        fleet.set_inventory(NodeInventory(f"node-{number}", devices, pools=pools))
        holds = {(f"{namespace}-uid", f"{namespace}-c"): {"r": Allocation({0: ("d",)})} for namespace in NAMESPACES}
        fleet.set_kubelet(f"node-{number}", aligned, KubeletState(DeviceManagerState({"r": PluginResource()}, holds)))
    for count, (namespace, node, gpu) in enumerate(held):
        node, gpu = node % len(nodes), gpu % nodes[node % len(nodes)]
        part = ContainerGrant(f"{namespace}-container", ContainerKind.APP, (DeviceShare(f"gpu-{node}-{gpu}", 100, 0),))
        name = f"{namespace}-{count}"
        fleet.ledger.adopt(Grant(f"{name}-uid", namespace, name, f"node-{node}", (part,)), GrantState.BOUND)
    return fleet


def body(document):
    (text,) = document.pieces
    return text


def decoded(document):
    return msgspec.json.decode(body(document), type=NodeDetails)


_number = st.integers(0, 5)
_held = st.lists(st.tuples(st.sampled_from(NAMESPACES), _number, _number), max_size=8)


@settings(deadline=None)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), _held)
def test_no_document_names_a_pod_or_gpus_that_its_reader_may_not_know_of(nodes, held):
    fleet = fleet_of(nodes, held)
    page = NodePage(SimpleNamespace(fleet=fleet))
    for number, gpus in enumerate(nodes):
        whole = page.of(f"node-{number}")
        assert (len(decoded(whole).gpus), len(decoded(whole).pools)) == (gpus, 1)
        assert decoded(whole).kubelet is not None
        for namespace in (*NAMESPACES, "empty"):
            assert page.of(f"node-{number}", Scope(namespace, True)) is whole
            part = page.of(f"node-{number}", Scope(namespace, False))
            own = {f"gpu-{n % len(nodes)}-{g % nodes[n % len(nodes)]}" for name, n, g in held if name == namespace}
            own = {uuid for uuid in own if uuid.startswith(f"gpu-{number}-")}
            assert (part is None) == (not own), "as for a node that does not exist"
            if part is not None:
                found = decoded(part)
                assert {each.uuid for each in found.gpus} == own
                assert {link.peer for each in found.gpus for link in each.links} <= own
                assert (found.pools, found.kubelet) == ((), None)
                assert page.of(f"node-{number}", Scope(namespace, False)) is part, "made once for all requests"
        assert not any(name.encode() in body(whole) for name in NAMESPACES)
    assert page.of("node-9") is None
    assert page.of("node-9", Scope("alpha", True)) is None


def test_a_document_is_another_when_something_of_the_node_is():
    fleet = fleet_of([2, 1], [])
    page = NodePage(SimpleNamespace(fleet=fleet))
    first = page.of("node-0")
    fleet.remove_node("node-1")
    assert page.of("node-0") is first
    part = ContainerGrant("c", ContainerKind.APP, (DeviceShare("gpu-0-0", 100, 0),))
    fleet.ledger.adopt(Grant("uid", "alpha", "p", "node-0", (part,)), GrantState.BOUND)
    assert page.of("node-0").tag == first.tag, "nothing that it says has changed"
    fleet.set_inventory(NodeInventory("node-0", (Device("gpu-0-0", 0, "A100", 8000),)))
    assert page.of("node-0").tag != first.tag
    before = page.of("node-0")
    fleet.forget_kubelet("node-0")
    assert page.of("node-0").tag != before.tag
