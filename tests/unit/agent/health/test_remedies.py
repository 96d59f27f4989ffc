"""What the agent does about ill GPUs where it is allowed to: taint, cordon, reset."""

import sys
from pathlib import Path

import pytest
from tests.unit.agent.builders import NODE, part
from tests.unit.agent.conftest import eventually

from purser.agent.health.remedies import next_change
from purser.agent.inventory.driver_roots import DriverPlace
from purser.agent.inventory.nvidia_smi import ResetError, reset_gpu
from purser.agent.reasons import AgentReason
from purser.core.health.remedy import AllowedRemedies, Remedies
from purser.core.kubernetes.taints import Taint
from purser.core.names import HEALTH_CORDON_ANNOTATION, UNHEALTHY_TAINT
from purser.kube.objects import Node, NodeSpec, ObjectMeta
from purser.kube.resources import NODES

pytestmark = pytest.mark.processes

ALL = AllowedRemedies(taint=True, cordon=True, reset=True)
OWN, OTHER = Taint(UNHEALTHY_TAINT, "", "NoSchedule"), Taint("a", "b", "NoExecute")


def node(*taints, cordoned=False, marked=False):
    marks = {HEALTH_CORDON_ANNOTATION: "needs-reboot"} if marked else {}
    return Node(ObjectMeta(name="n", annotations=marks), NodeSpec(cordoned, taints))


def test_a_gpu_that_cannot_be_named_is_not_reset(monkeypatch):
    """nvidia-smi could take no name for all GPUs."""
    monkeypatch.setattr("purser.agent.inventory.nvidia_smi.subprocess.run", lambda *_, **__: pytest.fail("it is run"))
    place = DriverPlace(on_host=True, root="/", dev_root="/")
    with pytest.raises(ResetError, match="neither the GPU's PCI address nor its UUID is known"):
        reset_gpu(Path("/"), place, "")


@pytest.mark.parametrize(
    ("there", "wanted", "done"),
    [
        (node(), Remedies(), None),
        (node(OTHER, cordoned=True), Remedies(), None),
        (node(OTHER), Remedies(taint=True), AgentReason.GPU_NODE_TAINTED),
        (node(OTHER, OWN), Remedies(taint=True), None),
        (node(OTHER, OWN), Remedies(), AgentReason.GPU_NODE_RELEASED),
        (node(), Remedies(cordon=True), AgentReason.GPU_NODE_CORDONED),
        (node(cordoned=True), Remedies(cordon=True), None),
        (node(cordoned=True, marked=True), Remedies(cordon=True), None),
        (node(marked=True), Remedies(cordon=True), None),  # people uncordoned it
        (node(cordoned=True, marked=True), Remedies(), AgentReason.GPU_NODE_RELEASED),
    ],
)
def test_only_what_is_the_agents_own_is_written(there, wanted, done):
    change = next_change(there, wanted, ALL)
    assert (change and change.reason) == done
    assert next_change(there, wanted, AllowedRemedies()) is None


STUB = """#!{python}
import pathlib, sys
sys.path[:0] = {path}
from purser.lab.driver import SimulatedDriver
driver = SimulatedDriver(pathlib.Path({folder!r}))
said = pathlib.Path({said!r})
said.write_text((said.read_text() if said.exists() else "") + " ".join(sys.argv[1:]) + "\\n")
if pathlib.Path({busy!r}).exists():
    sys.exit("GPU is currently in use by another process.")
address = sys.argv[-1]
driver.recover_gpu(next(at for at, gpu in enumerate(driver.state.gpus) if gpu.pci.lower().endswith(address[4:])))
"""


@pytest.fixture
def nvidia_smi(folder, driver, monkeypatch):
    """A stub below a driver root; its arguments, and a file that has it refuse."""
    root = folder / "root"
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/lib64").mkdir(parents=True)
    (root / "usr/lib64/libnvidia-ml.so.1").symlink_to(driver.library)
    said, busy, stub = root / "said", root / "busy", root / "usr/bin/nvidia-smi"
    path = [each for each in sys.path if each]
    stub.write_text(
        STUB.format(python=sys.executable, path=path, folder=str(driver.folder), said=str(said), busy=str(busy))
    )
    stub.chmod(0o755)
    monkeypatch.setattr(
        "purser.agent.inventory.nvidia_smi.CHROOT", ("sh", "-c", 'shift; shift; shift; exec "$@"', "sh")
    )
    return root, said, busy


async def _spec(world):
    return (await world.client.get(NODES, NODE)).spec


async def _told(world, *reasons):
    said = [reason for reason, _ in await world.events(NODE)]
    return all(reason in said for reason in reasons)


@pytest.mark.asyncio(loop_scope="module")
async def test_node_and_gpu_are_seen_to_and_released_again(world, kubelet, nvidia_smi, monkeypatch):
    root, said, busy = nvidia_smi
    monkeypatch.setattr("purser.agent.health.remedies.MIN_RESET_INTERVAL_S", 0.2)
    busy.touch()
    bad, good, _, _ = world.uuids
    foreign = {"key": "a", "value": "b", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
    await world.client.patch_merge(NODES, NODE, {"spec": {"taints": [foreign]}})
    allowed = {"taint_nodes": True, "cordon_nodes": True, "reset_gpus": True, "driver_roots": (root,)}
    async with world.agent(host_root=Path("/"), **allowed) as agent:
        await eventually(agent.ready)
        await world.pod("p", part("main", bad))
        await kubelet.admit("default/p", [("main", 1)])
        world.driver.inject_xid(bad, 95)
        await eventually(lambda: _told(world, "GpuNodeTainted"))
        assert {taint.key for taint in (await _spec(world)).taints} == {"a", UNHEALTHY_TAINT}
        assert not said.exists(), "a pod holds it"
        kubelet.remove("default/p")
        await world.delete_pod("p")
        await eventually(lambda: _told(world, "GpuResetFailed"))
        busy.unlink()
        await eventually(lambda: _told(world, "GpuReset", "GpuNodeReleased"))
        assert set(said.read_text().splitlines()) == {f"--gpu-reset -i {agent_address(world, bad)}"}
        raw = await world.client.get(NODES.raw(), NODE)
        assert raw["spec"]["taints"] == [foreign]
        world.driver.inject_xid(good, 79)
        await eventually(lambda: _told(world, "GpuNodeCordoned"))
        assert (await _spec(world)).unschedulable


def agent_address(world, uuid):
    return next(gpu.pci_bus_id for gpu in world.driver.open().scan() if gpu.uuid == uuid)
