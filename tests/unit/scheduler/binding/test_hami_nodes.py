"""Pods for nodes that HAMi's device plugin serves: what it expects, and what HAMi's scheduler gave away there."""

import asyncio

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs
from tests.unit.scheduler.extender_world import eventually, replica, server

from purser.core.device.resources import GPU_RESOURCE
from purser.core.dialects.hami import hami_node_annotations, recorded_grant
from purser.core.pod.manifest import ContainerKind, ContainerSpec, PodManifest
from purser.core.vendors.hami_nodes import REGISTER_ANNOTATION, registration
from purser.kube.resources import EVENTS, NODES, PODS
from purser.scheduler.hami_amounts import HamiAmounts

INIT, APP = ContainerKind.INIT, ContainerKind.APP
LOCK = "hami.io/mutex.lock"
UUIDS = [f"GPU-{index:08d}-0000-0000-0000-000000000000" for index in range(2)]


def registered(*uuids, **facts):
    """As HAMi's plugin writes it: what is zero is left out."""
    gpus = [
        {"id": uuid, "count": 10, "devmem": 8000, "devcore": 100, "type": "NVIDIA-Tesla P4", "health": True}
        | ({"index": index} if index else {})
        | {"mode": "hami-core"}
        | facts
        for index, uuid in enumerate(uuids)
    ]
    return msgspec.json.encode(gpus).decode()


async def add_node(world, name="h1", uuids=UUIDS, text=None, listed="20"):
    annotations = {REGISTER_ANNOTATION: text or registered(*uuids)}
    await world.client.create(NODES, {"metadata": {"name": name, "annotations": annotations}})
    await list_gpus(world, name, listed)
    await eventually(lambda: (node := world.cache.fleet.node(name)) and node.devices[0].device.healthy)


async def list_gpus(world, name, count):
    status = {"capacity": {GPU_RESOURCE: count}, "allocatable": {GPU_RESOURCE: count}}
    await world.client.patch_merge(NODES, name, {"status": status}, subresource="status")


async def patch(world, pod, **annotations):
    await world.client.patch_merge(PODS, pod.metadata.name, {"metadata": {"annotations": annotations}}, "default")


async def theirs(world, name, text, node="h1", *, binds=True):
    """A pod that HAMi's scheduler places."""
    pod = await world.add_pod(name, spec={"schedulerName": "hami-scheduler"})
    await patch(world, pod, **{"hami.io/vgpu-node": node, "hami.io/vgpu-devices-allocated": text})
    if binds:
        await world.client.bind("default", name, pod.metadata.uid, node, {})
    await eventually(lambda: world.state_of(pod) is not None)
    return pod


async def test_the_plugin_finds_lock_phase_and_devices_of_a_share_and_of_a_whole_gpu(world):
    await add_node(world)
    share, whole = await world.add_pod("share", 3000), await world.add_pod("whole", None, **{GPU_RESOURCE: "1"})
    for pod, mib, cores in ((share, 3000, 0), (whole, 8000, 100)):
        assert (await world.filter(pod, "h1")).node_names == ["h1"]
        assert await world.bind(pod, "h1") == ""
        there = (await world.stored(pod)).metadata.annotations
        (part,) = (await world.grant_on(pod)).containers
        assert there["hami.io/vgpu-devices-to-allocate"] == f"{part.uuids[0]},NVIDIA,{mib},{cores}:;"
        assert there["hami.io/vgpu-devices-allocated"] == there["hami.io/vgpu-devices-to-allocate"]
        assert (there["hami.io/bind-phase"], there["hami.io/vgpu-node"]) == ("allocating", "h1")
        assert there["hami.io/bind-time"] == there["hami.io/vgpu-time"]
        node = await world.client.get(NODES, "h1")
        assert node.metadata.annotations[LOCK].endswith(f",default,{pod.metadata.name}")
        await world.client.patch_merge(NODES, "h1", {"metadata": {"annotations": {LOCK: None}}})
    assert {each.device.model for each in world.cache.fleet.node("h1").devices} == {"Tesla P4"}


async def test_a_second_pod_waits_for_the_lock(world):
    await add_node(world)
    first, second = await world.add_pod("first"), await world.add_pod("second")
    assert await world.bind(first, "h1") == ""
    assert "node h1 is locked until its device plugin has served pod default/first" in await world.bind(second, "h1")


