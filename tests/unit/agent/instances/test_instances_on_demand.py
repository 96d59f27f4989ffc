"""The whole agent on a node whose GPUs are cut on demand: grants name GPU instances, and containers get them."""

import asyncio
import json
import shutil

import msgspec
import pytest
from tests.unit.agent.builders import NODE
from tests.unit.agent.conftest import eventually, node_writes
from tests.unit.agent.emulated_kubelet import Rejected

from purser.agent.settings import DevicePluginFlags, MetricNames, SharingSettings
from purser.core.mig import MigPlacement
from purser.core.model import ContainerGrant, ContainerKind, DeviceMode, DeviceShare, Enforcement, NodeInventory
from purser.core.sharing import MigStrategy
from purser.lab.driver import SimulatedDriver
from purser.lab.driver.node_mig import create_mig, destroy_mig, mig_states, set_mig
from purser.lab.driver.parts import ProcessLoad

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="module")]

GPU, SMALL, HALF = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb"
PATIENCE_S = 240.0
"""Of the agent with its driver, and with what it has yet to hear of a pod that kubelet admits."""
AT_0, AT_4 = MigPlacement("3g.20gb", 0), MigPlacement("3g.20gb", 4)


@pytest.fixture
def driver(folder):
    driver = SimulatedDriver.create(folder / "driver", NODE, "a100-pcie-4")
    for gpu in range(2):
        set_mig(driver.folder, gpu, enabled=True)
    return driver


@pytest.fixture(autouse=True)
def impatience(monkeypatch):
    monkeypatch.setattr("purser.agent.instances.keeping.IDLE_S", 0.05)
    monkeypatch.setattr("purser.agent.instances.keeping.BUSY_CHECK_PERIOD_S", 0.05)
    monkeypatch.setattr("purser.agent.instances.giving.LISTED_TIMEOUT_S", PATIENCE_S)
    monkeypatch.setattr("purser.agent.instances.keeping.NVML_TIMEOUT_S", PATIENCE_S)


def on_demand(world, metrics_also_as=(), driver=None, **flags):
    flags = DevicePluginFlags(mig_strategy=MigStrategy.ON_DEMAND, **flags)
    sharing = SharingSettings(flags=flags)
    return world.agent(sharing=sharing, metrics_also_as=metrics_also_as, driver=driver, resolve_timeout_s=PATIENCE_S)


def of(gpu, *placements, container="main"):
    shares = tuple(DeviceShare(gpu, 19968, 42, placement) for placement in placements)
    return ContainerGrant(container, ContainerKind.APP, shares, Enforcement.MIG)


def cut_of(world, gpu=0):
    """Memory slices and compute instances of what is there."""
    found = mig_states(world.driver.folder)[gpu].instances.values()
    return sorted((each.start, len(each.compute)) for each in found)


def counts(kubelet):
    return {resource: len(listed) for resource, listed in kubelet.lists_of.items()}


async def devices(world):
    text = await world.inventory_text()
    return {each.uuid: each for each in msgspec.json.decode(text, type=NodeInventory).devices} if text else {}


async def test_a_gpu_is_listed_as_what_it_can_be_cut_into(world, kubelet):
    """Also by HAMi's word for it, in its file of nodes."""
    a, *_ = world.uuids
    held = MigPlacement("1g.5gb", 6)
    create_mig(world.driver.folder, 0, "1g.5gb", start=6)
    file = world.folder / "config.json"
    file.write_text(json.dumps({"nodeconfig": [{"name": "other"}, {"name": NODE, "operatingmode": "mig"}]}))
    async with world.agent(sharing=SharingSettings(file=file)) as agent:
        await eventually(agent.ready)
        await eventually(lambda: counts(kubelet).get(SMALL) == 2 * 7)
        found = counts(kubelet)
        assert (found[GPU], found[HALF], found["nvidia.com/mig-7g.40gb"]) == (7 + 7 + 4 + 4, 4, 2)
        ids = [each for listed in kubelet.lists_of.values() for each in listed]
        assert len(set(ids)) == len(ids)
        cut = (await devices(world))[a]
        assert (cut.mode, cut.mig_kind, cut.slots, cut.mig_held) == (DeviceMode.MIG, "A100-40GB", 7, (held,))
        assert (cut.resource, cut.parent, cut.enforcement, cut.healthy) == (GPU, "", Enforcement.MIG, True)


