"""Whose the memory and the time of a GPU are: processes by container, and the whole by kind of owner. Pure.

Memory is in bytes.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from purser.core.monitoring.cgroups import CgroupOwner


class OwnerKind(StrEnum):
    """Who has a GPU's memory; the four are all of it."""

    PODS = "pods"
    FOREIGN = "foreign"
    """Processes of no pod."""
    DRIVER = "driver"
    """What the driver keeps for itself, and what it says is in use and lists no process for."""
    IDLE = "idle"


class GpuMemory(msgspec.Struct, frozen=True):
    """Memory of a GPU, or of a GPU instance of MIG."""

    total: int
    free: int
    used: int
    reserved: int | None = None
    """What the driver keeps for itself; None: it counts that as used (before R510)."""


class PodContainers(msgspec.Struct, frozen=True):
    """A pod of the node, as its processes are looked up."""

    uid: str
    namespace: str
    name: str
    containers: Mapping[str, str] = {}
    """Name by the container's id."""


class PodContainer(msgspec.Struct, frozen=True, order=True):
    """Whose a process is."""

    namespace: str
    pod: str
    pod_uid: str
    container: str = ""
    """Empty: none that the pod's status names."""


class ProcessUse(msgspec.Struct, frozen=True):
    """What one process has of one GPU."""

    pid: int
    device: str
    """UUID of the GPU, or of the MIG device that the process runs on."""
    memory: int | None
    """None: the driver does not report it."""
    sm_percent: int | None
    """Share of the GPU's compute that it used lately; None: the driver does not report it."""
    owner: PodContainer | None
    """None: no pod of this node."""


class ContainerUse(msgspec.Struct, frozen=True):
    """What one container has of one GPU."""

    owner: PodContainer
    device: str
    memory: int | None
    """None: the driver reports it for none of its processes."""
    sm_percent: int | None


class GpuAccount(msgspec.Struct, frozen=True):
    """One GPU at one moment."""

    uuid: str
    memory: Mapping[OwnerKind, int]
    """Sums up to the GPU; empty where the driver does not report the GPU's total."""
    containers: tuple[ContainerUse, ...]
    foreign: tuple[ProcessUse, ...]


def find_owner(found: CgroupOwner | None, pods: Mapping[str, PodContainers]) -> PodContainer | None:
    """The container that a process' cgroup means, of these pods by the uid that kubelet knows them by."""
    pod = None if found is None else pods.get(found.pod_uid)
    if found is None or pod is None:
        return None
    return PodContainer(pod.namespace, pod.name, pod.uid, pod.containers.get(found.container_id, ""))


def account(uuid: str, memory: GpuMemory | None, processes: Iterable[ProcessUse]) -> GpuAccount:
    """Who has what of a GPU."""
    listed = tuple(processes)
    foreign = tuple(process for process in listed if process.owner is None)
    containers = _by_container(listed)
    held = {
        OwnerKind.PODS: sum(use.memory or 0 for use in containers),
        OwnerKind.FOREIGN: sum(process.memory or 0 for process in foreign),
    }
    return GpuAccount(uuid, {} if memory is None else _scaled_to_total(memory, held), containers, foreign)


def _by_container(processes: Iterable[ProcessUse]) -> tuple[ContainerUse, ...]:
    found: dict[tuple[PodContainer, str], list[ProcessUse]] = {}
    for process in processes:
        if process.owner is not None:
            found.setdefault((process.owner, process.device), []).append(process)
    return tuple(
        ContainerUse(
            owner,
            device,
            _sum_known(process.memory for process in its),
            _sum_known(process.sm_percent for process in its),
        )
        for (owner, device), its in sorted(found.items())
    )


def _sum_known(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _scaled_to_total(memory: GpuMemory, held: Mapping[OwnerKind, int]) -> dict[OwnerKind, int]:
    """The driver answers call by call, and processes come and go meanwhile: what does not fit any more is cut off, so
    that the parts are always the whole."""
    parts: dict[OwnerKind, int] = {}
    left = memory.total
    for kind, amount in (*held.items(), (OwnerKind.IDLE, memory.free)):
        parts[kind] = min(max(0, amount), left)
        left -= parts[kind]
    return {**parts, OwnerKind.DRIVER: left}
