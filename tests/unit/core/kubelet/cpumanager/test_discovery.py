"""What becomes of the hardware that cadvisor found."""

import pytest
from tests.unit.core.kubelet.cpumanager.machines import machine

from purser.core.kubelet.config import KubeletConfig
from purser.core.kubelet.cpumanager.topology import topology_of
from purser.core.kubelet.machine import DiscoveredCore, DiscoveredNode, DiscoveryError, NumaNode, discover
from purser.core.kubelet.state import KubeletNode


def test_where_the_uncore_cache_is_unknown_the_socket_stands_for_it() -> None:
    found = discover([DiscoveredNode(NumaNode(0), (DiscoveredCore((0,), socket=5), DiscoveredCore((1,), 5, uncore=2)))])
    assert [cpu.uncore for cpu in found.cpus] == [5, 2]


def test_numa_nodes_without_cpus_are_nodes_all_the_same() -> None:
    found = machine(sockets=2, without_cpus=32)
    assert len(found.numa_nodes) == 34
    assert set(found.cpus_by_numa) == {0, 1}


@pytest.mark.parametrize(
    ("threads", "message"),
    [((), "no cpus provided"), ((2, 2), "cpus provided are not unique")],
)
def test_a_core_that_cannot_be_is_an_error(threads: tuple[int, ...], message: str) -> None:
    with pytest.raises(DiscoveryError, match=f"^{message}$"):
        discover([DiscoveredNode(NumaNode(0), (DiscoveredCore(threads),))])


@pytest.mark.parametrize(("version", "sockets"), [("v1.20.2", 4), ("v1.21.14", 4), ("v1.22.0", 2), ("v1.36.2", 2)])
def test_up_to_1_21_every_numa_node_counts_as_a_socket(version: str, sockets: int) -> None:
    topology = topology_of(KubeletNode(KubeletConfig(version=version), machine(sockets=2, numa_per_socket=2)))
    assert topology.num_sockets == sockets
    assert topology.cpus_per_socket == 32 // sockets
