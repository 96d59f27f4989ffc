"""A node that goes by NVIDIA's device plugin's configuration: several resources, replicas, changes while it runs."""

import json

import msgspec
import pytest
from tests.reported_files import reported
from tests.unit.agent.builders import NODE, part
from tests.unit.agent.conftest import eventually
from tests.unit.agent.emulated_kubelet import Rejected

from purser.agent.kubelet.refusals import RefusalReason
from purser.agent.settings import SharingSettings
from purser.core.model import DeviceMode, NodeInventory
from purser.core.sharing import CONFIG_LABEL
from purser.kube.resources import NODES

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="module")]


def sliced(replicas, **more):
    entry = {"name": "nvidia.com/gpu", "replicas": replicas, **more}
    return {"version": "v1", "sharing": {"timeSlicing": {"renameByDefault": True, "resources": [entry]}}}


IN_PART = "DevicePluginConfigInPart"


class Folder:
    """Named configurations, as a ConfigMap's volume has them."""

    def __init__(self, path):
        self.path = path
        path.mkdir()

    def write(self, **files):
        for name, content in files.items():
            draft = self.path / f"..{name}"
            draft.write_text(content if isinstance(content, str) else json.dumps(content))
            draft.rename(self.path / name)


@pytest.fixture
def configs(folder):
    return Folder(folder / "configs")


def counts(kubelet):
    return {resource.removeprefix("nvidia.com/"): len(listed) for resource, listed in kubelet.lists_of.items()}


async def test_a_node_goes_by_the_file_that_its_label_names_and_follows_both(world, kubelet, configs):
    a, b, *_ = world.uuids
    configs.write(default=sliced(2, devices=[0]), many=sliced(3), bad="sharing: [")
    settings = {"sharing": SharingSettings(folder=configs.path), "mode": DeviceMode.WHOLE}
    async with world.agent(**settings) as agent:
        await eventually(agent.ready)
        await eventually(lambda: counts(kubelet) == {"gpu": 3, "gpu.shared": 2})
        endpoints = {request.endpoint for request, _ in kubelet.registrations}
        assert endpoints == {"purser-nvidia-gpu.sock", "purser-nvidia-gpu.shared.sock"}
        await world.pod("sliced", part("main", a, memory_mib=7680, cores_percent=0), resource="nvidia.com/gpu.shared")
        given = await kubelet.admit("default/sliced", [("main", 1)], resource="nvidia.com/gpu.shared")
        assert dict(given["main"].envs) == {"NVIDIA_VISIBLE_DEVICES": a, "PURSER_GPU_ENFORCEMENT": "time-slicing"}
        await world.pod("whole", part("main", b, memory_mib=15360, cores_percent=100))
        await kubelet.admit("default/whole", [("main", 1)])
        await world.client.patch_merge(NODES, NODE, {"metadata": {"labels": {CONFIG_LABEL: "many"}}})
        # What is held under the name of before stays listed, as unhealthy, until it is let go.
        await eventually(lambda: counts(kubelet) == {"gpu": 1, "gpu.shared": 12})
        assert kubelet.lists_of["nvidia.com/gpu"][b].health == "Unhealthy"
        kubelet.remove("default/whole")
        await world.delete_pod("whole")
        await eventually(lambda: counts(kubelet) == {"gpu.shared": 12})
        await world.client.patch_merge(NODES, NODE, {"metadata": {"labels": {CONFIG_LABEL: "bad"}}})
        await eventually(lambda: told(world))
        assert counts(kubelet) == {"gpu.shared": 12}
        assert await agent.metric("purser_agent_config_rejected") == 1
        configs.write(bad=sliced(4))
        await eventually(lambda: counts(kubelet) == {"gpu.shared": 16})
    found = await inventory(world)
    assert {(each.replicas, each.slots, each.resource) for each in found.devices} == {(4, 4, "nvidia.com/gpu.shared")}


