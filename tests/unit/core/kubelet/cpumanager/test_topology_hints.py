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


def test_only_guaranteed_pods_and_only_policy_static_have_hints() -> None:
    asks = container("c", 2)
    burstable = pod(asks, qos=QosClass.BURSTABLE)
    assert hints(TWO_NODES, start(TWO_NODES), burstable, asks, 0) is None
    assert hints(TWO_NODES, None, pod(asks), asks, 0) is None
    assert pod_hints(TWO_NODES, None, pod(asks)) is None


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


def test_a_pod_that_has_some_of_its_cpus_must_have_the_rest_beside_them() -> None:
    asks = pod(container("a", 2), container("b", 2))
    state = CpuState(0xFFCF, 1, {("pod", "a"): 0x30})
    assert pod_hints(TWO_NODES, state, asks) == {"cpu": (Hint(0b10, True), Hint(0b11, False))}
