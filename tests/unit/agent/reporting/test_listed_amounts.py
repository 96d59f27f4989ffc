"""What the agent lists of amounts in its node's status, and keeps there."""

import pytest
from aiohttp import web
from tests.unit.agent.builders import NODE, part
from tests.unit.agent.conftest import eventually, node_writes

from purser.core.names import CORDONED_GPUS_ANNOTATION
from purser.kube.backoff import Backoff
from purser.kube.resources import NODES

MEM, CORES, VMEM = "nvidia.com/gpumem", "nvidia.com/gpucores", "volcano.sh/gpu-memory"
T4_MIB = 15360

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="module")]


async def listed(world, field="capacity"):
    return getattr((await world.client.get(NODES, NODE)).status, field)


async def lists(world, memory_mib):
    async def both():
        found = [(await listed(world, field)).get(MEM) for field in ("capacity", "allocatable")]
        return found == [str(memory_mib)] * 2

    await eventually(both)


async def write(world, **fields):
    await world.client.patch_merge(NODES, NODE, {"status": fields}, subresource="status")


async def asking(world, name, card, memory_mib):
    limits = {"nvidia.com/gpu": "1", MEM: str(memory_mib)}
    await world.pod(name, part("main", card, memory_mib=memory_mib), resources={"limits": limits})


async def test_the_node_lists_amounts_and_what_a_user_changed_is_listed_again(world, kubelet):
    async with world.agent(probe_interval_s=60) as agent:
        await eventually(agent.ready)
        found = await listed(world)
        assert (found[MEM], found[CORES], found[VMEM]) == (str(4 * T4_MIB), "400", str(4 * T4_MIB))
        assert await listed(world, "allocatable") == found
        for removed_or_changed in (None, "0", "7"):
            await write(world, capacity={MEM: removed_or_changed}, allocatable={MEM: removed_or_changed})
            await lists(world, 4 * T4_MIB)
        await world.client.delete(NODES, NODE)
        await world.client.create(NODES, {"metadata": {"name": NODE}})
        await lists(world, 4 * T4_MIB)


@pytest.mark.gate
async def test_of_a_gpu_that_is_lost_stays_what_its_pods_ask_for(world, kubelet):
    lost, *_ = world.uuids
    async with world.agent() as agent:
        await eventually(agent.ready)
        await asking(world, "p", lost, 5000)
        world.driver.lose_gpu(lost)
        await lists(world, 3 * T4_MIB + 5000)
        await world.delete_pod("p")
        await lists(world, 3 * T4_MIB)
        world.driver.recover_gpu(lost)
        await lists(world, 4 * T4_MIB)


async def test_pods_that_hold_what_they_ask_for_cost_no_write(world, kubelet, api):
    """Of a pod after them, on a cordoned card, as of its end, there is one."""
    *_, cordoned = world.uuids
    async with world.agent() as agent:
        await eventually(agent.ready)
        cordon = {"metadata": {"annotations": {CORDONED_GPUS_ANNOTATION: cordoned}}}
        await world.client.patch_merge(NODES, NODE, cordon)
        await lists(world, 3 * T4_MIB)
        with node_writes(api, repeats=False) as written:
            await asking(world, "p", world.uuids[0], 5000)
            await asking(world, "beyond", cordoned, 700)
            await lists(world, 3 * T4_MIB + 700)
            await world.delete_pod("p")
            await world.delete_pod("beyond")
            await lists(world, 3 * T4_MIB)
    assert written == [f"/api/v1/nodes/{NODE}/status"] * 2


@pytest.mark.gate
async def test_amounts_wait_for_the_inventory(world, kubelet, api):
    """They wake kube-scheduler, which asks about cards that nobody has published yet."""
    refused, listings = [], []

    async def refuse(request):
        if request.method == "PATCH" and request.path.endswith(f"/nodes/{NODE}"):
            refused.append(request.path)
            return web.json_response({"code": 403, "reason": "Forbidden", "message": "hands off"}, status=403)
        if request.method == "PATCH" and request.path.endswith("/status"):
            listings.append(request.path)
        return None

    async def refused_twice():
        return len(refused) >= 2

    api.intercept(refuse)
    try:
        async with world.agent():
            await eventually(refused_twice)
    finally:
        api.intercept(None)
    assert listings == []


async def test_a_refused_listing_holds_up_no_news_of_gpus(world, kubelet, api, monkeypatch):
    monkeypatch.setattr("purser.agent.reporting.publisher.Backoff", lambda **_: Backoff(initial_s=600, cap_s=600))

    async def refuse(request):
        if request.method == "PATCH" and request.path.endswith("/status"):
            return web.json_response({"code": 403, "reason": "Forbidden", "message": "hands off"}, status=403)
        return None

    async def lost():
        return "Xid 79" in (await world.inventory_text() or "")

    api.intercept(refuse)
    try:
        async with world.agent() as agent:
            await eventually(agent.ready)  # it has tried
            world.driver.lose_gpu(world.uuids[0])
            await eventually(lost)
    finally:
        api.intercept(None)


async def test_an_agent_that_may_not_write_the_status_serves_and_lists_once_it_may(world, kubelet, api):
    async def refuse(request):
        if request.method == "PATCH" and request.path.endswith("/status"):
            return web.json_response({"code": 403, "reason": "Forbidden", "message": "hands off"}, status=403)
        return None

    api.intercept(refuse)
    try:
        async with world.agent() as agent:
            await eventually(agent.ready)
            assert await world.inventory_text()
            assert await agent.metric("purser_agent_lists_amounts") == 0
            api.intercept(None)
            await lists(world, 4 * T4_MIB)
            assert await agent.metric("purser_agent_lists_amounts") == 1
    finally:
        api.intercept(None)
