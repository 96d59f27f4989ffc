"""What ResourceQuotas say is used of the limits that Purser keeps, against the lab's API server over HTTP."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp.web
import pytest

from purser.adapters.quotas import used_amounts
from purser.core.grant.quota import Demand
from purser.core.kubernetes.quantities import quantity_ceil
from purser.kube.resource_quotas import RESOURCE_QUOTAS, ResourceQuota, ResourceQuotaSpec
from purser.kube.resources import PODS
from purser.scheduler import quota_usage
from purser.scheduler.quota_usage import QuotaUsage

from .extender_world import World, eventually, replica, server

MEMORY, CORES, COUNTED = "limits.nvidia.com/gpumem", "limits.nvidia.com/gpucores", "requests.nvidia.com/gpu"


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_usage, "WRITE_PERIOD_S", 0.01)


@asynccontextmanager
async def following() -> AsyncIterator[World]:
    async with server() as api, replica(api) as world:
        usage = QuotaUsage(world.client, world.cache, world.pods, world.quotas, lambda: True)
        running = asyncio.create_task(usage.run())
        try:
            yield world
        finally:
            running.cancel()
            await asyncio.wait([running])


async def quota(world: World, name: str = "q", **hard: str) -> None:
    body = {"metadata": {"name": name, "namespace": "default"}, "spec": {"hard": hard}}
    await world.client.create(RESOURCE_QUOTAS, body)


def stored(world: World) -> ResourceQuota:
    return world.quotas.store["default/q"]


def used(world: World) -> dict[str, int]:
    quota = world.quotas.store.get("default/q")
    return {} if quota is None else {resource: quantity_ceil(amount) for resource, amount in quota.status.used.items()}


async def test_the_status_says_what_the_ledger_says_after_every_change() -> None:
    """Beside the API server, which counts its own line there as pods come and go."""
    chance = random.Random(7)
    async with following() as world:
        await world.add_node("n", cards=4)
        await quota(world, **{MEMORY: "20000", CORES: "300", COUNTED: "40"})
        pods = []
        there = 0
        for step in range(40):
            if pods and chance.random() < 0.4:
                gone = pods.pop(chance.randrange(len(pods)))
                await world.client.delete(PODS, gone.metadata.name, "default", grace_period_seconds=0)
                there -= 1
                await eventually(lambda gone=gone: world.state_of(gone) is None)
            else:
                asked = {"nvidia.com/gpucores": str(chance.randrange(40))}
                pod = await world.add_pod(f"p{step}", chance.randrange(1, 3000), **asked)
                there += 1
                if await world.bind(pod, "n") == "":
                    pods.append(pod)
            held = world.ledger.namespace_usage("default")
            wanted = {MEMORY: held.memory_mib, CORES: held.cores_percent, COUNTED: there}
            await eventually(lambda wanted=wanted: used(world) == wanted)
        assert len(pods) > 3


async def test_nothing_is_written_that_changes_nothing() -> None:
    writes = []

    async def note(request: aiohttp.web.Request) -> None:
        if request.path.endswith("/status"):
            writes.append(request.path.split("/")[-2])

    async with following() as world:
        world.api.intercept(note)
        await world.add_node("n")
        await quota(world, "of-kubernetes", **{COUNTED: "9"})
        await quota(world, **{MEMORY: "20000"})
        await eventually(lambda: used(world) == {MEMORY: 0})
        for name, memory in (("waits", 1000), ("plain", None), ("bound", 1000)):
            pod = await world.add_pod(name, memory)
        assert await world.bind(pod, "n") == ""
        await eventually(lambda: used(world) == {MEMORY: 1000})
        assert writes == ["q", "q"]


async def test_a_wrong_number_is_put_right() -> None:
    async with following() as world:
        await quota(world, **{MEMORY: "20000"})
        await eventually(lambda: used(world) == {MEMORY: 0})
        theirs = {"status": {"used": {MEMORY: "5"}}}
        wrong = await world.client.patch_merge(RESOURCE_QUOTAS, "q", theirs, "default", subresource="status")
        version = wrong.metadata.resource_version
        await eventually(lambda: used(world) == {MEMORY: 0} and stored(world).metadata.resource_version > version)


def test_other_vendors_limits_are_in_their_own_units() -> None:
    of_families = {"": Demand(1000, 30), "cambricon.com/vmlu": Demand(1000, 30)}
    hard = {MEMORY: "1", "limits.cambricon.com/mlu.smlu.vmemory": "1", COUNTED: "1"}
    found = used_amounts(ResourceQuota(spec=ResourceQuotaSpec(hard)), lambda family: of_families[family])
    assert found == {MEMORY: 1000, "limits.cambricon.com/mlu.smlu.vmemory": 4}


async def test_a_replica_that_is_not_the_active_one_writes_nothing() -> None:
    asked = 0

    def is_active() -> bool:
        nonlocal asked
        asked += 1
        return False

    async with server() as api, replica(api) as world:
        usage = QuotaUsage(world.client, world.cache, world.pods, world.quotas, is_active)
        running = asyncio.create_task(usage.run())
        await quota(world, **{MEMORY: "20000"})
        await eventually(lambda: asked > 0)
        running.cancel()
        await asyncio.wait([running])
        assert used(world) == {}
