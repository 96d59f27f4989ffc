"""The CPUs and NUMA nodes of a simulated node as the kernel would show them."""

import pytest

from purser.agent.kubelet.facts.machine import read_machine
from purser.core.kubelet.cpuset import format_cpuset, parse_cpuset
from purser.lab.driver import profiles
from purser.lab.driver.machine import CpuLayout, NumaLayout, machine_of
from purser.lab.driver.sysfs_machine import write_machine


def text(path):
    return path.read_text().strip()


SMALL = machine_of(
    (NumaLayout(0, "0-7", "8Gi"), NumaLayout(1, "8-15", "4Gi"), NumaLayout(2)),
    CpuLayout(2, sockets=2, cores_per_uncore_cache=2),
)


def test_the_tree_describes_the_machine(tmp_path):
    machine = SMALL
    write_machine(tmp_path, machine)
    write_machine(tmp_path, machine)
    system = tmp_path / "devices/system"
    assert text(system / "cpu/online") == format_cpuset(machine.all_cpus)
    assert text(system / "node/online") == format_cpuset(machine.nodes_mask)
    for cpu in machine.cpus:
        topology, cache = system / f"cpu/cpu{cpu.cpu}/topology", system / f"cpu/cpu{cpu.cpu}/cache/index3"
        assert int(text(topology / "physical_package_id")) == cpu.socket
        assert parse_cpuset(text(topology / "thread_siblings_list")) == machine.cpus_by_core[cpu.core]
        assert (text(cache / "level"), int(text(cache / "id"))) == ("3", cpu.uncore)
        assert parse_cpuset(text(cache / "shared_cpu_list")) == machine.cpus_by_uncore[cpu.uncore]
    for node in machine.numa_nodes:
        folder = system / f"node/node{node.node}"
        assert parse_cpuset(text(folder / "cpulist")) == machine.cpus_by_numa.get(node.node, 0)
        assert tuple(map(int, text(folder / "distance").split())) == node.distances
        total = text(folder / "meminfo").splitlines()[0].split()
        assert total == ["Node", str(node.node), "MemTotal:", str(node.memory["memory"] // 1024), "kB"]


@pytest.mark.parametrize(
    "machine",
    [
        SMALL,
        profiles.load("dgx1-v100").machine,
        profiles.load("a100-40gb-8").machine,
        profiles.load("gb200-nvl4").machine,
    ],
    ids=["small", "dgx1-v100", "a100-40gb-8", "gb200-nvl4"],
)
def test_an_agent_finds_the_machine_there(tmp_path, machine):
    write_machine(tmp_path, machine)
    assert read_machine(tmp_path) == machine


def test_core_ids_repeat_from_socket_to_socket_as_the_kernels_do(tmp_path):
    machine = machine_of((NumaLayout(0, "0-3"), NumaLayout(1, "4-7")), CpuLayout(2))
    write_machine(tmp_path, machine)
    folder = tmp_path / "devices/system/cpu"
    assert [text(folder / f"cpu{cpu}/topology/core_id") for cpu in range(8)] == list("01010101")


def test_hugepages_are_counted_by_size(tmp_path):
    machine = machine_of((NumaLayout(0, "0", "8Gi", {"2Mi": "1Gi", "1Gi": "2Gi"}),), CpuLayout())
    write_machine(tmp_path, machine)
    folder = tmp_path / "devices/system/node/node0/hugepages"
    assert text(folder / "hugepages-2048kB/nr_hugepages") == "512"
    assert text(folder / "hugepages-1048576kB/nr_hugepages") == "2"
