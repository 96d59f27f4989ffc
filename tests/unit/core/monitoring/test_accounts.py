"""Whose a GPU's memory and time are."""

from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples

from purser.core.monitoring.accounts import (
    ContainerUse,
    GpuMemory,
    OwnerKind,
    PodContainer,
    PodContainers,
    ProcessUse,
    account,
    find_owner,
)
from purser.core.monitoring.cgroups import CgroupOwner

A = PodContainer("team", "a", "uid-a", "main")
B = PodContainer("team", "b", "uid-b", "main")
GPU, OTHER = "GPU-1", "MIG-1"


def use(
    pid: int, memory: int | None, owner: PodContainer | None = A, sm: int | None = None, device: str = GPU
) -> ProcessUse:
    return ProcessUse(pid, device, memory, sm, owner)


def test_processes_add_up_by_container_and_device() -> None:
    found = account(
        GPU, None, [use(1, 5, sm=20), use(2, 7, sm=30), use(3, 11, device=OTHER), use(4, None, B), use(5, 13, None)]
    )
    assert found.containers == (
        ContainerUse(A, GPU, 12, 50),
        ContainerUse(A, OTHER, 11, None),
        ContainerUse(B, GPU, None, None),
    )
    assert [process.pid for process in found.foreign] == [5]
    assert found.memory == {}, "the driver did not tell how much there is"


def test_what_no_process_has_is_the_drivers_or_idle() -> None:
    found = account(GPU, GpuMemory(total=100, free=50, used=42, reserved=8), [use(1, 30), use(2, 10, None)])
    assert found.memory == {OwnerKind.PODS: 30, OwnerKind.FOREIGN: 10, OwnerKind.DRIVER: 10, OwnerKind.IDLE: 50}


amounts = st.integers(0, 150)


@examples(200)
@given(amounts, amounts, st.lists(st.tuples(amounts | st.none(), st.sampled_from([A, B, None])), max_size=6))
def test_the_owners_parts_are_always_the_whole(
    total: int, free: int, processes: list[tuple[int | None, PodContainer | None]]
) -> None:
    """The calls are not of one moment: processes may have more than there is."""
    memory = GpuMemory(total, free, total - free)
    parts = account(GPU, memory, [use(pid, each, owner) for pid, (each, owner) in enumerate(processes)]).memory
    assert sum(parts.values()) == total
    assert set(parts) == set(OwnerKind)
    assert min(parts.values()) >= 0


def test_a_process_is_of_the_container_whose_id_its_pod_names() -> None:
    pods = {
        "uid-a": PodContainers("uid-a", "team", "a", {"1f": "main"}),
        "hash": PodContainers("uid-s", "kube-system", "s"),
    }
    assert find_owner(CgroupOwner("uid-a", "1f"), pods) == A
    assert find_owner(CgroupOwner("uid-a", "2e"), pods) == PodContainer("team", "a", "uid-a")
    assert find_owner(CgroupOwner("hash", "1f"), pods) == PodContainer("kube-system", "s", "uid-s"), "a static pod"
    assert find_owner(CgroupOwner("uid-gone", "1f"), pods) is None
    assert find_owner(None, pods) is None
