"""One GPU measured, and its processes' cgroups read: blocking, in a thread of its own."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from purser.agent.host.files import read_head
from purser.agent.nvml.driver import Driver, GpuProcess, Telemetry
from purser.core.monitoring.accounts import PodContainers, ProcessUse, find_owner
from purser.core.monitoring.cgroups import MAX_CGROUP_BYTES, CgroupOwner, owner_of


class GpuSample(msgspec.Struct, frozen=True):
    """What a GPU said, and whose its processes are."""

    at: float
    """Monotonic seconds at which it was asked."""
    telemetry: Telemetry
    cgroups: Mapping[int, CgroupOwner | None]
    """By pid; None: of no pod. A missing pid had ended before its file was read, or could not be read."""


def take_sample(driver: Driver, uuid: str, proc: Path, at: float) -> GpuSample:
    """Ask the driver, then read ``<proc>/<pid>/cgroup`` of the processes that it lists."""
    telemetry = driver.telemetry(uuid)
    cgroups: dict[int, CgroupOwner | None] = {}
    for process in processes_of(telemetry):
        if process.pid and process.pid not in cgroups:
            try:
                text = read_head(proc / str(process.pid) / "cgroup", MAX_CGROUP_BYTES)
            except OSError:
                continue
            cgroups[process.pid] = owner_of(text.decode("utf-8", "replace"))
    return GpuSample(at, telemetry, cgroups)


def processes_of(telemetry: Telemetry) -> tuple[GpuProcess, ...]:
    """The processes on a GPU, those on its MIG devices included."""
    inside = (process for each in telemetry.instances for process in each.processes or ())
    return (*(telemetry.processes or ()), *inside)


def uses_of(sample: GpuSample, pods: Mapping[str, PodContainers]) -> tuple[ProcessUse, ...]:
    """What processes have of a GPU, with their owners; ``pods`` by the uid that kubelet knows them by."""
    return tuple(
        ProcessUse(
            pid=process.pid,
            device=process.device or sample.telemetry.uuid,
            memory=process.memory,
            sm_percent=process.sm_percent,
            owner=find_owner(sample.cgroups[process.pid], pods),
        )
        for process in processes_of(sample.telemetry)
        if process.pid in sample.cgroups
    )