async def test_what_hamis_scheduler_gave_away_or_reserved_is_given_to_nobody_else(world):
    await add_node(world)
    bound = await theirs(world, "bound", f"{UUIDS[0]},NVIDIA,7500,100:;")
    reserved = await theirs(world, "reserved", f"{UUIDS[1]},NVIDIA,7500,0:;", binds=False)
    big = await world.add_pod("big", 1000)
    assert not (await world.filter(big, "h1")).node_names
    await patch(world, bound, **{"hami.io/vgpu-devices-allocated": ";"})
    await patch(world, reserved, **{"hami.io/vgpu-devices-allocated": f"{UUIDS[1]},NVIDIA,6000,0:;"})
    await eventually(lambda: world.memory_used("h1") == 13500)
    assert (await world.filter(big, "h1")).node_names == ["h1"]
    await world.client.delete(PODS, "bound", "default", grace_period_seconds=0)
    await eventually(lambda: world.memory_used("h1") == 6000)


async def test_hamis_records_on_pods_that_ask_for_no_gpu_take_none_from_others(world):
    await add_node(world)
    nothing = {"schedulerName": "hami-scheduler", "containers": [{"name": "main", "image": "i"}]}
    for name, binds in (("bound", True), ("reserved", False)):
        pod = await world.add_pod(name, spec=nothing)
        await patch(
            world,
            pod,
            **{"hami.io/vgpu-node": "h1", "hami.io/vgpu-devices-allocated": f"{UUIDS[0]},NVIDIA,8000,100:;"},
        )
        if binds:
            await world.client.bind("default", name, pod.metadata.uid, "h1", {})
    await theirs(world, "asks", f"{UUIDS[1]},NVIDIA,7500,0:;")  # heard after the others
    assert world.memory_used("h1") == 7500
    assert (await world.filter(await world.add_pod("p", 8000), "h1")).node_names == ["h1"]


async def test_a_record_of_more_gpus_than_the_pod_asks_for_takes_none(world):
    await add_node(world)
    greedy, text = f"{UUIDS[0]},NVIDIA,8000,0:{UUIDS[1]},NVIDIA,8000,0:;", f"{UUIDS[0]},NVIDIA,2000,0:;"
    for binds in (False, True):
        pod = await theirs(world, f"greedy-{int(binds)}", text, binds=binds)
        assert world.memory_used("h1") == 2000
        await patch(world, pod, **{"hami.io/vgpu-devices-allocated": greedy})
        await eventually(lambda binds=binds: world.memory_used("h1") == 2000 * binds)
        await world.client.delete(PODS, pod.metadata.name, "default", grace_period_seconds=0)
        await eventually(lambda: world.memory_used("h1") == 0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"{UUIDS[0]},NVIDIA,8GB,0:;", '"8GB" is not a 32-bit integer'),
        (f"{UUIDS[0]},NVIDIA,8,0:{UUIDS[1]},NVIDIA,8,0:;", "gives container c 2 GPUs, but the container requests 1"),
        ("GPU-x,NVIDIA,8000,0:;", "names GPU-x, which HAMi's device plugin has not registered on node h1"),
    ],
    ids=["unreadable", "greedy", "of another GPU"],
)
async def test_a_record_that_does_not_count_is_told_on_the_pod_and_on_its_node(world, text, why):
    world.pods.failures.report_to(CollectorRegistry(), world.events)
    await add_node(world)
    pod = await world.add_pod("odd", spec={"schedulerName": "hami-scheduler"})
    await patch(world, pod, **{"hami.io/vgpu-node": "h1", "hami.io/vgpu-devices-allocated": text})
    await world.client.bind("default", "odd", pod.metadata.uid, "h1", {})
    running = {"status": {"phase": "Running"}}
    await world.client.patch_merge(PODS, "odd", running, "default", subresource="status")
    await eventually(lambda: set(world.cache.disputes.closed("h1")) == {*UUIDS})
    assert all(why in each for each in world.cache.disputes.closed("h1").values())
    await world.events.drain()
    told = {each["reason"]: each["message"] for each in await events(world)}
    assert why in told["RecordNotCounted"]
    assert "While the pod runs, no new pods are placed on the node's GPUs" in told["RecordNotCounted"]