async def test_a_container_gets_the_instance_of_its_grant_until_the_pod_ends(world, kubelet, api):
    a, *_ = world.uuids
    async with on_demand(world) as agent:
        await eventually(agent.ready)
        with node_writes(api, repeats=False) as written:
            await world.pod("half", of(a, AT_4), resource=HALF)
            await world.pod("other", of(a, AT_0))
            given = {
                "half": await kubelet.admit("default/half", [("main", 1)], resource=HALF),
                "other": await kubelet.admit("default/other", [("main", 1)]),
            }
            assert cut_of(world) == [(0, 1), (4, 1)]
            uuids = {name: each["main"].envs["NVIDIA_VISIBLE_DEVICES"] for name, each in given.items()}
            assert all(uuid.startswith("MIG-") for uuid in uuids.values())
            assert len(set(uuids.values())) == 2
            assert dict(given["half"]["main"].envs) == {
                "NVIDIA_VISIBLE_DEVICES": uuids["half"],
                "PURSER_GPU_ENFORCEMENT": "mig",
            }
            world.driver.add_process(uuids["half"], 4242, ProcessLoad(memory_mib=100))
            for name in ("half", "other"):
                kubelet.remove(f"default/{name}")
                await world.set_phase(name, "Succeeded")
            await eventually(lambda: cut_of(world) == [(4, 1)])
            await eventually(lambda: _held(world, a, AT_4))
            world.driver.remove_process(0, 4242)
            await eventually(lambda: cut_of(world) == [])
            await eventually(lambda: _held(world, a))
        assert len(written) <= 2  # that a process kept an instance, and that it went


async def _held(world, gpu, *placements):
    return (await devices(world))[gpu].mig_held == placements


async def test_containers_of_a_pod_hand_their_instance_on(world, kubelet):
    a, *_ = world.uuids
    driver = world.driver.open()
    destroyed = []
    destroy = driver.destroy_instance
    driver.destroy_instance = lambda *which: (destroyed.append(which), destroy(*which))
    async with on_demand(world, driver=driver) as agent:
        await eventually(agent.ready)
        prepare = msgspec.structs.replace(of(a, AT_0, container="prepare"), kind=ContainerKind.INIT)
        await world.pod("p", prepare, of(a, AT_0), resource=HALF)
        given = await kubelet.admit("default/p", [("main", 1)], init=[("prepare", 1)], resource=HALF)
        uuids = {each.envs["NVIDIA_VISIBLE_DEVICES"] for each in given.values()}
        assert len(uuids) == 1
        assert not destroyed


async def test_what_is_in_the_way_is_removed_if_it_is_idle_and_the_agents_own(world, kubelet, monkeypatch):
    a, *_ = world.uuids
    monkeypatch.setattr("purser.agent.instances.keeping.IDLE_S", 3600.0)
    async with on_demand(world) as agent:
        await eventually(agent.ready)
        await world.pod("half", of(a, AT_0), resource=HALF)
        await kubelet.admit("default/half", [("main", 1)], resource=HALF)
        kubelet.remove("default/half")
        await world.delete_pod("half")
        whole = MigPlacement("7g.40gb", 0)
        await world.pod("whole", of(a, whole))
        given = await kubelet.admit("default/whole", [("main", 1)])
        assert cut_of(world) == [(0, 1)]
        assert given["main"].envs["NVIDIA_VISIBLE_DEVICES"].startswith("MIG-")


async def test_an_administrators_instance_is_left_alone_and_reported(world, kubelet):
    a, b, *_ = world.uuids
    async with on_demand(world) as agent:
        await eventually(agent.ready)
        theirs = create_mig(world.driver.folder, 0, "3g.20gb", start=0)
        await world.pod("half", of(a, AT_0), resource=HALF)
        with pytest.raises(Rejected, match="no room"):  # the agent may have looked, or finds out now
            await kubelet.admit("default/half", [("main", 1)], resource=HALF)
        assert (await eventually(lambda: world.events("half")))[0][0] == "MigInstanceRefused"
        await eventually(lambda: _held(world, a, AT_0))
        assert cut_of(world) == [(0, 1)]
        kubelet.remove("default/half")
        await world.delete_pod("half")
        await world.pod("late", of(a, AT_0), resource=HALF)
        with pytest.raises(Rejected, match=r"that have no grant: 3g\.20gb at 0 overlaps"):
            await kubelet.admit("default/late", [("main", 1)], resource=HALF)
        kubelet.remove("default/late")
        await world.delete_pod("late")
        await world.pod("beside", of(b, AT_0), resource=HALF)
        await kubelet.admit("default/beside", [("main", 1)], resource=HALF)
        destroy_mig(world.driver.folder, theirs)
        await eventually(lambda: _held(world, a))
        set_mig(world.driver.folder, 0, enabled=False)
        await eventually(lambda: _is_whole(world, a))


async def _is_whole(world, gpu):
    return not (await devices(world))[gpu].mig_kind


async def test_a_grant_without_a_place_is_refused(world, kubelet):
    a, *_, whole = world.uuids
    async with on_demand(world) as agent:
        await eventually(agent.ready)
        await world.pod("amounts", of(a, None))
        with pytest.raises(Rejected, match="the grant does not name a GPU instance"):
            await kubelet.admit("default/amounts", [("main", 1)])
        kubelet.remove("default/amounts")
        await world.pod("misled", of(whole, AT_0))
        with pytest.raises(Rejected, match="no longer partitioned on demand"):
            await kubelet.admit("default/misled", [("main", 1)])


