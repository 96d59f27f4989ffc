"""Pools of network devices in a whole agent, beside its GPUs; and what `purser agent check` says of them."""

import json
from pathlib import Path

import pytest
from tests.unit.agent.conftest import eventually
from tests.unit.agent.sriov.sysfs_tree import HostTree

from purser.agent.checking.results import CheckState
from purser.agent.checking.sriov import check_sriov
from purser.agent.settings import AgentSettings, CheckSettings, SriovSettings
from purser.core.sriov.names import socket_name

pytestmark = pytest.mark.processes

POOLS = {"resourceList": [{"resourceName": "net", "selectors": {"pfNames": ["ens1f0"]}}]}


@pytest.mark.asyncio(loop_scope="module")
async def test_an_agent_serves_gpus_and_network_devices(world, kubelet):
    HostTree(world.folder / "host").pf("0000:18:00.0", "ens1f0", 2)
    config = world.folder / "config.json"
    config.write_text(json.dumps(POOLS))
    async with world.agent(sriov=SriovSettings(config=config), kubelet_dir=world.folder) as agent:
        await eventually(lambda: kubelet.lists_of.keys() == {"nvidia.com/gpu", "intel.com/net"})
        await eventually(agent.ready)
        options = {request.resource_name: told.pre_start_required for request, told in kubelet.registrations}
        assert options == {"nvidia.com/gpu": True, "intel.com/net": False}
        responses = await kubelet.admit("default/p", [("main", 1)], resource="intel.com/net")
        assert responses["main"].envs["PCIDEVICE_INTEL_COM_NET"] == "0000:18:02.0"
        assert await agent.metric("purser_sriov_devices", resource="intel.com/net", state="healthy") == 2
        HostTree(world.folder / "host").carrier("ens1f0", 0)
        said = dict(await eventually(lambda: world.events("node-1")))
        assert said["SriovDevicesUnhealthy"].endswith("the port of ens1f0 has no link")
        assert await agent.metric("purser_sriov_devices", resource="intel.com/net", state="unhealthy") == 2


@pytest.mark.parametrize(
    ("text", "state", "said"),
    [
        (json.dumps(POOLS), CheckState.OK, "intel.com/net has 2 devices: 0000:18:02.0, 0000:18:02.1"),
        (json.dumps({"resourceList": 3}), CheckState.WARNING, "the SR-IOV configuration cannot be read"),
        (
            json.dumps({"resourceList": [{"resourceName": "net", "selectors": {"vendors": ["15b3"]}}]}),
            CheckState.WARNING,
            "intel.com/net has no devices: selector 0: vendors matches none of the 2 devices: found 8086",
        ),
    ],
    ids=["valid", "invalid", "an empty pool"],
)
def test_a_check_says_what_pools_would_hold(tmp_path, text, state, said):
    HostTree(tmp_path).pf("0000:18:00.0", "ens1f0", 2)
    config = tmp_path / "config.json"
    config.write_text(text)
    settings = CheckSettings(host_root=tmp_path, state_dir=tmp_path, sriov=SriovSettings(config=config))
    (result,) = check_sriov(settings)
    assert result.state is state
    assert said in result.found
    assert not list(check_sriov(CheckSettings(host_root=tmp_path)))


def test_sockets_are_named_as_upstream_and_fit_into_an_address():
    assert socket_name("intel.com/sriov_netdevice") == "intel.com_sriov_netdevice.sock"
    names = [f"{'a' * 120}.com/{end * 63}" for end in "xy"]
    sockets = {str(Path("/host/var/lib/kubelet/plugins_registry") / socket_name(name)) for name in names}
    assert len(sockets) == 2
    assert max(map(len, sockets)) <= 107
    assert AgentSettings(node_name="n").plugin_socket("intel.com/net").name == "intel.com_net.sock"
