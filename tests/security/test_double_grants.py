"""A change of leaders while a Binding is under way: one card is granted twice, and the later pod is taken off."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

from purser.core.model import GrantState
from purser.kube import Client, untyped_resource
from purser.kube.objects import ObjectMeta, Pod
from purser.kube.resources import EVENTS, PODS
from purser.scheduler.binding.double_grants import DoubleGrants
from purser.scheduler.reasons import SchedulerReason
from tests.unit.scheduler.extender_world import eventually, replica, server

REPLICA_SETS = untyped_resource("apps", "v1", "replicasets", "ReplicaSet")


class Slow(Client):
    """Its Bindings arrive when they are let through."""

    gate: asyncio.Event

    async def bind(self, *arguments, **named):
        await self.gate.wait()
        return await super().bind(*arguments, **named)


@asynccontextmanager
async def leaders():
    """The old one, and the new one, which looks for cards that were granted twice."""
    async with server() as api, replica(api, Slow) as old, replica(api) as new:
        doubles = DoubleGrants(new.client, new.cache, new.events, new.metrics, lambda: True)
        working = asyncio.create_task(doubles.run())
        await new.add_node("n1")
        await eventually(lambda: old.cache.fleet.node("n1") is not None)
        try:
            yield old, new
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


async def owned_pod(world, name):
    """Of a controller; nobody recreates it here."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    body = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
    uid = (await world.client.create(REPLICA_SETS, body))["metadata"]["uid"]
    pod = await world.add_pod(name, 8000)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": uid, "controller": True}
    await world.client.patch_merge(PODS, name, {"metadata": {"ownerReferences": [owner]}}, "default")
    return pod


async def run_pod(world, name):
    await world.client.patch_merge(PODS, name, {"status": {"phase": "Running"}}, "default", subresource="status")


async def exists(world, name):
    return name in {pod.metadata.name for pod in (await world.client.list(PODS, "default")).items}


async def granted_twice(old, new, first, second):
    """The old leader's Binding of ``first`` arrives after the new one has given the card to ``second``."""
    await eventually(lambda: old.cache.pod_by_uid(first.metadata.uid) is not None)
    Slow.gate = asyncio.Event()
    binding = asyncio.create_task(old.bind(first, "n1"))
    await eventually(lambda: old.state_of(first) is not None)
    assert await new.bind(second, "n1") == ""
    Slow.gate.set()
    assert await binding == ""
    await eventually(lambda: len(new.ledger.violations("n1")) == 1)


async def test_the_later_grant_of_a_controllers_pod_is_taken_off_once_the_other_runs():
    async with leaders() as (old, new):
        first, second = await owned_pod(new, "first"), await owned_pod(new, "second")
        await granted_twice(old, new, first, second)
        assert await exists(new, "first")  # nobody knows yet whom the node's agent will serve
        assert await exists(new, "second")
        await run_pod(new, "second")
        await eventually(lambda: new.cache.pod_by_uid(first.metadata.uid).metadata.deletion_timestamp != "")
        assert not new.cache.pod_by_uid(second.metadata.uid).metadata.deletion_timestamp
        await new.client.delete(PODS, "first", "default", grace_period_seconds=0)  # what kubelet does
        await eventually(lambda: new.ledger.violations("n1") == ())
        assert any("also granted to pod default/second" in text for text in await new.event_messages())
        assert b"purser_scheduler_granted_twice_total 1.0" in new.metrics.exposition()


async def test_a_bare_pod_gets_an_event_and_stays():
    async with leaders() as (old, new):
        first, second = await new.add_pod("first", 8000), await new.add_pod("second", 8000)
        await granted_twice(old, new, first, second)
        await run_pod(new, "first")
        await eventually(lambda: b"purser_scheduler_granted_twice_total 1.0" in new.metrics.exposition())
        await new.events.drain()
        (told,) = [
            each.message
            for each in (await new.client.list(EVENTS, "default")).items
            if each.reason == SchedulerReason.GRANTED_TWICE
        ]
        assert "also granted to pod default/first" in told and "delete and recreate this pod" in told
        assert await exists(new, "second")


async def test_a_pod_that_kubelet_has_taken_is_left_alone_whatever_the_book_says(monkeypatch):
    """It may pull its image for long."""
    see_to, seen = DoubleGrants._check_node, []

    async def noted(doubles, node):
        await see_to(doubles, node)
        seen.append(node)

    monkeypatch.setattr(DoubleGrants, "_check_node", noted)
    async with leaders() as (old, new):
        first, second = await owned_pod(new, "first"), await owned_pod(new, "second")
        await granted_twice(old, new, first, second)
        taken = {"status": {"startTime": "2030-01-01T00:00:00Z"}}
        await new.client.patch_merge(PODS, "first", taken, "default", subresource="status")
        await eventually(lambda: new.cache.pod_by_uid(first.metadata.uid).status.start_time != "")
        await run_pod(new, "second")
        await eventually(lambda: new.state_of(second) is GrantState.RUNNING)
        seen.clear()
        await new.client.patch_merge(PODS, "second", {"metadata": {"labels": {"changed": "yes"}}}, "default")
        await eventually(lambda: bool(seen))
        assert not new.cache.pod_by_uid(first.metadata.uid).metadata.deletion_timestamp


async def test_nor_is_one_deleted_that_kubelet_takes_at_the_last_moment(monkeypatch):
    delete, tried = Client.delete, asyncio.Event()

    async def taken_just_before(client, resource, name, *args, **named):
        taken = {"status": {"startTime": "2030-01-01T00:00:00Z"}}
        await client.patch_merge(PODS, name, taken, "default", subresource="status")
        try:
            await delete(client, resource, name, *args, **named)
        finally:
            tried.set()

    async with server() as api, replica(api, Slow) as old, replica(api) as new:
        doubles = DoubleGrants(new.client, new.cache, new.events, new.metrics, lambda: True)
        working = asyncio.create_task(doubles.run())
        await new.add_node("n1")
        await eventually(lambda: old.cache.fleet.node("n1") is not None)
        first, second = await owned_pod(new, "first"), await owned_pod(new, "second")
        await eventually(lambda: old.cache.pod_by_uid(first.metadata.uid) is not None)
        await granted_twice(old, new, first, second)
        monkeypatch.setattr(Client, "delete", taken_just_before)
        await run_pod(new, "second")
        await asyncio.wait_for(tried.wait(), 30)
        assert not (await new.stored(first)).metadata.deletion_timestamp
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def test_a_pod_is_told_again_when_another_runs_where_it_was_to_be():
    said, counted = [], []
    client = SimpleNamespace(failures=None)
    events = SimpleNamespace(event=lambda about, reason, message, type: said.append(message.partition(", which")[0]))
    metrics = SimpleNamespace(granted_twice=lambda: counted.append(1))
    doubles = DoubleGrants(client, SimpleNamespace(pod_by_uid=lambda _: pod), events, metrics, lambda: True)
    pod = Pod(metadata=ObjectMeta(name="late", namespace="ns", uid="u"))
    for rival in ("ns/a", "ns/a", "ns/b"):
        await doubles._delete_or_report(pod, ["GPU-1"], [rival])
    assert said == [f"GPU-1 was also granted to pod {rival}" for rival in ("ns/a", "ns/b")]
    assert len(counted) == 1
