"""The CPUs, NUMA nodes and memory of a profile, and its kubelet."""

import pytest

from purser.core.kubelet.config import CpuPolicy, TopologyPolicy
from purser.core.kubelet.cpuset import parse_cpuset
from purser.core.kubelet.versions import behaviour
from purser.lab.driver import profiles
from purser.lab.driver.machine import CpuLayout, NumaLayout, Siblings, machine_of
from purser.lab.kubelet.configuration import configure

GIB = 2**30


def core_of(machine, cpu):
    return next(each.core for each in machine.cpus if each.cpu == cpu)


def test_p5_has_two_numa_nodes_of_ninety_six_cpus_and_four_gpus():
    profile = profiles.load("p5.48xlarge")
    machine = profile.machine
    assert {node: cpus.bit_count() for node, cpus in machine.cpus_by_numa.items()} == {0: 96, 1: 96}
    assert [gpu.numa_node for gpu in profile.gpus] == [0] * 4 + [1] * 4
    assert machine.num_sockets == 2
    assert machine.cpus_by_core[5] == parse_cpuset("5,101")
    assert len(machine.cpus_by_uncore) == 12
    kubelet = configure(profile.kubelet, machine).config
    assert (kubelet.topology_policy, kubelet.cpu_policy) == (TopologyPolicy.SINGLE_NUMA_NODE, CpuPolicy.STATIC)
    assert kubelet.reserved_cpus == "0,96"


@pytest.mark.parametrize("name", profiles.names())
def test_every_shipped_machine_is_whole(name):
    profile = profiles.load(name)
    machine = profile.machine
    assert [cpu.cpu for cpu in machine.cpus] == list(range(len(machine.cpus)))
    assert sum(cpus.bit_count() for cpus in machine.cpus_by_core.values()) == len(machine.cpus)
    assert len({cpus.bit_count() for cpus in machine.cpus_by_core.values()}) == 1
    assert all(len(node.distances) == len(machine.numa_nodes) for node in machine.numa_nodes)
    assert {gpu.numa_node for gpu in profile.gpus} <= set(machine.cpus_by_numa)
    assert behaviour(configure(profile.kubelet, machine).config.parsed_version).has_memory_manager


def test_dgx_a100_has_four_numa_nodes_per_socket():
    machine = profiles.load("a100-40gb-8").machine
    assert machine.num_sockets == 2
    assert machine.cpus_by_socket[0] == parse_cpuset("0-63,128-191")
    assert machine.numa_nodes[0].distances == (10, 12, 12, 12, 21, 21, 21, 21)
    assert machine.cpus_by_uncore[1] == parse_cpuset("4-7,132-135")


def test_siblings_stand_apart_or_side_by_side():
    numa = (NumaLayout(0, "0-7"),)
    apart = machine_of(numa, CpuLayout(2))
    beside = machine_of(numa, CpuLayout(2, Siblings.ADJACENT))
    assert (core_of(apart, 4), core_of(apart, 1)) == (0, 1)
    assert (core_of(beside, 4), core_of(beside, 1)) == (4, 0)


def test_a_profile_without_numa_nodes_has_one():
    machine = machine_of((), CpuLayout())
    assert (machine.nodes_mask, len(machine.cpus), machine.num_sockets) == (1, 128, 1)


def test_given_distances_follow_the_nodes_numbers_whatever_their_order():
    numa = (NumaLayout(1, "2-3", distances=(10, 40)), NumaLayout(0, "0-1", distances=(20, 10)))
    machine = machine_of(numa, CpuLayout())
    assert [node.distances for node in machine.numa_nodes] == [(10, 20), (40, 10)]


def test_hugepages_are_kept_by_their_size():
    machine = machine_of((NumaLayout(0, "0", "4Gi", {"2Mi": "1Gi"}),), CpuLayout())
    assert machine.numa_nodes[0].memory == {"memory": 4 * GIB, "hugepages-2Mi": GIB}
