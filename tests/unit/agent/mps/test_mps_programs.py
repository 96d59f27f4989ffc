"""The programs of MPS are found below the driver's root, and run in it."""

import ctypes
import os
from pathlib import Path

import pytest
from tests.unit.agent.mps.conftest import compile_stub, eventually

from purser.agent.inventory.driver_roots import driver_place
from purser.agent.mps.control import MpsControl
from purser.agent.mps.folders import folders_of
from purser.agent.mps.programs import MpsError, MpsPrograms, find_programs
from purser.agent.settings import AgentSettings
from purser.core.sharing import PluginSettings

pytestmark = pytest.mark.processes

CLONE_NEWNS = 0x00020000


def may_mount():
    """Whether a process here gets mounts of its own, as the agent does."""
    pid = os.fork()
    if pid == 0:
        os._exit(ctypes.CDLL(None).unshare(CLONE_NEWNS) != 0)
    return os.waitpid(pid, 0)[1] == 0


def a_driver(root, *, dev=True):
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/nvidia-cuda-mps-control").touch()
    (root / "usr/lib64").mkdir()
    (root / "usr/lib64/libnvidia-ml.so.1").touch()
    if dev:
        (root / "dev/shm").mkdir(parents=True)
    return root


def found(tmp_path, **settings):
    return in_place(AgentSettings(node_name="n", host_root=tmp_path, **settings))


def in_place(settings):
    roots = settings.driver_root_file, settings.driver_roots, settings.host_root
    return find_programs(settings, driver_place(PluginSettings(), *roots))


def test_the_nodes_own_driver(tmp_path):
    a_driver(tmp_path)
    assert found(tmp_path) == found(tmp_path, driver_roots=(tmp_path,)) == MpsPrograms("/usr/bin", tmp_path)


def test_a_driver_in_a_root_of_its_own(tmp_path):
    driver = a_driver(tmp_path / "run/nvidia/driver")
    programs = found(tmp_path, driver_roots=(tmp_path, driver))
    assert programs == MpsPrograms("/usr/bin", driver)
    settings, folders = AgentSettings(node_name="n", host_root=tmp_path), folders_of("GPU-1")
    command = programs.command(settings, folders, "nvidia-cuda-mps-control", "-f")
    assert command[4:] == [
        str(driver),
        f"{tmp_path}/dev/shm/purser-mps/GPU-1:/dev/shm",
        f"{tmp_path}/run/purser/mps/GPU-1:/run/purser/mps/GPU-1",
        f"{tmp_path}/var/log/purser/mps/GPU-1:/var/log/purser/mps/GPU-1",
        "--",
        "/usr/bin/nvidia-cuda-mps-control",
        "-f",
    ]
    assert programs.environment(settings, folders)["CUDA_MPS_PIPE_DIRECTORY"] == "/run/purser/mps/GPU-1"


def test_a_folder_with_nothing_but_the_driver_is_used_from_the_nodes_root(tmp_path):
    driver = a_driver(tmp_path / "home/kubernetes/bin/nvidia", dev=False)
    programs = found(tmp_path, driver_roots=(driver,))
    at = "/home/kubernetes/bin/nvidia"
    assert programs == MpsPrograms(f"{at}/usr/bin", tmp_path, f"{at}/usr/lib64")


def test_where_the_driver_has_none(tmp_path):
    with pytest.raises(MpsError, match="the driver has no nvidia-cuda-mps-control under / on the node"):
        found(tmp_path)


@pytest.mark.skipif(not may_mount(), reason="takes CAP_SYS_ADMIN")
async def test_a_daemon_in_the_drivers_root_serves_containers_of_the_node(node):
    driver = a_driver(node.root / "driver")
    compile_stub(driver / "usr/bin")
    settings = AgentSettings(node_name="n", host_root=node.root, driver_roots=(driver,))
    node.control = MpsControl(settings, lambda: in_place(settings))
    node.set(A="mps")
    async with node.agent() as agent:
        await eventually(lambda: agent.ready == {"A"})
        client = await node.client("A")
        (pid, _) = node.processes("A")
        assert Path(f"/proc/{pid}/root").readlink() == driver
        assert not list((driver / "run/purser/mps/A").iterdir()), "its mounts are its own"
        client.kill()
        await client.wait()
    assert node.processes("A") == []
