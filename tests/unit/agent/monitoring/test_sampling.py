"""GPUs are measured once per interval, each by itself, and nothing is exported for longer than it is true."""

import asyncio
import threading
from pathlib import Path

import pytest
from tests.unit.agent.builders import A, B
from tests.unit.kube.servers import ManualClock

from purser.agent.monitoring.reading import take_sample, uses_of
from purser.agent.monitoring.sampling import Sampler
from purser.agent.nvml import GpuProcess, InstanceTelemetry, NullDriver, Telemetry
from purser.agent.settings import AgentSettings
from purser.core.monitoring.accounts import PodContainer, PodContainers, ProcessUse
from purser.core.monitoring.cgroups import CgroupOwner
from purser.kube.failures import ObjectFailures

UID = "0f3ad3a2-9c1b-4f6e-8d57-0a4b5c6d7e8f"
ID = "ab" * 32


class Driver(NullDriver):
    def __init__(self) -> None:
        super().__init__("")
        self.asked: list[str] = []
        self.hanging: dict[str, threading.Event] = {}
        self.raising: set[str] = set()

    def telemetry(self, uuid: str) -> Telemetry:
        self.asked.append(uuid)
        if uuid in self.hanging:
            self.hanging[uuid].wait()
        if uuid in self.raising:
            raise ValueError("which no driver should")
        return Telemetry(uuid=uuid, fields={"DCGM_FI_DEV_GPU_TEMP": len(self.asked)})


class World:
    def __init__(self, folder: Path) -> None:
        self.driver, self.clock, self.uuids = Driver(), ManualClock(), [A, B]
        self.settings = AgentSettings(
            node_name="n", host_root=folder, telemetry_interval_s=0.05, telemetry_max_age_s=30
        )
        self.sampler = Sampler(self.settings, lambda: self.driver, lambda: self.uuids, ObjectFailures(), self.clock)

    async def take(self) -> set[str]:
        return set(await self.sampler.take())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_a_gpu_that_hangs_is_not_asked_again_and_its_last_sample_expires(world: World) -> None:
    assert await world.take() == {A, B}
    release = world.driver.hanging[A] = threading.Event()
    for _ in range(3):
        world.clock.advance(10)
        assert await world.take() == {B}
    assert world.driver.asked.count(A) == 2
    assert world.sampler.fresh.keys() == {A, B}, "thirty seconds are not too old"
    world.clock.advance(0.1)
    assert world.sampler.fresh.keys() == {B}
    assert world.sampler.ages_s[A] == pytest.approx(30.1)
    release.set()
    async with asyncio.timeout(60):
        while A not in await world.take():
            pass
    assert world.sampler.ages_s[A] == pytest.approx(20.1), "what comes late is as old as the question"


async def test_nobody_waits_again_for_a_gpu_that_hangs(world: World) -> None:
    release = world.driver.hanging[A] = threading.Event()
    assert await world.take() == {B}
    object.__setattr__(world.settings, "telemetry_interval_s", 600)
    async with asyncio.timeout(60):
        assert await world.take() == {B}
    release.set()


async def test_a_driver_that_raises_costs_that_gpu_alone(world: World) -> None:
    world.driver.raising = {A}
    assert await world.take() == {B}
    world.driver.raising = set()
    assert await world.take() == {A, B}


async def test_a_gpu_that_is_gone_is_forgotten(world: World) -> None:
    await world.take()
    world.uuids = [B]
    assert await world.take() == {B}
    assert world.sampler.ages_s.keys() == {B}


# --- whose processes they are


class Busy(NullDriver):
    def telemetry(self, uuid: str) -> Telemetry:
        inside = InstanceTelemetry(
            id=1, devices=("MIG-1",), fields={}, memory=None, processes=(GpuProcess(3, 30, None, "MIG-1"),)
        )
        processes = (GpuProcess(1, 10, 5), GpuProcess(2, 20, None), GpuProcess(0, 7, None), GpuProcess(9, 8, None))
        return Telemetry(uuid=uuid, processes=processes, instances=(inside,))


def test_processes_are_looked_up_below_the_hosts_proc(tmp_path: Path) -> None:
    texts = {1: f"0::/kubepods/pod{UID}/{ID}\n", 2: "0::/system.slice/x.service\n", 3: f"0::/kubepods/pod{UID}\n"}
    for pid, text in texts.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(text)
    sample = take_sample(Busy(""), A, tmp_path, 1.0)
    assert sample.cgroups == {1: CgroupOwner(UID, ID), 2: None, 3: CgroupOwner(UID)}
    pods = {UID: PodContainers(UID, "ns", "p", {ID: "main"})}
    assert uses_of(sample, pods) == (
        ProcessUse(1, A, 10, 5, PodContainer("ns", "p", UID, "main")),
        ProcessUse(2, A, 20, None, None),
        ProcessUse(3, "MIG-1", 30, None, PodContainer("ns", "p", UID)),
    ), "a process that has ended, and one that is not of this host's PID namespace, are nobody's"


def test_a_pipe_in_a_files_place_is_not_waited_for(tmp_path: Path) -> None:
    import os

    (tmp_path / "1").mkdir()
    os.mkfifo(tmp_path / "1" / "cgroup")
    assert take_sample(Busy(""), A, tmp_path, 1.0).cgroups == {}
