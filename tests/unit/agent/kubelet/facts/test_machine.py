"""sysfs trees of real shapes, counted as cadvisor does."""

import pytest

from purser.agent.kubelet.facts.machine import read_machine
from purser.core.kubelet.machine import Cpu, DiscoveryError, NumaNode

MIB = 1 << 20


def write(root, files):
    for name, text in files.items():
        path = root / "devices/system" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="ascii")


def cpu(number, core, package, l3=None, l3_id=None):
    """One CPU's files; ``l3``: the CPUs that share its last level cache."""
    files = {
        f"cpu/cpu{number}/topology/core_id": core,
        f"cpu/cpu{number}/topology/physical_package_id": package,
        f"cpu/cpu{number}/cache/index0/level": 1,
        f"cpu/cpu{number}/cache/index0/id": number,
        f"cpu/cpu{number}/cache/index0/shared_cpu_list": number,
    }
    if l3 is not None:
        files[f"cpu/cpu{number}/cache/index3/level"] = 3
        files[f"cpu/cpu{number}/cache/index3/shared_cpu_list"] = l3
    if l3_id is not None:
        files[f"cpu/cpu{number}/cache/index3/id"] = l3_id
    return files


def node(number, cpus, memory_kib=1024, distance="10"):
    return {
        f"node/node{number}/cpulist": cpus,
        f"node/node{number}/meminfo": f"Node {number} MemTotal:       {memory_kib} kB\nNode {number} MemFree: 3 kB",
        f"node/node{number}/distance": distance,
    }


def test_two_sockets_whose_core_ids_repeat(tmp_path):
    write(tmp_path, node(0, "0-1,4-5", 2048, "10 21") | node(1, "2-3,6-7", 4096, "21 10"))
    for number in range(8):
        write(tmp_path, cpu(number, number % 2, number % 4 // 2, "0-1,4-5" if number % 4 < 2 else "2-3,6-7", 7))
    machine = read_machine(tmp_path)
    assert machine.numa_nodes == (
        NumaNode(0, {"memory": 2 * MIB}, (10, 21)),
        NumaNode(1, {"memory": 4 * MIB}, (21, 10)),
    )
    assert [(c.cpu, c.numa, c.socket, c.core) for c in machine.cpus] == [
        (n, n % 4 // 2, n % 4 // 2, n % 4) for n in range(8)
    ]
    assert {c.uncore for c in machine.cpus} == {0, 1}, "a cache of the whole node is no uncore cache: the socket counts"
    assert machine.num_sockets == 2


def test_caches_that_a_part_of_a_node_shares_are_uncore_caches(tmp_path):
    write(tmp_path, node(0, "0-3"))
    for number in range(4):
        write(tmp_path, cpu(number, number, 0, "0-1" if number < 2 else "2-3", 40 + number // 2))
    assert [c.uncore for c in read_machine(tmp_path).cpus] == [40, 40, 41, 41]


def test_a_cache_without_a_number_has_number_0(tmp_path):
    write(tmp_path, node(0, "0-1") | cpu(0, 0, 0, "0") | cpu(1, 1, 0, "1"))
    assert [c.uncore for c in read_machine(tmp_path).cpus] == [0, 0]


def test_nodes_without_cpus_or_memory_count(tmp_path):
    write(tmp_path, node(0, "0") | cpu(0, 0, 0) | node(2, "", 4) | node(10, ""))
    (tmp_path / "devices/system/node/node10/meminfo").unlink()
    (tmp_path / "devices/system/node/node10/distance").unlink()
    assert read_machine(tmp_path).numa_nodes == (
        NumaNode(0, {"memory": MIB}, (10,)),
        NumaNode(2, {"memory": 4096}, (10,)),
        NumaNode(10, {"memory": 0}),
    )


def test_hugepages_are_bytes_by_the_resources_name(tmp_path):
    pages = {"2048kB": 3, "1048576kB": 2, "64kB": 1, "16777216kB": 0}
    write(tmp_path, node(0, "0") | cpu(0, 0, 0))
    write(tmp_path, {f"node/node0/hugepages/hugepages-{size}/nr_hugepages": count for size, count in pages.items()})
    assert read_machine(tmp_path).numa_nodes[0].memory == {
        "memory": MIB,
        "hugepages-64Ki": 65536,
        "hugepages-2Mi": 6 * MIB,
        "hugepages-1Gi": 2048 * MIB,
        "hugepages-16Gi": 0,
    }


def test_cpus_that_are_offline_or_have_no_core_do_not_count(tmp_path):
    write(tmp_path, node(0, "0-3") | cpu(0, 0, 0) | cpu(1, 0, 0) | cpu(2, 1, 0) | {"cpu/cpu1/online": 0})
    write(tmp_path, {"cpu/cpu2/online": 1})
    assert [c.cpu for c in read_machine(tmp_path).cpus] == [0, 2]


def test_without_numa_nodes_every_package_is_one(tmp_path):
    write(tmp_path, cpu(0, 0, 0) | cpu(1, 0, 1) | {"cpu/online": "0-1"})
    machine = read_machine(tmp_path)
    assert machine.cpus == (Cpu(0, 0, 0, 0, 0), Cpu(1, 1, 1, 1, 1))
    assert machine.numa_nodes == (NumaNode(0, {"memory": 0}), NumaNode(1, {"memory": 0}))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        pytest.param({}, "could not detect number of cpus", id="nothing"),
        pytest.param({"node/node0/cpulist": "zero"}, "is not a CPU list", id="no list"),
        pytest.param({"node/node0/meminfo": "MemTotal: 1 kB"}, "cannot read .*cpulist", id="no list at all"),
        pytest.param({"node/node0/distance": "ten"}, "does not contain numbers", id="no numbers"),
        pytest.param({"cpu/cpu0/topology/core_id": ""}, "0 numbers instead of one", id="an empty file"),
    ],
)
def test_what_is_no_machine_is_an_error_that_says_where(tmp_path, files, message):
    if files:
        write(tmp_path, node(0, "0") | cpu(0, 0, 0) | files)
    if "node/node0/meminfo" in files:
        (tmp_path / "devices/system/node/node0/cpulist").unlink()
    with pytest.raises(DiscoveryError, match=message):
        read_machine(tmp_path)


def test_this_machine_is_one():
    machine = read_machine()
    assert machine.all_cpus
    assert machine.cpus_by_numa
