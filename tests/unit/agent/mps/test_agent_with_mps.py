"""An agent that shares its GPUs by MPS: annotations, environments and events say what holds."""

import os
import signal

import pytest
from tests.unit.agent.builders import NODE, part
from tests.unit.agent.conftest import eventually
from tests.unit.agent.emulated_kubelet import Rejected
from tests.unit.agent.mps.conftest import compile_stub

from purser.adapters.nodes import inventory_of
from purser.agent.mps.folders import PID_FILE, folders_of
from purser.agent.mps.programs import MpsPrograms
from purser.agent.settings import EnforcementChoice
from purser.kube.resources import NODES

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="module")]


async def test_from_the_daemon_to_the_pods_event(world, kubelet, folder, monkeypatch):
    programs = folder / "bin"
    programs.mkdir()
    compile_stub(programs)
    monkeypatch.setattr("purser.agent.run.find_programs", lambda settings, place: MpsPrograms(str(programs)))
    a, b, _, _ = world.uuids
    host = world.folder / "host"

    async def word(uuid):
        inventory = inventory_of(await world.client.get(NODES, NODE))
        return {device.uuid: device.enforcement.value for device in inventory.devices if inventory}[uuid]

    async def is_now(uuid, wanted):
        return await word(uuid) == wanted

    async with world.agent(enforcement=EnforcementChoice.MPS) as agent:
        await eventually(agent.ready)
        await eventually(lambda: is_now(a, "mps"))
        assert await agent.metric("purser_device_info", uuid=a, mode="mps", enforcement="mps") == 1
        for name in ("p", "other"):
            await world.pod(name, part("main", a if name == "p" else b, memory_mib=3000), required=name == "p")
            given = (await kubelet.admit(f"default/{name}", [("main", 1)]))["main"]
        assert given.envs["PURSER_GPU_ENFORCEMENT"] == "mps"
        assert given.envs["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=3000M"
        pipes = {mount.container_path: mount.host_path for mount in given.mounts}["/tmp/nvidia-mps"]
        assert (host / pipes.lstrip("/") / "control").is_socket()

        (programs / "fail").touch()
        control = host / folders_of(a).pipe.relative_to("/") / PID_FILE
        os.kill(int(control.read_text()), signal.SIGKILL)
        await eventually(lambda: is_now(a, "time-slicing"))
        assert await word(b) == "mps"
        reasons = [reason for reason, _ in await eventually(lambda: world.events("p"))]
        assert "MpsClientsLost" in reasons
        assert "MpsClientsLost" not in [reason for reason, _ in await world.events("other")]
        assert await agent.metric("purser_agent_mps_daemons_lost_total") == 1
        told = [message for reason, message in await world.events(NODE) if reason == "MpsUnavailable"]
        assert any("the MPS daemon failed: the daemon's process exited" in message for message in told)
        await world.pod("required", part("main", a), required=True)
        with pytest.raises(Rejected, match="requires enforcement, but its share is no longer enforced"):
            await kubelet.admit("default/required", [("main", 1)])

        (programs / "fail").unlink()
        await eventually(lambda: is_now(a, "mps"))
        for name in ("p", "other", "required"):
            kubelet.remove(f"default/{name}")
            await world.delete_pod(name)
        await eventually(lambda: _is_free(agent))
    for uuid in world.uuids:
        assert not (host / folders_of(uuid).pipe.relative_to("/")).exists(), "it has quit"


async def _is_free(agent):
    return await agent.metric("purser_grant_memory_bytes") is None
