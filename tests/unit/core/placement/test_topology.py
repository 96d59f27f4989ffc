"""topology-aware: which of a node's linked cards a container gets."""

import pytest

from purser.core.fleet import NodeState, node_state
from purser.core.interconnect import topology
from purser.core.ledger import Usage
from purser.core.model import (
    ContainerKind,
    ContainerRequest,
    Device,
    DeviceRequest,
    GpuPolicy,
    Link,
    NodeInventory,
    PcieLevel,
    PodRequest,
)
from purser.core.placement import Placement, candidates, place

TOPOLOGY, SPREAD, BINPACK = GpuPolicy.TOPOLOGY_AWARE, GpuPolicy.SPREAD, GpuPolicy.BINPACK
PAIRS = ((0, 2), (1, 3))
APP, INIT = ContainerKind.APP, ContainerKind.INIT


def node(*used: int, slots: int = 4) -> NodeState:
    """Four cards on one switch, two pairs of them with NVLinks; some hold a small share."""

    def links(card: int) -> tuple[Link, ...]:
        return tuple(
            Link(f"d{other}", PcieLevel.SINGLE_SWITCH, 2 if tuple(sorted((card, other))) in PAIRS else 0)
            for other in range(4)
            if other != card
        )

    cards = tuple(Device(f"d{card}", card, "A40", 48000, slots=slots, links=links(card)) for card in range(4))
    return node_state(NodeInventory("n", cards), {f"d{card}": Usage(1, 100, 0, pods=1) for card in used})


def chosen(state: NodeState, *containers: tuple[ContainerKind, int], cores: int = 0, policy=(TOPOLOGY,)):
    parts = tuple(
        ContainerRequest(f"c{i}", kind, DeviceRequest(count, memory_mib=100, cores_percent=cores))
        for i, (kind, count) in enumerate(containers)
    )
    verdict = place(state, PodRequest("u", "ns", "p", parts, gpu_policy=policy))
    assert isinstance(verdict, Placement), verdict
    return [{share.uuid for share in part.shares} for part in verdict.containers]


@pytest.mark.parametrize(("used", "pair"), [(0, {"d1", "d3"}), (3, {"d0", "d2"})])
def test_two_whole_gpus_are_a_pair(used: int, pair: set[str]) -> None:
    assert chosen(node(used), (APP, 2), cores=100) == [pair]


def test_shares_of_two_gpus_take_the_open_one_and_its_partner() -> None:
    assert chosen(node(3), (APP, 2)) == [{"d1", "d3"}]


def test_who_asks_to_spread_gets_an_idle_gpu() -> None:
    assert chosen(node(0, 1, 2), (APP, 1), policy=(SPREAD, TOPOLOGY)) == [{"d3"}]


def test_who_asks_to_pack_gets_the_fullest_of_the_open_gpus() -> None:
    state = node_state(node().inventory, {"d1": Usage(1, 100, 0, pods=1), "d3": Usage(2, 200, 0, pods=2)})
    assert chosen(state, (APP, 1), policy=(BINPACK, TOPOLOGY)) == [{"d3"}]


def test_an_open_gpu_without_a_free_slot_does_not_count() -> None:
    assert chosen(node(0, slots=1), (APP, 1)) == [{"d2"}]


def test_the_app_container_extends_the_set_of_its_init_container() -> None:
    init, app = chosen(node(), (INIT, 1), (APP, 2), cores=100)
    assert init < app
    assert app in ({"d0", "d2"}, {"d1", "d3"})


def test_the_links_of_a_node_are_read_once_for_all_containers_of_a_pod(monkeypatch):
    module, read = candidates, []

    def noted(devices):
        read.append(devices)
        return topology(devices)

    monkeypatch.setattr(module, "topology", noted)
    assert len(chosen(node(), (APP, 1), (APP, 2), (APP, 1))) == 3
    assert len(read) == 1
