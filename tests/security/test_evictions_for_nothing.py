"""Nobody is asked to go for a pod that does not need the room any more, nor twice, whenever who preempts is stopped."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from purser.core.model import GrantState
from purser.kube import Client
from purser.kube.resources import PODS
from purser.scheduler.preemption import preemptor
from tests.tiers import some
from tests.unit.scheduler import test_missed_pods as missed
from tests.unit.scheduler.extender_world import eventually, replica, server

missed_world = missed.world


async def nothing() -> None:
    """Before a write."""


class Watched(Client):
    """Tells of each write that preemption makes, before it is sent."""

    before: Callable[[], Awaitable[None]] = staticmethod(nothing)

    async def patch_merge(self, *args, **named):
        await self.before()
        return await super().patch_merge(*args, **named)

    async def patch_strategic(self, *args, **named):
        await self.before()
        return await super().patch_strategic(*args, **named)

    async def delete(self, *args, **named):
        await self.before()
        await super().delete(*args, **named)


@pytest.fixture(autouse=True)
def unwatched(monkeypatch):
    """Each test watches for itself."""
    monkeypatch.setattr(Watched, "before", staticmethod(nothing))


async def full(world, *nodes):
    """Nodes with one card and two pods each, that leave no room."""
    pods = []
    for node in nodes:
        await world.add_node(node, memory=2000)
        for number in range(2):
            pods.append(await world.add_pod(f"low-{node}-{number}"))
            assert await world.bind(pods[-1], node) == ""
    await eventually(lambda: all(world.state_of(pod) is GrantState.BOUND for pod in pods))
    await eventually(lambda: all(world.cache.pod_by_uid(pod.metadata.uid).spec.node_name for pod in pods))
    await eventually(lambda: world.cache.budgets.are_known)
    return pods


async def look(world):
    world.clock.ahead_s += preemptor.PREEMPTION_DELAY_S
    await world.extender.retry_refused()


async def going(world):
    listed = (await world.client.list(PODS, "default")).items
    return {pod.metadata.name for pod in listed if pod.metadata.deletion_timestamp}


async def test_a_pod_that_another_replica_binds_meanwhile_costs_nobody_a_place():
    async with server() as api, replica(api, Watched) as old, replica(api) as new:
        await full(old, "full")
        await old.add_node("free")
        await eventually(lambda: new.cache.fleet.node("free") is not None)
        high = await old.add_pod("high", 2000, priority=10)
        await eventually(lambda: new.cache.pod_by_uid(high.metadata.uid) is not None)
        assert (await old.filter(high, "full")).node_names == []

        async def bind_elsewhere():
            if new.state_of(high) is None:
                assert await new.bind(high, "free") == ""

        Watched.before = staticmethod(bind_elsewhere)
        for _ in range(2):
            await look(old)
        assert (await old.stored(high)).spec.node_name == "free"
        assert await going(old) == set()


async def test_room_that_another_replica_makes_meanwhile_is_not_made_twice_and_is_kept():
    async with server() as api, replica(api, Watched) as old, replica(api) as new:
        await full(old, "a", "b")
        high = await old.add_pod("high", 2000, priority=10)
        assert (await old.filter(high, "a")).node_names == []
        known = old.cache.pod_by_uid

        async def nominate_elsewhere():
            Watched.before = staticmethod(nothing)
            status = {"status": {"nominatedNodeName": "b"}}
            await new.client.patch_merge(PODS, "high", status, "default", subresource="status")
            await eventually(lambda: known(high.metadata.uid).status.nominated_node_name == "b")

        Watched.before = staticmethod(nominate_elsewhere)
        await look(old)
        assert await going(old) == set()
        assert old.cache.nominations.node_of(high.metadata.uid) == "b"


async def test_a_replica_that_is_not_the_active_one_any_more_asks_nobody_to_go(monkeypatch):
    leads = [True]
    async with server() as api, replica(api, may_bind=lambda: leads[0]) as world:
        await full(world, "n")
        high = await world.add_pod("high", 2000, priority=10)
        assert (await world.filter(high, "n")).node_names == []
        on_nodes = preemptor.VictimSearch.on_nodes

        async def lose_the_lease(*args):
            found = await on_nodes(*args)
            leads[0] = False
            return found

        monkeypatch.setattr(preemptor.VictimSearch, "on_nodes", lose_the_lease)
        await look(world)
        assert await going(world) == set()
        assert (await world.stored(high)).status.nominated_node_name == ""


@pytest.mark.parametrize("nth", some(range(1, 7), 3))
async def test_after_a_kill_before_a_write_the_next_leader_goes_on_with_the_same_pods(nth):
    async with server() as api:
        async with replica(api, Watched) as world:
            await full(world, "a", "b")
            high = await world.add_pod("high", 2000, priority=10)
            assert (await world.filter(high, "a", "b")).node_names == []
            writes = 0

            async def kill():
                nonlocal writes
                writes += 1
                if writes == nth:
                    raise asyncio.CancelledError

            Watched.before = staticmethod(kill)
            with suppress(asyncio.CancelledError):
                await look(world)
            first = await going(world)
        async with replica(api) as world:
            await eventually(lambda: len(world.cache.fleet.names()) == 2 and world.cache.budgets.are_known)
            for _ in range(2):
                assert (await world.filter(high, "a", "b")).node_names == []
                await look(world)
            gone = await going(world)
            assert len(gone) == 2 and first <= gone
            assert len({name.split("-")[1] for name in gone}) == 1
            for name in gone:
                await world.client.delete(PODS, name, "default", grace_period_seconds=0)
            await eventually(lambda: all(world.cache.pod("default", name) is None for name in gone))
            (fit,) = (await world.filter(high, "a", "b")).node_names
            assert await world.bind(high, fit) == ""


async def test_a_stray_that_its_own_scheduler_binds_at_the_last_moment_stays(missed_world, monkeypatch):
    delete, tried = Client.delete, asyncio.Event()

    async def bound_just_before(client, *args, **named):
        if not tried.is_set():
            uid = (await client.get(PODS, "missed", "default")).metadata.uid
            await client.bind("default", "missed", uid, "n", {})
        try:
            await delete(client, *args, **named)
        finally:
            tried.set()

    monkeypatch.setattr(Client, "delete", bound_just_before)
    async with missed.looking(missed_world, patience_s=0.0):
        await missed_world.pod("missed", missed.SHARE, owned=True)
        await asyncio.wait_for(tried.wait(), 30)
        await missed_world.pod("after", missed.SHARE)
        await missed.eventually(lambda: missed_world.told("after"))
        pod = await missed_world.client.get(PODS, "missed", "default")
        assert pod.spec.node_name == "n" and not pod.metadata.deletion_timestamp
