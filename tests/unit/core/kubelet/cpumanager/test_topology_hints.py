"""Hints: the NUMA nodes on which CPUs can be had."""

import pytest
from tests.unit.core.kubelet.cpumanager.machines import container, machine, node, pod

from purser.core.kubelet.cpumanager import hints, pod_hints, start
from purser.core.kubelet.cpumanager.requests import pod_guaranteed_cpus
from purser.core.kubelet.hints import Hint
from purser.core.kubelet.pod import QosClass
from purser.core.kubelet.state import CpuState, KubeletNode
from purser.core.kubelet.versions import behaviour
from purser.core.pod.manifest import ContainerKind

TWO_NODES = node(machine(sockets=2))
"""NUMA node 0 has CPUs 0-3 and 8-11, node 1 4-7 and 12-15; CPU 0 is reserved."""


def cpu_hints(on: KubeletNode, cpus: int, state: CpuState | None = None, reusable: int = 0) -> tuple[Hint, ...] | None:
    asks = container("c", cpus)
    found = hints(on, state or start(on), pod(asks), asks, reusable)
    return None if found is None else found["cpu"]


def test_preferred_are_the_fewest_nodes_that_hold_the_request() -> None:
    assert cpu_hints(TWO_NODES, 7) == (Hint(0b01, True), Hint(0b10, True), Hint(0b11, False))
    assert cpu_hints(TWO_NODES, 9) == (Hint(0b11, True),)


def test_reserved_cpus_count_for_what_is_preferred_although_they_cannot_be_had() -> None:
    assert cpu_hints(TWO_NODES, 8) == (Hint(0b10, True), Hint(0b11, False))


def test_a_container_that_has_its_cpus_is_hinted_at_them() -> None:
    state = CpuState(0xFF0F, 1, {("pod", "c"): 0xF0})
    assert cpu_hints(TWO_NODES, 4, state) == (Hint(0b10, True), Hint(0b11, False))
    assert cpu_hints(TWO_NODES, 3, state) == ()


@pytest.mark.parametrize("cpus", [0, 0.5, 1.001])
def test_who_asks_for_no_whole_cpus_has_no_opinion(cpus: float) -> None:
    asks = container("c", cpus)
    assert hints(TWO_NODES, start(TWO_NODES), pod(asks), asks, 0) is None
    assert pod_hints(TWO_NODES, start(TWO_NODES), pod(asks)) is None


def test_only_guaranteed_pods_and_only_policy_static_have_hints() -> None:
    asks = container("c", 2)
    burstable = pod(asks, qos=QosClass.BURSTABLE)
    assert hints(TWO_NODES, start(TWO_NODES), burstable, asks, 0) is None
    assert hints(TWO_NODES, None, pod(asks), asks, 0) is None
    assert pod_hints(TWO_NODES, None, pod(asks)) is None


def test_nodes_without_cpus_are_not_combined() -> None:
    many = node(machine(sockets=2, without_cpus=32))
    assert cpu_hints(many, 2) == (Hint(0b01, True), Hint(0b10, True), Hint(0b11, False))


def test_aligned_by_socket_all_nodes_of_one_socket_are_preferred() -> None:
    by_socket = node(machine(sockets=2, numa_per_socket=2, cores=2), align_by_socket=True, reserved="0")
    preferred = {hint.mask for hint in cpu_hints(by_socket, 2) or () if hint.preferred}
    assert preferred == {0b0001, 0b0010, 0b0100, 0b1000, 0b0011, 0b1100}


INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP


@pytest.mark.parametrize(
    ("containers", "new", "old"),
    [
        ([(INIT, 5), (APP, 2), (APP, 2)], 5, 5),
        ([(INIT, 3), (APP, 2), (APP, 2)], 4, 4),
        ([(SIDECAR, 2), (INIT, 3), (APP, 2)], 5, 3),
        ([(INIT, 4), (SIDECAR, 2), (APP, 3)], 5, 4),
        ([(INIT, 1.5), (APP, 2), (APP, 0.5)], 2, 2),
    ],
)
def test_a_pod_asks_for_its_peak(containers: list[tuple[ContainerKind, float]], new: int, old: int) -> None:
    asks = pod(*(container(f"c{place}", cpus, kind) for place, (kind, cpus) in enumerate(containers)))
    assert pod_guaranteed_cpus(behaviour((1, 36, 2)), asks) == new
    assert pod_guaranteed_cpus(behaviour((1, 27, 0)), asks) == old


def test_a_pod_that_was_admitted_is_hinted_at_what_it_has() -> None:
    asks = pod(container("a", 2), container("b", 2))
    state = CpuState(0xFF0F, 1, {("pod", "a"): 0x30, ("pod", "b"): 0xC0})
    assert pod_hints(TWO_NODES, state, asks) == {"cpu": (Hint(0b10, True), Hint(0b11, False))}
    wrong_size = CpuState(0xFF1F, 1, {("pod", "a"): 0x20, ("pod", "b"): 0xC0})
    assert pod_hints(TWO_NODES, wrong_size, asks) == {"cpu": ()}


def test_a_pod_that_has_some_of_its_cpus_must_have_the_rest_beside_them() -> None:
    asks = pod(container("a", 2), container("b", 2))
    state = CpuState(0xFFCF, 1, {("pod", "a"): 0x30})
    assert pod_hints(TWO_NODES, state, asks) == {"cpu": (Hint(0b10, True), Hint(0b11, False))}