async def test_a_node_whose_resources_hamis_chart_renamed_is_told_which_setting_to_write(world):
    world.nodes.failures.report_to(CollectorRegistry(), world.events)
    annotations = {REGISTER_ANNOTATION: registered(*UUIDS)}
    status = {each: {"nvidia.com/vgpu": "20", "cpu": "8"} for each in ("capacity", "allocatable")}
    await world.client.create(NODES, {"metadata": {"name": "h1", "annotations": annotations}})
    await world.client.patch_merge(NODES, "h1", {"status": status}, subresource="status")
    told = "lists nvidia.com/vgpu instead of nvidia.com/gpu"
    await eventually(lambda: "nvidia.com/vgpu" in world.cache.node("h1").status.allocatable)
    (said,) = [each for each in await world.event_messages() if told in each]
    assert "set resourceName in HAMi's chart to nvidia.com/gpu" in said


async def events(world):
    return (await world.client.list(EVENTS.raw(), "default")).items


async def test_a_pod_that_changes_its_record_frees_nothing_after_a_restart_either():
    whole = f"{UUIDS[0]},NVIDIA,8000,100:;"
    async with server() as api, replica(api) as world:
        await add_node(world)
        asks = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "7500", "nvidia.com/gpucores": "60"}
        main = {"name": "main", "image": "i", "resources": {"limits": asks}}
        pod = await world.add_pod("p", spec={"schedulerName": "hami-scheduler", "containers": [main]})
        await patch(world, pod, **{"hami.io/vgpu-node": "h1", "hami.io/vgpu-devices-allocated": whole})
        await world.client.bind("default", "p", pod.metadata.uid, "h1", {})
        running = {"status": {"phase": "Running"}}
        await world.client.patch_merge(PODS, "p", running, "default", subresource="status")
        for text, fits in ((f"{UUIDS[0]},NVIDIA,1,0:;", True), ("GPU-x,NVIDIA,8000,100:;", False), (";", False)):
            await patch(world, pod, **{"hami.io/vgpu-devices-allocated": text})
            async with replica(api) as after:
                await eventually(lambda after=after: after.cache.fleet.node("h1") is not None)
                big = await after.add_pod(f"big-{text.count('N')}-{len(text)}", 1000)
                assert bool((await after.filter(big, "h1")).node_names) == fits
                held = after.ledger.usage("h1").get(UUIDS[0])
                assert not fits or (held.memory_mib, held.cores_percent) == (7500, 60)


async def test_what_hamis_scheduler_reserved_and_never_bound_is_free_after_a_while(world):
    await add_node(world)
    pod = await theirs(world, "p", f"{UUIDS[0]},NVIDIA,8000,0:;", binds=False)
    world.clock.ahead_s = 290
    world.cache.tick()
    assert world.memory_used("h1") == 8000
    await patch(world, pod, **{"hami.io/vgpu-time": "2"})  # it filters the pod again
    await eventually(lambda: "hami.io/vgpu-time" in world.cache.pod_by_uid(pod.metadata.uid).metadata.annotations)
    for ahead_s, used in ((580, 8000), (600, 0)):
        world.clock.ahead_s = ahead_s
        world.cache.tick()
        assert world.memory_used("h1") == used
    await patch(world, pod, unrelated="x")
    await eventually(lambda: "unrelated" in world.cache.pod_by_uid(pod.metadata.uid).metadata.annotations)
    assert world.memory_used("h1") == 0
    await world.client.bind("default", "p", pod.metadata.uid, "h1", {})
    await eventually(lambda: world.memory_used("h1") == 8000)


async def test_what_hamis_scheduler_takes_back_is_free(world):
    await add_node(world)
    pod = await theirs(world, "p", f"{UUIDS[0]},NVIDIA,8000,0:;", binds=False)
    await patch(world, pod, **{"hami.io/vgpu-devices-allocated": None})
    await eventually(lambda: world.memory_used("h1") == 0)