async def test_the_last_good_file_holds_over_a_restart(world, kubelet, configs):
    configs.write(default=sliced(2))
    settings = {"sharing": SharingSettings(folder=configs.path)}
    async with world.agent(**settings):
        await eventually(lambda: counts(kubelet) == {"gpu.shared": 8})
    configs.write(default="{")
    async with world.agent(**settings):
        await eventually(lambda: counts(kubelet) == {"gpu.shared": 8})
        (message,) = await eventually(lambda: told(world))
        assert message.endswith(". The last valid configuration (file default) stays in effect.")
        configs.write(default="3")
        await eventually(lambda: told(world, 2))
        assert "is not an object" in (await told(world))[1], "the event is of the cause that there is now"


async def test_a_flag_with_a_mistake_stays_as_it_was_over_a_restart_as_well(world, kubelet, configs):
    good = {"version": "v1", "flags": {"gdsEnabled": True, "plugin": {"deviceListStrategy": "cdi-cri"}}, **sliced(2)}
    configs.write(default=good)
    settings = {"sharing": SharingSettings(folder=configs.path)}
    says = "flags.plugin.deviceListStrategy: the value from the last valid file stays in effect: cdi-cri"
    async with world.agent(**settings):
        await eventually(lambda: counts(kubelet) == {"gpu.shared": 8})
        typo = {**sliced(3), "flags": {"plugin": {"deviceListStrategy": "cdi"}}}
        configs.write(default=typo)
        await eventually(lambda: counts(kubelet) == {"gpu.shared": 12})
        await eventually(lambda: told(world, 1, IN_PART, says))
        await eventually(
            lambda: told(world, 1, IN_PART, "flags.plugin.deviceListStrategy is cdi, but must be one of envvar,")
        )
    configs.write(default={**typo, **sliced(4)})
    async with world.agent(**settings) as agent:
        await eventually(lambda: counts(kubelet) == {"gpu.shared": 16})
        await eventually(agent.ready)
        stored = json.loads((world.settings["state_dir"] / "device-plugin-config.json").read_text())
        assert json.loads(stored["good"]) == good
        configs.write(default=sliced(2))
        await eventually(lambda: accepted(agent))


async def test_where_no_file_was_good_that_is_said(world, kubelet, configs):
    configs.write(default="{")
    async with world.agent(sharing=SharingSettings(folder=configs.path), mode=DeviceMode.WHOLE):
        await eventually(lambda: counts(kubelet) == {"gpu": 4})
        (message,) = await eventually(lambda: told(world))
        assert message.endswith(". The agent's options are in effect instead.")


async def test_of_a_file_for_a_fleet_the_devices_that_the_node_has_are_served(world, kubelet, configs):
    """And each other is told, in the log, by an event and by the metric, until the file is corrected."""
    configs.write(default=reported("fleet.yaml").read_text())
    managed = ("nvidia.com/gpu-0",)
    sharing = SharingSettings(folder=configs.path)
    async with world.agent(sharing=sharing, mode=DeviceMode.WHOLE, managed_resources=managed) as agent:
        await eventually(lambda: counts(kubelet) == {"gpu-0": 8, "gpu": 3})
        await eventually(
            lambda: told(world, 1, IN_PART, "resources[1] asks to replicate device 4, which the node does not")
        )
        assert await agent.metric("purser_agent_config_rejected") == 1
        configs.write(default=sliced(2, devices=[1, 7]))
        await eventually(lambda: counts(kubelet) == {"gpu.shared": 2, "gpu": 3})
        await eventually(lambda: told(world, 1, IN_PART, "resources[0] asks to replicate device 7"))
        configs.write(default=sliced(2, devices=[1, 9]))
        await eventually(lambda: told(world, 1, IN_PART, "resources[0] asks to replicate device 9"))
        configs.write(default=sliced(2, devices=[1]))
        await eventually(lambda: accepted(agent))


