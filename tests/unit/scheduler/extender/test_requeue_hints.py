"""Pods that were refused and fit by now, against the lab's API server over HTTP."""

import asyncio

from tests.unit.scheduler.extender_world import eventually, replica, server

from purser.core.names import ROOM_ANNOTATION
from purser.kube.resource_quotas import RESOURCE_QUOTAS
from purser.kube.resources import PODS
from purser.scheduler.extender import requeue_hints


async def test_a_refused_pod_that_fits_by_now_is_touched_once_for_kube_scheduler_to_try_it_again(world):
    await world.add_node("a", memory=1500)
    holder, late = await world.add_pod("holder"), await world.add_pod("late")
    assert await world.bind(holder, "a") == ""
    assert not (await world.filter(late, "a")).node_names
    await world.extender.retry_refused()
    assert ROOM_ANNOTATION not in (await world.stored(late)).metadata.annotations
    await world.client.delete(PODS, "holder", "default", grace_period_seconds=0)
    await eventually(lambda: world.ledger.grant(holder.metadata.uid) is None)
    await world.extender.retry_refused()
    found = (await world.stored(late)).metadata
    assert ROOM_ANNOTATION in found.annotations
    await world.extender.retry_refused()
    assert (await world.stored(late)).metadata.resource_version == found.resource_version


async def test_a_refused_pod_whose_quota_changed_is_touched_once_so_that_users_read_the_limits_of_now():
    hard = {"limits.nvidia.com/gpumem": "500"}
    async with server() as api, replica(api) as world:
        await world.add_node("a")
        body = {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": hard}}
        await world.client.create(RESOURCE_QUOTAS, body)
        await eventually(lambda: world.cache.quota_limits("default").memory_mib == 500)
        pod = await world.add_pod("p")

        async def refused_and_looked_at() -> str:
            [why] = (await world.filter(pod, "a")).failed_and_unresolvable_nodes.values()
            await world.extender.retry_refused()
            return why

        assert "limited: limits.nvidia.com/gpumem=500" in await refused_and_looked_at()
        assert ROOM_ANNOTATION not in (await world.stored(pod)).metadata.annotations
        more = {"spec": {"hard": {"limits.nvidia.com/gpumem": "900"}}}
        await world.client.patch_merge(RESOURCE_QUOTAS, "q", more, "default")
        await eventually(lambda: world.cache.quota_limits("default").memory_mib == 900)
        await world.extender.retry_refused()
        found = (await world.stored(pod)).metadata
        assert ROOM_ANNOTATION in found.annotations
        assert "limited: limits.nvidia.com/gpumem=900" in await refused_and_looked_at()
        assert (await world.stored(pod)).metadata.resource_version == found.resource_version


async def test_a_pod_that_was_placed_or_is_gone_is_left_alone(world):
    placed, gone = await world.add_pod("placed"), await world.add_pod("gone")
    for pod in (placed, gone):
        await world.filter(pod, "a")
    await world.add_node("a")
    assert (await world.filter(placed, "a")).node_names == ["a"]
    await world.client.delete(PODS, "gone", "default", grace_period_seconds=0)
    await world.extender.retry_refused()
    assert ROOM_ANNOTATION not in (await world.stored(placed)).metadata.annotations


async def test_of_many_the_most_important_are_woken_first(monkeypatch):
    monkeypatch.setattr(requeue_hints, "MAX_WOKEN_PODS", 1)
    async with server() as api, replica(api) as world:
        pods = [await world.add_pod(name, priority=priority) for name, priority in (("low", 0), ("high", 5))]
        for pod in pods:
            await world.filter(pod, "a")
        await world.add_node("a")
        woken = []
        for _ in pods:
            await world.extender.retry_refused()
            woken.append([ROOM_ANNOTATION in (await world.stored(pod)).metadata.annotations for pod in pods])
        assert woken == [[False, True], [True, True]]


async def test_a_replica_that_is_not_the_active_one_wakes_nobody():
    active = True
    async with server() as api, replica(api, may_bind=lambda: active) as world:
        late = await world.add_pod("late")
        await world.filter(late, "a")
        active = False
        await world.add_node("a")
        await world.extender.retry_refused()
        active = True
        await world.extender.retry_refused()
        assert ROOM_ANNOTATION not in (await world.stored(late)).metadata.annotations


async def test_a_replica_that_takes_over_wakes_pods_that_found_nobody_to_ask(world):
    await world.add_node("a")
    late = await world.add_pod("late")
    running = asyncio.create_task(world.extender.run())
    try:
        async with asyncio.timeout(60):
            while ROOM_ANNOTATION not in (await world.stored(late)).metadata.annotations:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    finally:
        running.cancel()
        await asyncio.wait({running})
