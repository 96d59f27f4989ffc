"""The algorithms: what each prefers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples
from tests.unit.core.kubelet.cpumanager.machines import machine, node

from purser.core.kubelet.config import CpuOptions
from purser.core.kubelet.cpumanager.distributed import take_distributed
from purser.core.kubelet.cpumanager.gosort import go_sorted
from purser.core.kubelet.cpumanager.packed import take_packed
from purser.core.kubelet.cpumanager.picking import take_cpus
from purser.core.kubelet.cpumanager.taking import NotTakenError
from purser.core.kubelet.cpumanager.topology import topology_of
from purser.core.kubelet.cpuset import format_cpuset, parse_cpuset
from purser.core.kubelet.machine import Machine
from purser.core.kubelet.versions import behaviour

VERSIONS = [(1, 20, 2), (1, 24, 0), (1, 36, 2), (1, 37, 2)]


def packed(on: Machine, available: str, count: int, **options: bool) -> str:
    return format_cpuset(take_packed(topology_of(node(on)), parse_cpuset(available), count, **options))


def distributed(on: Machine, available: str, count: int, group: int = 1, by_socket: bool = False) -> str:
    found = take_distributed(
        topology_of(node(on)),
        parse_cpuset(available),
        count,
        group,
        by_socket=by_socket,
        limits_shares=True,
        counted_errors=True,
    )
    return format_cpuset(found)


def test_distributed_gives_every_numa_node_the_same() -> None:
    two_nodes = machine(sockets=2)
    assert distributed(two_nodes, "0-15", 8) == "0-3,8-11"
    assert distributed(two_nodes, "0-15", 10) == "0-2,4-6,8-9,12-13"
    assert distributed(two_nodes, "0-15", 10, group=2) == "0-2,4-5,8-10,12-13"
    assert distributed(two_nodes, "0-15", 9, group=2) == packed(two_nodes, "0-15", 9)


def test_distributed_stays_in_one_socket_since_1_37() -> None:
    four_nodes = machine(sockets=2, numa_per_socket=2)
    free = "0-1,4-15"  # the second node's and the third one's CPUs balance best, and are of two sockets
    assert distributed(four_nodes, free, 6) == "4-6,8-10"
    assert distributed(four_nodes, free, 6, by_socket=True) == "8-10,12-14"
    both = CpuOptions(distribute_cpus_across_numa=True, align_by_socket=True)
    for version, found in (((1, 36, 3), "4-6,8-10"), ((1, 37, 2), "8-10,12-14")):
        taken = take_cpus(behaviour(version), both, topology_of(node(four_nodes)), parse_cpuset(free), 6)
        assert format_cpuset(taken) == found


CHOICES = st.fixed_dictionaries(
    {
        "sockets": st.integers(1, 3),
        "numa_per_socket": st.integers(1, 3),
        "cores": st.integers(1, 6),
        "threads": st.integers(1, 3),
        "caches": st.integers(1, 2),
    }
)
OPTIONS = st.sampled_from(
    [
        CpuOptions(),
        CpuOptions(distribute_cpus_across_numa=True),
        CpuOptions(distribute_cpus_across_numa=True, full_pcpus_only=True),
        CpuOptions(distribute_cpus_across_numa=True, align_by_socket=True),
        CpuOptions(distribute_cpus_across_cores=True),
        CpuOptions(prefer_align_cpus_by_uncorecache=True),
    ]
)


@examples(300)
@given(CHOICES, OPTIONS, st.sampled_from(VERSIONS), st.integers(0, (1 << 162) - 1), st.data())
def test_whatever_is_picked_is_available_and_as_many_as_asked_for(
    shape: dict[str, int], options: CpuOptions, version: tuple[int, int, int], some: int, data: st.DataObject
) -> None:
    on = machine(**shape)
    available = some & on.all_cpus
    count = data.draw(st.integers(0, available.bit_count()), "count")
    try:
        picked = take_cpus(behaviour(version), options, topology_of(node(on)), available, count)
    except NotTakenError as error:
        assert str(error).startswith("accounting error"), "kubelet's own slip is the only excuse"
        assert options.distribute_cpus_across_numa
        return
    assert picked & ~available == 0
    assert picked.bit_count() == count


@given(st.lists(st.integers(0, 60), max_size=300))
def test_with_a_consistent_comparison_gos_sort_sorts(numbers: list[int]) -> None:
    assert go_sorted(numbers, lambda one, other: one < other) == sorted(numbers)


@pytest.mark.parametrize("size", [13, 60, 300])
def test_gos_sort_sorts_patterns(size: int) -> None:
    organ_pipe = [*range(size), *range(size, 0, -1)]
    sawtooth = [place % 7 for place in range(size)]
    for numbers in (organ_pipe, sawtooth, [*range(size)][::-1], [5] * size, [*range(size - 1), 0]):
        assert go_sorted(numbers, lambda one, other: one < other) == sorted(numbers)