async def test_a_bad_entry_costs_itself_alone(world, kubelet, configs):
    bad = {"name": "nvidia.com/gpu", "replicas": 1, "devices": [0]}
    good = {"name": "nvidia.com/gpu", "replicas": 3, "devices": [1, 2]}
    sharing = {"renameByDefault": True, "resources": [bad, good]}
    configs.write(default={"version": "v1", "flags": {"gdsEnabled": "x"}, "sharing": {"timeSlicing": sharing}})
    async with world.agent(sharing=SharingSettings(folder=configs.path), mode=DeviceMode.WHOLE) as agent:
        await eventually(lambda: counts(kubelet) == {"gpu.shared": 6, "gpu": 2})
        await eventually(lambda: told(world, 1, IN_PART, "resources[0].replicas is 1, but must be"))
        await eventually(lambda: told(world, 1, IN_PART, "default: the device plugin's file: flags.gdsEnabled is x"))
        assert await agent.metric("purser_agent_config_rejected") == 1
        assert await told(world) == []


async def test_a_gpu_that_hamis_file_filters_is_not_handed_out(world, kubelet, configs):
    text = reported("filterdevices.json").read_text().replace("t4-4-0", NODE)
    configs.write(default=text)
    async with world.agent(sharing=SharingSettings(folder=configs.path), mode=DeviceMode.WHOLE) as agent:
        await eventually(lambda: sorted(kubelet.lists_of.get("nvidia.com/gpu", ())) == sorted(world.uuids[:3]))
        await eventually(lambda: told(world, 1, IN_PART, "filterdevices hides GPUs from pods: index 3"))
        assert await agent.metric("purser_agent_config_rejected") == 0
        configs.write(default=text.replace("[3]", "[2, 8]"))
        await eventually(lambda: world.uuids[3] in kubelet.lists_of["nvidia.com/gpu"])
        assert world.uuids[2] not in kubelet.lists_of["nvidia.com/gpu"]
        await eventually(
            lambda: told(world, 1, IN_PART, "filterdevices names index 8, but the node does not have this GPU")
        )


async def test_one_container_gets_several_replicas_unless_the_file_says_otherwise(world, kubelet, configs):
    a, *_ = world.uuids
    configs.write(default=sliced(3))
    shared = "nvidia.com/gpu.shared"
    async with world.agent(sharing=SharingSettings(folder=configs.path)) as agent:
        await eventually(agent.ready)
        both = part("main", a, a, memory_mib=5000, cores_percent=0)
        await world.pod("two", both, resource=shared)
        given = await kubelet.admit("default/two", [("main", 2)], resource=shared)
        assert given["main"].envs["NVIDIA_VISIBLE_DEVICES"] == a
        assert sorted(kubelet.pods["default/two"]["main"]) == [f"{a}::0", f"{a}::1"]
        file = sliced(3)
        file["sharing"]["timeSlicing"]["failRequestsGreaterThanOne"] = True
        configs.write(default=file)
        await eventually(lambda: one_each(world))
        kubelet.remove("default/two")
        await world.delete_pod("two")
        await world.pod("again", both, resource=shared)
        with pytest.raises(Rejected, match="maximum request size for shared resources is 1; found 2"):
            await kubelet.admit("default/again", [("main", 2)], resource=shared)
        ((reason, _),) = await eventually(lambda: world.events("again"))
        assert reason == RefusalReason.TOO_MANY_REPLICAS


async def inventory(world):
    return msgspec.json.decode(await world.inventory_text(), type=NodeInventory)


async def one_each(world):
    return all(device.one_each for device in (await inventory(world)).devices)


async def told(world, least=0, of="DevicePluginConfigNotUsable", says=""):
    found = [message for reason, message in await world.events(NODE) if reason == of and says in message]
    return found if len(found) >= least else None


async def accepted(agent):
    return await agent.metric("purser_agent_config_rejected") == 0
