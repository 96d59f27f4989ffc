"""Which pods have processes, by a made /proc; and what an agent does about pods that vanished and run."""

import asyncio

import pytest
from tests.unit.agent.builders import part
from tests.unit.agent.conftest import eventually
from tests.unit.agent.emulated_kubelet import Rejected

from purser.agent.allocation import lingering, processes
from purser.agent.allocation.processes import pods_with_processes

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="module")]

UID = "0f8fad5b-d9cb-469f-a165-70867728950e"
OTHER = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
CONTAINER = "a" * 64


def process(proc, pid, path, state="S", name="python3"):
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "cgroup").write_text(f"0::{path}\n")
    (folder / "stat").write_text(f"{pid} ({name}) {state} 1 {pid} 0 -1")
    return folder


async def test_a_pod_runs_as_long_as_one_of_its_processes_does(tmp_path):
    systemd = f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{CONTAINER}.scope"
    process(tmp_path, 10, f"/kubepods/besteffort/pod{OTHER}/{CONTAINER}", "Z", "odd) S (name")
    process(tmp_path, 11, systemd, "Z")
    process(tmp_path, 12, systemd)
    process(tmp_path, 13, "/system.slice/cron.service")
    (tmp_path / "14").mkdir()
    (tmp_path / "meminfo").write_text("")
    assert pods_with_processes(tmp_path, {UID, OTHER}) == {UID}
    assert pods_with_processes(tmp_path, {OTHER}) == frozenset()


@pytest.fixture
def proc(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "PROC", tmp_path)
    monkeypatch.setattr(lingering, "START_WAIT_S", 0.2)
    monkeypatch.setattr(lingering, "SCAN_PERIOD_S", 0.01)
    return tmp_path


async def vanished(world, kubelet, proc, memory_mib):
    """A pod that runs, though neither the API server nor kubelet knows it any more, as after a restore of etcd."""
    grant = await world.pod("old", part("main", world.uuids[0], memory_mib=memory_mib))
    await kubelet.admit("default/old", [("main", 1)])
    running = process(proc, 10, f"/kubepods/pod{grant.pod_uid}/{CONTAINER}")
    kubelet.remove("default/old")
    await world.delete_pod("old")
    return running


async def admitted(world, kubelet, name, memory_mib):
    await world.pod(name, part("main", world.uuids[0], memory_mib=memory_mib))
    await kubelet.admit(f"default/{name}", [("main", 1)])
    return kubelet.pods[f"default/{name}"]["main"]


async def test_a_container_starts_when_the_processes_of_a_vanished_pod_have_ended(world, kubelet, proc, monkeypatch):
    async with world.agent() as agent:
        await eventually(agent.ready)
        running = await vanished(world, kubelet, proc, 15_000)
        ids = await admitted(world, kubelet, "new", 15_000)
        with pytest.raises(Rejected, match=r"processes of pod default/old \(uid .*\) still use GPU .* 30000 MiB"):
            await kubelet.pre_start(ids)
        await eventually(lambda: _has_event(world, "new", "DeviceInUse"))
    monkeypatch.setattr(lingering, "START_WAIT_S", 60.0)
    async with world.agent() as agent:  # the next agent has heard of it
        await eventually(agent.ready)
        looks = []
        monkeypatch.setattr(processes, "pods_with_processes", lambda *of: looks.append(of) or pods_with_processes(*of))
        starting = asyncio.create_task(kubelet.pre_start(ids))
        await eventually(lambda: len(looks) > 2)
        assert not starting.done()
        (running / "stat").write_text("10 (python3) Z 1")
        await starting


async def _has_event(world, pod, reason):
    return reason in [each for each, _ in await world.events(pod)]


async def test_a_container_that_fits_beside_it_starts_at_once(world, kubelet, proc):
    async with world.agent() as agent:
        await eventually(agent.ready)
        await vanished(world, kubelet, proc, 5_000)
        await kubelet.pre_start(await admitted(world, kubelet, "new", 5_000))
