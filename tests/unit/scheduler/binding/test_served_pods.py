"""Pods that Volcano's scheduler places on nodes of Purser's agents, with what its Binding brings, get a grant there."""

import asyncio
import contextlib

import msgspec
import pytest
from tests.unit.scheduler.extender_world import BINPACK, eventually, replica, server

from purser.core.model import Device, GrantState, NodeInventory
from purser.core.names import AWAITS_GRANT_ANNOTATION, INVENTORY_ANNOTATION
from purser.core.placement.asked import read_asked_shape
from purser.kube.resource_quotas import RESOURCE_QUOTAS
from purser.kube.resources import EVENTS, NODES, PODS
from purser.scheduler.binding import ServedPods

GPU, VMEM, VNUM = "nvidia.com/gpu", "volcano.sh/gpu-memory", "volcano.sh/gpu-number"
VGPU, VGPU_MEM, VGPU_CORES = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"
INDEX, UUIDS = "volcano.sh/gpu-index", "volcano.sh/vgpu-ids-new"


@contextlib.asynccontextmanager
async def serving(world):
    args = (world.client, world.cache, world.keys, world.pods, world.events, lambda: True, ["volcano"], BINPACK)
    task = asyncio.create_task(ServedPods(*args).run())
    yield
    task.cancel()


@contextlib.asynccontextmanager
async def volcanos(cards=4, memory=8000, **node):
    async with server() as api, replica(api) as world, serving(world):
        await world.add_node("n", cards, memory, **node)
        yield api, world


async def placed(world, name, record, annotations=None, **limits):
    """As Volcano's scheduler binds a pod that the webhook admitted; the pod as it is once Purser has seen to it."""
    limits = {key: str(value) for key, value in limits.items()}
    asks = {"schedulerName": "volcano", "containers": [_container("c", limits)]}
    return await bound(world, name, record, asks, annotations)


def _container(name, limits):
    return {
        "name": name,
        "image": "i",
        "resources": {"limits": {GPU: limits.get(VNUM, limits.get(VGPU, "1")), **limits}},
    }


async def bound(world, name, record, spec, annotations=None):
    pod = await world.add_pod(name, spec=spec, annotations={AWAITS_GRANT_ANNOTATION: "true", **(annotations or {})})
    await world.client.bind("default", name, pod.metadata.uid, "n", record)

    async def seen():
        there = (await world.stored(pod)).metadata.annotations
        return "purser.dev/grant" in there or there[AWAITS_GRANT_ANNOTATION] == "false"

    while not await seen():  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    await eventually(lambda: seen_of(world, pod))
    return pod


def seen_of(world, pod):
    there = world.cache.pod_by_uid(pod.metadata.uid).metadata.annotations
    return "purser.dev/grant" in there or there[AWAITS_GRANT_ANNOTATION] == "false"


async def gpus(world, pod):
    """The indices of the GPUs that the pod holds; none: it got no grant."""
    grant = await world.grant_on(pod)
    return sorted(int(uuid[-1]) for uuid in grant.uuids) if grant else []


async def test_a_part_of_volcanos_record_that_makes_no_sense_costs_itself_alone():
    async with volcanos() as (_, world):
        node, share = {"volcano.sh/vgpu-node": "n"}, {VGPU: 1, VGPU_MEM: 2000, VGPU_CORES: 30}
        for name, broken in (("a", "n-0,NVIDIA,-5,30:"), ("b", "abc:"), ("c", "n-0,NVIDIA,1,x:")):
            pod = await placed(world, name, {**node, UUIDS: f"{broken}n-2,NVIDIA,2000,10:"}, **share)
            assert await gpus(world, pod) == [2]
        two = await placed(world, "d", {**node, UUIDS: "n-3,NVIDIA,-5,30:n-2,NVIDIA,1,1:"}, **{**share, VGPU: 2})
        assert len(await gpus(world, two)) == 2  # not one of the two that it asks for