async def test_a_gpu_that_hangs_or_is_lost_concerns_itself_alone(world, kubelet, monkeypatch):
    a, b, *_ = world.uuids
    monkeypatch.setattr("purser.agent.instances.keeping.NVML_TIMEOUT_S", 0.3)
    async with on_demand(world) as agent:
        await eventually(agent.ready)
        world.driver.hang_call(0, "nvmlDeviceCreateGpuInstanceWithPlacement")
        await world.pod("hung", of(a, AT_0), resource=HALF)
        with pytest.raises(Rejected, match="NVML did not answer in time"):
            await kubelet.admit("default/hung", [("main", 1)], resource=HALF)
        kubelet.remove("default/hung")
        await world.delete_pod("hung")
        await eventually(lambda: _is_ill(world, a))
        await world.pod("p", of(b, AT_0), resource=HALF)
        await kubelet.admit("default/p", [("main", 1)], resource=HALF)
        world.driver.clear_failures(0)
        await eventually(lambda: cut_of(world) == [])
        await eventually(lambda: _is_well(world, a))


async def _is_ill(world, gpu):
    return "the GPU's instances are unknown: NVML" in (await devices(world))[gpu].unhealthy_reason


async def _is_well(world, gpu):
    return (await devices(world))[gpu].healthy


async def test_after_a_restart_instances_are_known_by_their_record(world, kubelet):
    a, *_ = world.uuids
    async with on_demand(world) as agent:
        await eventually(agent.ready)
        await world.pod("stays", of(a, AT_4), resource=HALF)
        await world.pod("gone", of(a, MigPlacement("1g.5gb", 0)), resource=SMALL)
        await kubelet.admit("default/stays", [("main", 1)], resource=HALF)
        await kubelet.admit("default/gone", [("main", 1)], resource=SMALL)
    kubelet.remove("default/gone")
    await world.delete_pod("gone")
    theirs = MigPlacement("2g.10gb", 2)
    create_mig(world.driver.folder, 0, "2g.10gb", start=2)
    before = await world.inventory_text()
    async with on_demand(world) as agent:
        await eventually(lambda: cut_of(world) == [(2, 1), (4, 1)])
        await eventually(lambda: _held(world, a, theirs))
        assert before is not None
        # What somebody removed is there again when a container of the pod starts once more.
        state = mig_states(world.driver.folder)[0]
        ((mine, _),) = [each for each in state.instances.items() if each[1].start == 4]
        opened = world.driver.open()
        opened.scan()
        opened.destroy_instance(a, mine)
        opened.close()
        await eventually(agent.ready)
        await eventually(lambda: cut_of(world) == [(2, 1)])
        await asyncio.sleep(0)
        await eventually(lambda: _started_again(world, kubelet))


async def test_without_the_agents_state_instances_of_pods_that_run_are_its_own(world, kubelet):
    a, *_ = world.uuids
    async with on_demand(world) as agent:
        await eventually(agent.ready)
        await world.pod("runs", of(a, AT_4), resource=HALF)
        await kubelet.admit("default/runs", [("main", 1)], resource=HALF)
    shutil.rmtree(world.settings["state_dir"])
    async with on_demand(world) as agent:
        await eventually(agent.ready)
        await eventually(lambda: _held(world, a))  # nothing is in the way that no grant names
        assert cut_of(world) == [(4, 1)]
        kubelet.remove("default/runs")
        await world.set_phase("runs", "Succeeded")
        await eventually(lambda: cut_of(world) == [])


async def _started_again(world, kubelet):
    await kubelet.pre_start(kubelet.pods["default/stays"]["main"])
    return cut_of(world) == [(2, 1), (4, 1)]


@pytest.mark.gate
async def test_metrics_and_audit_know_the_mig_device_of_a_grant(world, kubelet):
    a, *_ = world.uuids
    async with on_demand(world, metrics_also_as=(MetricNames.DCGM, MetricNames.HAMI)) as agent:
        await eventually(agent.ready)
        await world.pod("p", of(a, AT_0), resource=HALF)
        uuid = (await kubelet.admit("default/p", [("main", 1)], resource=HALF))["main"].envs["NVIDIA_VISIBLE_DEVICES"]
        assert await agent.metric("purser_grant_memory_bytes", pod="p", uuid=uuid) == 19968 << 20
        assert await agent.metric("purser_device_granted_memory_bytes", uuid=a) == 19968 << 20
        await eventually(lambda: agent.metric("DCGM_FI_DEV_FB_FREE", pod="p", GPU_I_PROFILE="3g.20gb"))
        await eventually(lambda: agent.metric("hami_vgpu_memory_limit_bytes", pod="p", device_uuid=uuid))
