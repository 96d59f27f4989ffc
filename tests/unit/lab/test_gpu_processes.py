"""Processes on a node's GPUs, and the container that /proc says they are in."""

from pathlib import Path

import msgspec
import pytest

from purser.lab.driver import DriverKind, SimulatedDriver
from purser.lab.driver.parts import ProcessLoad
from purser.lab.kubelet.runtime import ContainerRecord, Runtime
from purser.lab.processes import CgroupDriver, CgroupVersion, GpuProcesses

UID = "0a1b2c3d-0000-4000-8000-00000000abcd"


class World:
    def __init__(self, folder: Path) -> None:
        self.driver = SimulatedDriver.create(folder / "d", "node-1", "t4-4", kind=DriverKind.PYTHON)
        self.runtime = Runtime(folder / "pods")
        self.root = folder / "root"
        self.processes = GpuProcesses(self.driver, self.runtime, self.root)

    def cgroup(self, pid: int) -> str:
        return (self.root / "proc" / str(pid) / "cgroup").read_text()

    def pids(self, gpu: int) -> list[int]:
        return [each.pid for each in self.driver.state.gpus[gpu].processes]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def record(container: str = "main", uid: str = UID, **fields: object) -> ContainerRecord:
    plain = {"pod_uid": uid, "namespace": "team", "pod": "train", "container": container, "env": {}, "started_at": 1.0}
    return msgspec.convert(plain | fields, ContainerRecord)


@pytest.mark.parametrize(
    ("qos", "version", "driver", "lines"),
    [
        (
            "Burstable",
            CgroupVersion.V2,
            CgroupDriver.SYSTEMD,
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b2c3d_0000_4000_8000_00000000abcd.slice/"
            "cri-containerd-{id}.scope\n",
        ),
        (
            "Guaranteed",
            CgroupVersion.V2,
            CgroupDriver.SYSTEMD,
            "0::/kubepods.slice/kubepods-pod0a1b2c3d_0000_4000_8000_00000000abcd.slice/cri-containerd-{id}.scope\n",
        ),
        ("Guaranteed", CgroupVersion.V2, CgroupDriver.CGROUPFS, f"0::/kubepods/pod{UID}/{{id}}\n"),
        (
            "BestEffort",
            CgroupVersion.V1,
            CgroupDriver.CGROUPFS,
            "".join(
                f"{number}:{name}:/kubepods/besteffort/pod{UID}/{{id}}\n"
                for number, name in (
                    (6, "memory"),
                    (5, "devices"),
                    (4, "cpuset"),
                    (3, "cpu,cpuacct"),
                    (2, "pids"),
                    (1, "name=systemd"),
                )
            ),
        ),
    ],
)
def test_a_process_is_in_its_containers_cgroup(
    world: World, qos: str, version: CgroupVersion, driver: CgroupDriver, lines: str
) -> None:
    container = record(qos=qos)
    pid = world.processes.start(0, ProcessLoad(memory_mib=5), container=container, version=version, driver=driver)
    assert world.cgroup(pid) == lines.format(id=container.id)
    assert len(container.id) == 64
    assert world.pids(0) == [pid]


def test_a_process_outside_pods_is_in_no_pods_cgroup(world: World) -> None:
    pid = world.processes.start(0, ProcessLoad(), pid=4711)
    assert pid == 4711
    assert "kubepods" not in world.cgroup(pid)


def test_a_process_uses_several_gpus_and_keeps_its_container(world: World) -> None:
    pid = world.processes.start(0, ProcessLoad(memory_mib=1), container=record())
    before = world.cgroup(pid)
    world.processes.start(1, ProcessLoad(memory_mib=2), pid=pid)
    assert world.cgroup(pid) == before
    assert world.pids(0) == world.pids(1) == [pid]
    world.processes.stop(pid)
    assert world.pids(0) == world.pids(1) == []
    with pytest.raises(LookupError, match=f"process {pid} does not use a GPU of node node-1"):
        world.processes.stop(pid)


def test_pids_are_new_ones(world: World) -> None:
    first = world.processes.start(0, ProcessLoad(), container=record())
    world.processes.stop(first)
    assert world.processes.start(0, ProcessLoad(), container=record()) == first + 1


def test_what_the_driver_refuses_leaves_nothing_behind(world: World) -> None:
    with pytest.raises(ValueError, match="free"):
        world.processes.start(0, ProcessLoad(memory_mib=10**6), container=record())
    with pytest.raises(LookupError, match="has no GPU 9"):
        world.processes.start(9, ProcessLoad(), pid=77)
    assert [path.name for path in (world.root / "proc").iterdir()] == ["sys"]


def test_a_pod_that_ends_takes_its_processes_along(world: World) -> None:
    gone = [world.processes.start(0, ProcessLoad(), container=record(), driver=driver) for driver in CgroupDriver]
    other = world.processes.start(0, ProcessLoad(), container=record(uid=UID.replace("a", "b")))
    world.processes.end_pod(UID)
    assert world.pids(0) == [other]
    assert not any((world.root / "proc" / str(pid)).exists() for pid in gone)


def test_containers_are_found_by_name(world: World) -> None:
    world.runtime.start(record("init"))
    world.runtime.start(record("main", started_at=2.0))
    assert world.processes.container("team", "train").container == "main"
    assert world.processes.container("team", "train", "init").container == "init"
    with pytest.raises(LookupError, match="has no container x: must be one of init, main"):
        world.processes.container("team", "train", "x")
    with pytest.raises(LookupError, match="pod team/other is not running on node node-1"):
        world.processes.container("team", "other")