async def test_a_pod_gets_what_volcano_chose_and_its_record_says_so():
    async with volcanos() as (_, world):
        share = await placed(world, "share", {INDEX: "2", "volcano.sh/predicate-time": "1"}, **{VMEM: 3000})
        assert await gpus(world, share) == [2]
        whole = await placed(world, "whole", {INDEX: "3,0"}, **{VNUM: 2})
        assert await gpus(world, whole) == [0, 3]
        plain = await placed(world, "plain", {})  # nvidia.com/gpu: Volcano chooses the node alone
        assert await gpus(world, plain) == [1]
        there = (await world.stored(share)).metadata.annotations
        assert (there[INDEX], there["volcano.sh/gpu-assigned"]) == ("2", "true")
        assert (await world.stored(whole)).metadata.annotations[INDEX] == "0,3"
        assert world.memory_used("n") == 3000 + 3 * 8000
        await eventually(lambda: world.state_of(share) is GrantState.BOUND)
        assert any("Granted GPU 2 on node n" in each for each in await world.event_messages())
        granted = [each for each in (await world.client.list(EVENTS)).items if each.reason == "Granted"]
        [asked] = [each.metadata.annotations for each in granted if each.involved_object.name == "whole"]
        assert read_asked_shape(asked["purser.dev/asked"]).gpu_count == 2


async def test_all_containers_of_a_pod_share_the_gpu_that_volcano_chose():
    async with volcanos() as (_, world):
        both = [_container("a", {VMEM: "1000"}), _container("b", {VMEM: "3000"})]
        spec = {"schedulerName": "volcano", "initContainers": [_container("i", {VMEM: "500"})], "containers": both}
        pod = await bound(world, "p", {INDEX: "1"}, spec)
        assert {(part.container, part.uuids) for part in (await world.grant_on(pod)).containers} == {
            (name, ("n-1",)) for name in "iab"
        }
        assert world.memory_used("n") == 4000


async def test_vgpus_are_those_of_the_uuids_for_the_containers_that_ask():
    async with volcanos() as (_, world):
        share = {VGPU: "1", VGPU_MEM: "2000", VGPU_CORES: "30"}
        log = {"name": "log", "image": "i"}
        spec = {"schedulerName": "volcano", "containers": [log, _container("a", share), _container("b", share)]}
        record = {"volcano.sh/vgpu-node": "n", UUIDS: "n-3,NVIDIA,2000,30:;n-1,NVIDIA,2000,30:"}
        lock = {"metadata": {"annotations": {"hamivgpu": f"{world.clock.now():%Y-%m-%dT%H:%M:%SZ}"}}}
        await world.client.patch_merge(NODES, "n", lock)
        await eventually(lambda: "hamivgpu" in world.cache.node("n").metadata.annotations)
        pod = await bound(world, "p", {**record, "volcano.sh/bind-phase": "allocating"}, spec)
        await eventually(lambda: "hamivgpu" not in world.cache.node("n").metadata.annotations)
        there = (await world.stored(pod)).metadata.annotations
        assert there["volcano.sh/bind-phase"] == "success"
        assert there[UUIDS] == ";n-3,NVIDIA,2000,30:;n-1,NVIDIA,2000,30:"
        held = {part.container: part.shares for part in (await world.grant_on(pod)).containers}
        assert {name: shares[0].uuid for name, shares in held.items()} == {"a": "n-3", "b": "n-1"}
        assert {(shares[0].memory_mib, shares[0].cores_percent) for shares in held.values()} == {(2000, 30)}


async def test_5532_a_record_of_another_node_is_no_wish_here():
    async with volcanos(2) as (_, world):
        record = {"volcano.sh/vgpu-node": "elsewhere", UUIDS: "n-9,NVIDIA,-1,-1:", "volcano.sh/vgpu-time": "1"}
        pod = await placed(world, "p", record, **{VGPU: 1, VGPU_MEM: 2000})
        assert len(await gpus(world, pod)) == 1
        assert (await world.stored(pod)).metadata.annotations["volcano.sh/vgpu-node"] == "n"


@pytest.mark.parametrize(
    "index",
    [
        pytest.param("0", id="the GPU is full: Volcano's average of unequal GPUs, or pods that it does not count"),
        pytest.param("7", id="an index that there is none of"),
        pytest.param("-1", id="no index at all"),
        pytest.param("0,1", id="two for one"),
        pytest.param("9" * 300_000, id="nonsense"),
    ],
)
async def test_another_gpu_of_the_node_is_granted_where_volcano_is_wrong(index):
    async with volcanos(2) as (_, world):
        assert (
            await world.bind(await world.add_pod("own", 8000, annotations={"nvidia.com/use-gpuuuid": "n-0"}), "n") == ""
        )
        pod = await placed(world, "p", {INDEX: index[:100_000]}, **{VMEM: 5000})
        assert await gpus(world, pod) == [1]
        assert (await world.stored(pod)).metadata.annotations[INDEX] == "1"


