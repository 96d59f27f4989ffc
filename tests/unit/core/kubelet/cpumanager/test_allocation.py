"""Which exclusive CPUs a container gets, and why it may get none."""

import pytest
from tests.unit.core.kubelet.cpumanager.machines import container, machine, node, pod

from purser.core.kubelet.config import KubeletConfig
from purser.core.kubelet.cpumanager import CpuRefusal, allocate, start
from purser.core.kubelet.cpuset import format_cpuset, parse_cpuset
from purser.core.kubelet.machine import Machine
from purser.core.kubelet.state import CpuState, KubeletNode
from purser.core.pod.manifest import ContainerKind

TWO_NODES = machine(sockets=2)
"""NUMA node 0 has CPUs 0-3 and 8-11, node 1 4-7 and 12-15; core n has CPUs n and n + 8."""

INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP


def refused(on: KubeletNode, cpus: float, state: CpuState | None = None, mask: int | None = None) -> CpuRefusal | None:
    before = state or start(on)
    asks = container("c", cpus)
    after, answer, reusable = allocate(on, before, pod(asks), asks, mask, 0)
    assert answer is None or (after is before and reusable == 0)
    return answer


def taken(on: KubeletNode, cpus: int, mask: int | None, state: CpuState | None = None) -> str:
    asks = container("c", cpus)
    after, answer, _ = allocate(on, state or start(on), pod(asks), asks, mask, 0)
    assert after is not None and answer is None
    return format_cpuset(after.exclusive["pod", "c"])


def test_aligned_by_socket_the_rest_of_the_socket_comes_before_other_sockets() -> None:
    four = machine(sockets=2, numa_per_socket=2, cores=2)
    state = CpuState(default=parse_cpuset("0,2-15"), reserved=1, exclusive={("other", "c"): 1 << 1})
    assert taken(node(four, align_by_socket=True), 6, 0b0001, state) == "2-3,8-11"
    assert taken(node(four), 4, 0b0001, CpuState(parse_cpuset("0,6-9,14-15"), 1)) == "6,8-9,14"


def test_policy_none_gives_nothing_and_refuses_nobody() -> None:
    asks = pod(container("c", 2))
    assert allocate(KubeletNode(KubeletConfig(), TWO_NODES), None, asks, asks.containers[0], None, 0) == (None, None, 0)


NOT_WHOLE = "SMT Alignment Error: requested {} cpus not multiple cpus per core = 2"
NOT_FREE = (
    "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {}, requested CPUs = {}, "
    "CPUs per core = 2"
)


@pytest.mark.parametrize(
    ("version", "cpus", "default", "message"),
    [
        ("v1.36.2", 3, "0-15", NOT_WHOLE.format(3)),
        ("v1.36.2", 14, "0-15", None),
        ("v1.36.2", 14, "0-13,15", NOT_FREE.format(13, 14)),
        ("v1.36.2", 2, "0,8", NOT_FREE.format(0, 2)),
        ("v1.31.0", 2, "0,8", NOT_WHOLE.format(2)),
        ("v1.27.0", 14, "0-13,15", NOT_FREE.format(13, 14)),
        ("v1.26.0", 14, "0-13,15", None),
    ],
)
def test_with_full_pcpus_only_whole_cores_or_nothing(
    version: str, cpus: int, default: str, message: str | None
) -> None:
    whole = node(TWO_NODES, version=version, full_pcpus_only=True)
    answer = refused(whole, cpus, CpuState(default=parse_cpuset(default), reserved=1))
    assert (answer and answer.message) == message
    assert answer is None or answer.reason == "SMTAlignmentError"


def test_on_a_machine_without_cpus_nobody_gets_any() -> None:
    for whole in (False, True):
        answer = refused(node(Machine(), full_pcpus_only=whole), 2, CpuState(default=0, reserved=0))
        assert answer is not None


@pytest.mark.parametrize(("version", "is_refused"), [("v1.36.3", True), ("v1.37.0", False)])
def test_full_pcpus_only_is_checked_even_where_the_container_has_its_cpus(version: str, is_refused: bool) -> None:
    asks = pod(container("c", 14))
    state = CpuState(default=parse_cpuset("0,8"), reserved=1, exclusive={("pod", "c"): parse_cpuset("1-7,9-15")})
    whole = node(TWO_NODES, version=version, full_pcpus_only=True)
    after, answer, _ = allocate(whole, state, asks, asks.containers[0], None, 0)
    assert after is state
    assert (answer is not None and answer.reason == "SMTAlignmentError") is is_refused
