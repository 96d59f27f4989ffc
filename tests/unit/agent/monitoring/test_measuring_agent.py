"""A running agent: what it measures, whose it says that is, and whom it tells of those who exceed their grants."""

import pytest
import pytest_asyncio
from tests.unit.agent.builders import NODE, part
from tests.unit.agent.conftest import World, eventually, shared_folder, shared_kubelet

from purser.agent.settings import MetricNames
from purser.core.kubernetes.quantities import MIB
from purser.kube.errors import NotFoundError
from purser.kube.resources import EVENTS, PODS
from purser.lab.driver import SimulatedDriver
from purser.lab.driver.parts import ProcessLoad
from purser.lab.kubelet.runtime import ContainerRecord, Runtime
from purser.lab.processes import CgroupVersion, GpuProcesses

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="module")]
folder, kubelet = shared_folder, shared_kubelet


class MeasuredWorld(World):
    def __init__(self, folder, client, driver):
        super().__init__(folder, client, driver)
        self.processes = GpuProcesses(driver, Runtime(folder / "runtime"), folder / "host")

    async def running(self, kubelet, name, *parts, **more):
        """A pod with its devices, whose status names its container; the container's record."""
        grant = await self.pod(name, *parts, **more)
        if parts:
            await kubelet.admit(f"default/{name}", [(each.container, len(each.shares)) for each in parts])
        record = ContainerRecord(grant.pod_uid, "default", name, "main", {}, 1.0)
        statuses = [{"name": "main", "containerID": f"containerd://{record.id}"}]
        body = {"status": {"phase": "Running", "containerStatuses": statuses}}
        await self.client.patch_merge(PODS, name, body, "default", subresource="status")
        return record


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(folder, client):
    world = MeasuredWorld(folder, client, SimulatedDriver.create(folder / "driver", NODE, "t4-4"))
    await world.prepare()
    yield world
    await world.clean_up()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def agent(world, kubelet):
    settings = {"telemetry_interval_s": 0.1, "metrics_also_as": tuple(MetricNames), "evict_over_users": True}
    async with world.agent(probe_interval_s=60, **settings) as agent:
        await eventually(agent.ready)
        yield agent


async def is_told(agent, value, name, **labels):
    await eventually(lambda: _equals(agent, value, name, labels))


async def _equals(agent, value, name, labels):
    return await agent.metric(name, **labels) == value


async def reasons(world, name):
    return [reason for reason, _ in await world.events(name)]


async def test_processes_are_reported_by_pod_and_the_gpu_is_shared_out(world, kubelet, agent):
    a = world.uuids[0]
    one = await world.running(kubelet, "one", part("main", a, memory_mib=4000))
    world.processes.start(a, ProcessLoad(memory_mib=3000, sm_percent=30), container=one)
    alone = {"UUID": a, "pod": "one", "namespace": "default", "container": "main"}
    await is_told(agent, 3000, "DCGM_FI_DEV_FB_USED", **alone)

    two = await world.running(kubelet, "two", part("main", a, memory_mib=2000))
    world.processes.start(a, ProcessLoad(memory_mib=1500, sm_percent=20), container=two, version=CgroupVersion.V1)
    stranger = world.processes.start(a, ProcessLoad(memory_mib=700, graphics=True))
    for pod, mib, ratio in (("one", 3000, 0.3), ("two", 1500, 0.2)):
        await is_told(agent, mib * MIB, "purser_container_memory_used_bytes", pod=pod, container="main", uuid=a)
        await is_told(agent, ratio, "purser_container_utilization_ratio", pod=pod, uuid=a)
        await is_told(agent, mib * MIB, "hami_vgpu_memory_used_bytes", pod=pod, device_uuid=a)
        await is_told(agent, mib * MIB, "vGPU_device_memory_usage_in_bytes", podname=pod, deviceuuid=a)
    await is_told(agent, 4500 * MIB, "purser_device_memory_owner_bytes", uuid=a, owner="pods")
    await is_told(agent, 700 * MIB, "purser_device_memory_owner_bytes", uuid=a, owner="foreign")
    await eventually(lambda: _is_shared(agent, a))
    parts = [await agent.metric("purser_device_memory_owner_bytes", uuid=a, owner=o) for o in ("driver", "idle")]
    total = await agent.metric("purser_device_memory_bytes", uuid=a)
    assert sum(parts) + 5200 * MIB == total

    # Of the four GPUs this one has a finding, and that is all: everybody else keeps to what was granted.
    await is_told(agent, 1, "purser_agent_audit_findings", finding="foreign")
    await is_told(agent, 0, "purser_agent_audit_findings", finding="over-memory")  # another test's ends after a while
    (told,) = [message for reason, message in await world.events(NODE) if reason == "GpuUsedByForeignProcess"]
    assert told == f"A process that belongs to no pod uses 700 MiB of memory on GPU 0 ({a}): PID {stranger}"
    world.processes.stop(stranger)
    await eventually(lambda: _has(world, NODE, "GpuUseSettled"))