async def test_without_room_on_the_node_there_is_no_grant_and_an_event_says_why():
    async with volcanos(1) as (_, world):
        first = await placed(world, "first", {INDEX: "0"}, **{VMEM: 5000})
        second = await placed(world, "second", {INDEX: "0"}, **{VMEM: 5000})
        assert (await gpus(world, first), await gpus(world, second)) == ([0], [])
        assert world.memory_used("n") == 5000
        assert any(
            "volcano placed the pod on node n, where Purser cannot grant the pod a GPU: 1/1 CardInsuff" in each
            for each in await world.event_messages()
        )
        quota = {"metadata": {"name": "q"}, "spec": {"hard": {"limits.nvidia.com/gpumem": "5500"}}}
        await world.client.create(RESOURCE_QUOTAS, quota, "default")
        await eventually(lambda: world.cache.quota_limits("default").memory_mib == 5500)
        assert await gpus(world, await placed(world, "third", {INDEX: "0"}, **{VMEM: 1000})) == []


async def test_pods_of_others_and_pods_that_bypassed_the_webhook_get_none():
    async with volcanos() as (_, world):
        labels = {"purser.dev/webhook": "ignore"}
        asks = {"schedulerName": "volcano", "containers": [_container("c", {VMEM: "100"})]}
        unmarked = await world.add_pod("unmarked", spec=asks)
        stranger = await world.add_pod(
            "stranger", annotations={AWAITS_GRANT_ANNOTATION: "true"}, spec={**asks, "schedulerName": "x"}
        )
        bypassing = await world.add_pod(
            "bypassing", annotations={AWAITS_GRANT_ANNOTATION: "true"}, labels=labels, spec=asks
        )
        for pod in (unmarked, stranger, bypassing):
            await world.client.bind("default", pod.metadata.name, pod.metadata.uid, "n", {INDEX: "0"})
        await eventually(lambda: seen_of(world, bypassing))
        assert await gpus(world, await placed(world, "last", {INDEX: "0"}, **{VMEM: 8000})) == [0]
        assert [await gpus(world, pod) for pod in (unmarked, stranger, bypassing)] == [[], [], []]


async def test_a_restart_a_changed_unit_and_gpus_that_go_leave_the_same_book():
    units = {"purser.dev/memory-units": "volcano.sh/gpu-memory=10"}
    async with volcanos(3) as (api, world):
        blocks = await placed(world, "blocks", {INDEX: "1"}, units, **{VMEM: 300})
        single = await placed(world, "single", {INDEX: "1"}, **{VMEM: 300})
        whole = await placed(world, "whole", {INDEX: "2"}, **{VNUM: 1})
        book = dict(world.ledger.usage("n"))
        assert (book["n-1"].memory_mib, book["n-2"].exclusive) == (3300, 1)
        async with replica(api) as after, serving(after):
            await eventually(lambda: dict(after.ledger.usage("n")) == book)
            # Without the first GPU the others have lower indices: what Volcano wrote and writes means other GPUs now.
            left = tuple(Device(f"n-{at}", at - 1, "NVIDIA A100", 8000, slots=10) for at in (1, 2))
            text = msgspec.json.encode(NodeInventory("n", left)).decode()
            await after.client.patch_merge(NODES, "n", {"metadata": {"annotations": {INVENTORY_ANNOTATION: text}}})
            await eventually(lambda: len(after.cache.fleet.node("n").devices) == 2)
            assert {uuid: each for uuid, each in after.ledger.usage("n").items() if each.pods} == {
                uuid: each for uuid, each in book.items() if each.pods
            }
            # Volcano counts pods by their records: to it GPU 0 is idle, which is the whole pod's.
            assert await gpus(after, await placed(after, "next", {INDEX: "1"}, **{VMEM: 4000})) == [1]
            assert await gpus(after, await placed(after, "more", {INDEX: "0"}, **{VMEM: 4000})) == []
            await after.client.delete(PODS, "whole", "default", grace_period_seconds=0)
            await eventually(lambda: after.state_of(whole) is None)
            assert await gpus(after, await placed(after, "freed", {INDEX: "0"}, **{VMEM: 8000})) == [2]
            assert after.state_of(blocks) is after.state_of(single) is GrantState.BOUND
