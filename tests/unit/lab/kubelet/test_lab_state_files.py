"""What survives a restart of kubelet, and what a kubelet does about files that it cannot use."""

import json

import pytest
import structlog
from msgspec.structs import replace
from tests.unit.lab.kubelet.rig import CHECKPOINT, GPU, MACHINE, Node, Plugin, container, register, running, serving

from purser.core.kubelet.errors import KubeletStartError
from purser.core.kubelet.state import CpuState
from purser.kube.client import Client
from purser.kube.config import ClusterConfig
from purser.lab.driver.machine import CpuLayout, NumaLayout, machine_of
from purser.lab.kubelet.kubelet import Kubelet
from purser.lab.kubelet.node import NodeSettings

STATIC = {
    "topologyManagerPolicy": "restricted",
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
}


async def admitted(folder, *pods, **section):
    """A node that admitted pods and was stopped."""
    async with running(Node(folder, **section)) as node, serving(node, Plugin({0: "ab", 1: "cd"})):
        await register(node)
        await node.until_capacity(4)
        for uid in pods:
            await node.admit(uid, container("c", 1, cpu="2", memory="1Gi"))
    return node


async def test_a_restart_changes_nothing_that_anybody_holds(folder):
    before = (await admitted(folder, "u1", "u2", **STATIC)).books.state
    after = Node(folder, **STATIC).books.state
    assert after.devices.held == before.devices.held
    assert (after.cpus, after.memory) == (before.cpus, before.memory)
    assert len(after.cpus.exclusive) == 2
    assert after.devices.resources[GPU].healthy == frozenset()


async def test_files_have_kubelets_names_and_forms(folder):
    await admitted(folder, "u1", **STATIC)
    cpus = json.loads((folder / "cpu_manager_state").read_text())
    assert (cpus["policyName"], cpus["defaultCpuSet"], cpus["entries"]) == (
        "static",
        "0,2-8,10-15",
        {"u1": {"c": "1,9"}},
    )
    memory = json.loads((folder / "memory_manager_state").read_text())
    assert (memory["policyName"], memory["entries"]["u1"]["c"][0]["type"]) == ("Static", "memory")
    devices = json.loads((folder / "device-plugins" / CHECKPOINT).read_text())
    assert devices["Data"]["PodDeviceEntries"][0]["DeviceIDs"] == {"0": ["b"]}


async def test_an_old_kubelet_has_no_memory_manager_and_so_no_file_of_it(folder):
    await admitted(folder, version="v1.20.2")
    assert not (folder / "memory_manager_state").exists()
    assert (folder / "cpu_manager_state").exists()


async def test_a_corrupt_device_checkpoint_is_logged_and_forgotten(folder):
    await admitted(folder, "u1")
    path = folder / "device-plugins" / CHECKPOINT
    path.write_text(path.read_text().replace('"d"', '"a"'))
    with structlog.testing.capture_logs() as logs:
        node = Node(folder)
    assert node.books.state.devices.held == {}
    assert logs[0]["event"].startswith("Continue after failing to read checkpoint file.")


@pytest.mark.parametrize(("name", "manager"), [("cpu_manager_state", "CPU"), ("memory_manager_state", "memory")])
@pytest.mark.parametrize("damage", [lambda text: text.replace("u1", "u2"), lambda text: "{", lambda text: "\udcff"])
async def test_with_a_corrupt_state_of_cpus_or_memory_kubelet_does_not_start(folder, name, manager, damage):
    await admitted(folder, "u1", **STATIC)
    path = folder / name
    path.write_bytes(damage(path.read_text()).encode("utf-8", "surrogateescape"))
    with pytest.raises(KubeletStartError) as caught:
        Node(folder, **STATIC)
    assert str(caught.value).startswith("could not restore state from checkpoint: ")
    assert str(caught.value).endswith(
        f'please drain this node and delete the {manager} manager checkpoint file "{path}" before restarting Kubelet'
    )
    path.unlink()
    assert Node(folder, **STATIC).books.state.devices.held


async def test_a_state_that_does_not_fit_the_machine_is_refused_with_what_to_do(folder):
    before = await admitted(folder, **STATIC)
    before.books.commit(replace(before.books.state, cpus=CpuState(default=0x1FF, reserved=0x101)))
    with pytest.raises(
        KubeletStartError, match=r"doesn't match with CPUs in state .*: please drain this node and remove"
    ):
        Node(folder, **STATIC)


async def test_a_kubelet_does_not_start_with_more_numa_nodes_than_it_allows(folder):
    machine = machine_of(tuple(NumaLayout(n, str(n), "1Gi") for n in range(9)), CpuLayout())
    with pytest.raises(KubeletStartError, match="unsupported on machines with more than 8 NUMA Nodes"):
        Node(folder, machine=machine, topologyManagerPolicy="best-effort")
    Node(folder, machine=machine)


async def test_a_kubelet_that_is_not_run_leaves_its_folder_as_it_is(folder):
    (folder / "k").mkdir()
    settings = NodeSettings("n1", machine=MACHINE)
    Kubelet(settings, folder / "k", Client(ClusterConfig(server="http://127.0.0.1:1")))
    assert list((folder / "k").iterdir()) == []