async def _is_shared(agent, uuid):
    _, text = await agent.get("/metrics")
    lines = [line for line in text.splitlines() if line.startswith("DCGM_FI_DEV_FB_USED{") and uuid in line]
    return len(lines) == 1 and "pod=" not in lines[0]


async def _has(world, name, reason):
    return reason in await reasons(world, name)


async def test_a_pod_that_uses_a_gpu_without_a_grant_is_reported_once(world, kubelet, agent):
    b = world.uuids[1]
    stranger = await world.running(kubelet, "bare", counts={"main": 0})
    process = world.processes.start(b, ProcessLoad(memory_mib=300), container=stranger)
    await eventually(lambda: _has(world, "bare", "GpuUsedWithoutGrant"))
    another = await world.running(kubelet, "another", counts={"main": 0})
    world.processes.start(b, ProcessLoad(memory_mib=200), container=another)
    await eventually(lambda: _has(world, "another", "GpuUsedWithoutGrant"))
    told = [each for each in (await world.client.list(EVENTS)).items if each.involved_object.name == "bare"]
    assert [(each.reason, each.message, each.count) for each in told] == [
        ("GpuUsedWithoutGrant", f"The pod uses 300 MiB of memory on GPU 1 ({b}), which it was not granted", 1)
    ]
    world.processes.stop(process)
    await eventually(lambda: _has(world, "bare", "GpuUseSettled"))
    settled = dict(await world.events("bare"))["GpuUseSettled"]
    assert settled == f"The pod no longer uses GPU 1 ({b}) without a grant for this GPU"


async def test_an_over_user_is_reported_and_evicted_and_its_neighbour_is_not(world, kubelet, agent):
    c = world.uuids[2]
    good = await world.running(kubelet, "good", part("main", c, memory_mib=2000))
    world.processes.start(c, ProcessLoad(memory_mib=2200), container=good)
    greedy = await world.running(kubelet, "greedy", part("main", c, memory_mib=2000))
    over_use = world.processes.start(c, ProcessLoad(memory_mib=2600), container=greedy)
    await eventually(lambda: _is_gone(world, "greedy"))
    used = f"The pod uses 2600 MiB of memory on GPU 2 ({c}) but was granted 2000 MiB"
    events = dict(await eventually(lambda: _when(world, "greedy", "OverUserEvicted")))
    assert events["GpuMemoryOverused"] == used
    assert events["OverUserEvicted"] == f"Evicted by Purser: {used}"
    assert await world.events("good") == []
    assert not await _is_gone(world, "good")
    world.processes.stop(over_use)


async def _when(world, name, reason):
    events = await world.events(name)
    return events if reason in dict(events) else None


async def _is_gone(world, name):
    try:
        return bool((await world.client.get(PODS, name, "default")).metadata.deletion_timestamp)
    except NotFoundError:
        return True


async def test_a_lost_gpus_figures_go_and_its_xid_stays(world, agent):
    d = world.uuids[3]
    await is_told(agent, 0, "DCGM_FI_DEV_XID_ERRORS", UUID=d)
    assert await agent.metric("purser_device_temperature_celsius", uuid=d) is not None
    assert await agent.metric("purser_device_memory_owner_bytes", uuid=d, owner="pods") == 0
    world.driver.lose_gpu(d)
    await is_told(agent, None, "purser_device_temperature_celsius", uuid=d)
    await is_told(agent, None, "purser_device_memory_owner_bytes", uuid=d, owner="pods")
    await is_told(agent, 79, "DCGM_FI_DEV_XID_ERRORS", UUID=d)
    assert await agent.metric("DCGM_FI_DEV_GPU_TEMP", UUID=d) is None
    assert await agent.metric("DCGM_FI_DEV_GPU_TEMP", UUID=world.uuids[0]) is not None