async def test_who_serves_a_node_follows_from_what_plugin_and_agent_write(world):
    await add_node(world)
    running = await theirs(world, "running", f"{UUIDS[0]},NVIDIA,2000,0:;")
    await list_gpus(world, "h1", "0")
    await eventually(lambda: not world.cache.fleet.node("h1").devices[0].device.healthy)
    assert not (await world.filter(await world.add_pod("p"), "h1")).node_names

    await world.add_node("agents", cards=1)
    text = registration(world.cache.fleet.node("agents").inventory)
    await world.client.patch_merge(NODES, "agents", {"metadata": {"annotations": {REGISTER_ANNOTATION: text}}})
    await eventually(lambda: world.cache.is_hami_node("agents"))
    assert not world.cache.is_served_by_hami("agents")
    plain = await world.add_pod("plain", None, **{GPU_RESOURCE: "1"})
    assert await world.bind(plain, "agents") == ""
    there = (await world.stored(plain)).metadata.annotations
    assert there["hami.io/vgpu-devices-allocated"] == "agents-0,NVIDIA,8000,100:;"
    assert "hami.io/bind-phase" not in there
    assert LOCK not in (await world.client.get(NODES, "agents")).metadata.annotations
    assert world.state_of(running) is not None


async def test_gpus_of_hamis_mig_mode_and_what_makes_no_sense_take_no_pods(world):
    await add_node(world, "mig", text=registered(UUIDS[0])[:-1] + "," + registered(UUIDS[1], mode="mig")[1:])
    assert [each.device.uuid for each in world.cache.fleet.node("mig").devices] == [UUIDS[0]]
    for name, text in (("odd", registered(UUIDS[0], mode="x")), ("twice", registered(UUIDS[0], UUIDS[0]))):
        body = {"metadata": {"name": name, "annotations": {REGISTER_ANNOTATION: text}}}
        await world.client.create(NODES, body)
        await eventually(lambda name=name: world.cache.node(name) is not None)
        found = world.cache.fleet.node(name)
        assert found is None or not found.devices


async def test_the_scheduler_lists_the_amounts_that_hamis_plugin_does_not(world):
    await add_node(world)
    task = asyncio.create_task(HamiAmounts(world.client, world.nodes, lambda: True, {}).run())
    try:
        await eventually(lambda: "nvidia.com/gpumem" in world.cache.node("h1").status.allocatable)
        listed = world.cache.node("h1").status
        assert listed.allocatable == listed.capacity
        assert (listed.capacity["nvidia.com/gpumem"], listed.capacity["nvidia.com/gpucores"]) == ("16k", "200")
    finally:
        task.cancel()


def test_the_record_of_older_schedulers_leaves_init_containers_out():
    containers = (ContainerSpec("i", INIT), ContainerSpec("a", APP), ContainerSpec("b", APP))
    for listed in (";GPU-a,NVIDIA,5,6:;;", "GPU-a,NVIDIA,5,6:;;"):
        record = {"hami.io/vgpu-node": "n", "hami.io/vgpu-devices-allocated": listed}
        pod = PodManifest("u", "ns", "p", record, containers)
        (part,) = recorded_grant(pod).containers
        assert (part.container, part.uuids) == ("a", ("GPU-a",))
        assert hami_node_annotations(pod, recorded_grant(pod), 0, is_served_by_plugin=False)[
            "hami.io/vgpu-devices-allocated"
        ] == (";GPU-a,NVIDIA,5,6:;;")


async def test_a_gpu_that_makes_no_sense_costs_itself_alone_and_is_told():
    """And of more slots than Purser lists there are as many as it lists."""
    gpus = msgspec.json.decode(registered(*UUIDS, "GPU-of-elsewhere"))
    gpus[0]["count"] = 1001
    gpus[1]["mode"] = "of-tomorrow"
    gpus[2]["devmem"] = -1
    gpus.append({**gpus[2], "count": "ten"})
    async with server() as api, replica(api) as world:
        with capture_logs() as logs:
            await add_node(world, text=msgspec.json.encode(gpus).decode())
        slots = {each.device.uuid: each.device.slots for each in world.cache.fleet.node("h1").devices}
        assert slots == {UUIDS[0]: 1000}
        told = {each["error"] for each in logs if each.get("node") == "h1"}
        assert len(told) == 4
        assert [each for each in told if "device 3 cannot be read: Expected `int`" in each]
        assert all(each.startswith(f"annotation {REGISTER_ANNOTATION}: ") for each in told)
        assert [each for each in told if "has 1001 slots: Purser shares a device among at most 1000" in each]
        assert [each for each in told if "has unknown mode 'of-tomorrow'. The GPU is ignored" in each]
        assert [each for each in told if "'GPU-of-elsewhere': 10 slots, -1 MiB" in each]
