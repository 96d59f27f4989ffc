"""Which pods have processes, by a made /proc; and what an agent does about pods that vanished and run."""

import pytest
from tests.unit.agent.builders import part
from tests.unit.agent.conftest import eventually, uuids_of
from tests.unit.agent.emulated_kubelet import Rejected

from purser.agent import processes
from purser.agent.processes import pods_with_processes

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


async def test_a_pod_that_vanished_holds_its_gpu_until_its_processes_have_ended(world, kubelet, tmp_path, monkeypatch):
    """As after a restore of etcd, where kubelet restarts, too: neither of them knows the pod any more."""
    monkeypatch.setattr(processes, "PROC", tmp_path)
    uuid = world.uuids[0]
    async with world.agent(resolve_timeout_s=0.3) as agent:
        await eventually(agent.ready)
        grant = await world.pod("old", part("main", uuid, memory_mib=15000))
        await kubelet.admit("default/old", [("main", 1)])
        running = process(tmp_path, 10, f"/kubepods/pod{grant.pod_uid}/{CONTAINER}")
        kubelet.remove("default/old")
        await world.delete_pod("old")
        await world.pod("early", part("main", uuid, memory_mib=15000))
        with pytest.raises(Rejected, match="another pod got it first"):
            await kubelet.admit("default/early", [("main", 1)])
        kubelet.remove("default/early")
        await world.delete_pod("early")
        (running / "stat").write_text("10 (python3) Z 1")
        await world.pod("new", part("main", uuid, memory_mib=15000))
        await kubelet.admit("default/new", [("main", 1)])
        assert uuids_of(kubelet.pods["default/new"]["main"]) == [uuid]
