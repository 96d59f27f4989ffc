"""Nodes chosen before kube-scheduler asks: for whom, what is kept for them, and who may take it back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import MagicMock

import msgspec
import pytest
from tests.unit.scheduler.extender_world import World, a_grant, eventually, replica, server

from purser.core.grant.signing import sign
from purser.core.model import Device, Grant, GrantState, NodeInventory
from purser.core.names import INVENTORY_ANNOTATION, ROOM_ANNOTATION, SCHEDULER_NAME
from purser.kube.objects import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from purser.kube.resources import NODES, PODS
from purser.lab.apiserver import ApiServer
from purser.scheduler.cache.cache import ClusterCache
from purser.scheduler.extender import early_nominations
from purser.scheduler.extender.early_nominations import EarlyNominations
from purser.scheduler.extender_api import ExtenderPreemptionArgs, MetaPod, MetaVictims
from purser.scheduler.placement.reservations import EARLY_RESERVATION_TTL_S

HALF = 4000
"""MiB of a card of 8000."""


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ApiServer]:
    monkeypatch.setattr(early_nominations, "MANY_NODES", 1)
    async with server() as running:
        yield running


@contextlib.asynccontextmanager
async def ahead_of(api: ApiServer, is_active: Any = lambda: True) -> AsyncIterator[World]:
    """A replica that runs as a whole, and that kube-scheduler has asked once."""
    async with replica(api, may_bind=is_active) as world:
        world.extender.attach(world.pods)
        running = asyncio.create_task(world.extender.run())
        if is_active():
            await world.filter(Pod(), "a")
        try:
            yield world
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
async def world(api: ApiServer) -> AsyncIterator[World]:
    async with ahead_of(api) as running:
        yield running


async def queue(world: World, count: int, memory: int = HALF, **facts: Any) -> list[Pod]:
    """Pods that nobody asks about, in this order."""
    return [await world.add_pod(f"p{number}", memory, **facts) for number in range(count)]


async def nominated(world: World, pod: Pod) -> str:
    return (await world.stored(pod)).status.nominated_node_name


async def nominated_at_last(world: World, pod: Pod) -> str:
    known = world.cache.pod_by_uid
    await eventually(lambda: bool((found := known(pod.metadata.uid)) and found.status.nominated_node_name))
    return await nominated(world, pod)


async def nominating(world: World, count: int = 3, cards: int = 1) -> list[Pod]:
    """A node ``a``, and pods that queue up for halves of its cards, of which the last is nominated."""
    await world.add_node("a", cards=cards)
    pods = await queue(world, count)
    await nominated_at_last(world, pods[-1])
    return pods


async def are_left_alone(world: World, pods: list[Pod]) -> bool:
    """A decision takes a turn of the loop, and keeps room before it is written."""
    for _ in range(5 * len(pods)):
        await asyncio.sleep(0)
    return all(world.ledger.grant(pod.metadata.uid) is None for pod in pods)


async def test_pods_that_queue_up_are_nominated_side_by_side(world: World) -> None:
    await world.add_node("a", cards=2)
    await world.add_node("small", memory=10)
    pods = await queue(world, 6)
    assert await nominated_at_last(world, await world.add_pod("after", 10)) == "small"
    assert await nominated_at_last(world, pods[2]) == "a"
    held = [world.ledger.grant(pod.metadata.uid) for pod in pods]
    assert sum(grant is not None for grant in held) == 4, "there is room for four halves"
    assert not world.ledger.violations()
    assert world.memory_used("a") == 2 * 8000


async def test_the_first_in_the_queue_are_left_to_kube_scheduler(world: World) -> None:
    await world.add_node("a", cards=8)
    *pods, after = await queue(world, early_nominations.MIN_PODS_NEXT_IN_TURN + 1)
    assert await nominated_at_last(world, after) == "a"
    assert [await nominated(world, pod) for pod in pods] == ["", ""]
    assert world.memory_used("a") == HALF


async def test_who_was_nominated_gets_what_was_reserved(world: World) -> None:
    pods = await nominating(world, 4, cards=4)
    reserved = world.ledger.grant(pods[3].metadata.uid)
    assert (await world.filter(pods[3], "a")).node_names == ["a"]
    assert await world.bind(pods[3], "a") == ""
    assert await world.grant_on(pods[3]) == reserved


async def test_a_nominated_pod_may_be_bound_elsewhere(world: World) -> None:
    await world.add_node("a", cards=1, memory=2 * HALF)
    pods = await queue(world, 3)
    await nominated_at_last(world, pods[2])
    await world.add_node("b")
    assert (await world.filter(pods[2], "b")).node_names == ["b"]
    assert await world.bind(pods[2], "b") == ""
    grant = await world.grant_on(pods[2])
    assert grant is not None and grant.node == "b"
    assert world.memory_used("b") == HALF
    others = [each for each in world.ledger.grants("a") if each.pod_uid == pods[2].metadata.uid]
    assert others == []


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}},
        {"schedulingGates": [{"name": "example.com/wait"}]},
        {"schedulerName": "default-scheduler"},
        {"preemptionPolicy": "Never"},
    ],
)
async def test_who_is_not_nominated(world: World, spec: dict[str, Any]) -> None:
    await world.add_node("a", cards=8)
    assert await are_left_alone(world, await queue(world, 5, spec=spec))


async def test_few_nodes_need_no_nominations(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_nominations, "MANY_NODES", 2)
    await world.add_node("a", cards=8)
    assert await are_left_alone(world, await queue(world, 5))


async def test_a_node_that_is_closed_to_the_pod_is_not_named(world: World) -> None:
    await world.add_node("a", cards=8)
    await world.client.patch_merge(NODES, "a", {"spec": {"unschedulable": True}})
    await eventually(lambda: bool((node := world.cache.node("a")) and node.spec.unschedulable))
    await world.add_node("b", cards=8)
    pods = await queue(world, 4)
    assert await nominated_at_last(world, pods[3]) == "b"


async def test_what_is_not_used_in_time_is_free_again(world: World) -> None:
    pods = await nominating(world, 4)
    assert world.memory_used("a") == 8000
    world.clock.ahead_s = EARLY_RESERVATION_TTL_S + 1
    await world.extender.retry_refused()
    assert world.memory_used("a") == 0
    assert await nominated(world, pods[3]) == "", "nor is anything kept for it"


async def test_a_pod_that_goes_leaves_its_reservation(world: World) -> None:
    pods = await nominating(world)
    await world.client.delete(PODS, pods[2].metadata.name, "default", grace_period_seconds=0)
    await eventually(lambda: world.ledger.grant(pods[2].metadata.uid) is None)


async def test_a_more_important_pod_is_not_kept_waiting(world: World) -> None:
    await nominating(world, 4)
    urgent = await world.add_pod("urgent", 8000, priority=100)
    assert (await world.filter(urgent, "a")).node_names == ["a"]
    assert await world.bind(urgent, "a") == ""
    assert not world.ledger.violations()


async def test_an_equally_important_pod_takes_nothing_from_it(world: World) -> None:
    await nominating(world, 4)
    assert (await world.filter(await world.add_pod("other", 8000), "a")).node_names == []


async def test_a_gpu_that_went_bad_is_not_handed_out(world: World) -> None:
    pods = await nominating(world, cards=2)
    reserved = world.ledger.grant(pods[2].metadata.uid)
    assert reserved is not None
    (bad,) = reserved.uuids
    left = tuple(Device(f"a-{i}", i, "NVIDIA A100", 8000, slots=10, healthy=f"a-{i}" != bad) for i in range(2))
    text = msgspec.json.encode(NodeInventory("a", left)).decode()
    await world.client.patch_merge(NODES, "a", {"metadata": {"annotations": {INVENTORY_ANNOTATION: text}}})
    await eventually(
        lambda: bool((node := world.cache.fleet.node("a")) and any(not s.device.healthy for s in node.devices))
    )
    assert await world.bind(pods[2], "a") == ""
    grant = await world.grant_on(pods[2])
    assert grant is not None and bad not in grant.uuids


async def test_a_replica_that_is_not_active_nominates_nobody(api: ApiServer) -> None:
    active = True
    async with ahead_of(api, lambda: active) as world:
        await world.add_node("a", cards=4)
        pods = await queue(world, 4)
        await nominated_at_last(world, pods[3])
        active = False
        await world.extender.retry_refused()
        assert world.memory_used("a") == 0, "another replica decides what they get"
        assert await are_left_alone(world, [await world.add_pod(f"late{number}", HALF) for number in range(3)])


async def test_a_pod_that_was_refused_is_not_nominated_later(world: World) -> None:
    await world.add_node("a", memory=1000)
    pods = await queue(world, 3)
    for pod in pods:
        assert (await world.filter(pod, "a")).node_names == []
    await world.add_node("b", cards=8)
    for pod in pods:
        changed = {"metadata": {"labels": {"changed": "yes"}}}
        await world.client.patch_merge(PODS, pod.metadata.name, changed, "default")
    after = [await world.add_pod(f"after{number}", HALF) for number in range(3)]
    assert await nominated_at_last(world, after[2]) == "b"
    assert {await nominated(world, pod) for pod in pods} == {""}


async def bound_by_another_replica(world: World, pod: Pod, grant: Grant) -> None:
    meta = pod.metadata
    await world.client.bind("default", meta.name, meta.uid, grant.node, sign(grant, world.keys.signing))
    await eventually(lambda: world.state_of(pod) is GrantState.BOUND)


async def test_what_another_replica_granted_is_not_taken_back(world: World) -> None:
    pods = await nominating(world)
    reserved = world.ledger.grant(pods[2].metadata.uid)
    assert reserved is not None
    await bound_by_another_replica(world, pods[2], reserved)
    world.clock.ahead_s = EARLY_RESERVATION_TTL_S + 1
    await world.extender.retry_refused()
    assert world.ledger.grant(pods[2].metadata.uid) == reserved


async def test_what_another_replica_gave_to_others_is_not_handed_out(world: World) -> None:
    pods = await nominating(world)
    other = await world.add_pod("other", 8000)
    await bound_by_another_replica(world, other, a_grant(other.metadata.uid, "a", "a-0", 8000, "other"))
    assert "no longer fits" in await world.bind(pods[2], "a")


async def test_nothing_is_reserved_any_more_once_the_lease_was_lost_be_it_won_back_at_once(world: World) -> None:
    pods = await nominating(world)
    world.extender.leadership_changed(False)
    world.extender.leadership_changed(True)
    await world.filter(pods[0], "a")
    assert world.ledger.grant(pods[2].metadata.uid) is None


async def test_a_gpu_in_dispute_is_not_handed_out(world: World) -> None:
    pods = await nominating(world, cards=2)
    reserved = world.ledger.grant(pods[2].metadata.uid)
    assert reserved is not None
    world.cache.fleet.set_disputes("a", dict.fromkeys(reserved.uuids, "another pod holds it"))
    assert await world.bind(pods[2], "a") == ""
    grant = await world.grant_on(pods[2])
    assert grant is not None and grant.uuids.isdisjoint(reserved.uuids)


async def test_who_is_bound_first_is_not_kept_waiting_by_those_after_it(world: World) -> None:
    await world.add_node("a")
    first = await world.add_pod("first", HALF)
    assert (await world.filter(first, "a")).node_names == ["a"]
    pods = await queue(world, 4)
    await nominated_at_last(world, pods[3])
    assert world.memory_used("a") == 8000
    assert await world.bind(first, "a") == ""
    assert not world.ledger.violations()


async def test_who_has_no_more_than_a_reservation_is_no_victim(world: World) -> None:
    await world.add_node("a", cards=2)
    low = await world.add_pod("low", 8000)
    assert await world.bind(low, "a") == ""
    await nominated_at_last(world, (await queue(world, 4))[3])
    urgent = await world.add_pod("urgent", 8000, priority=100, **{"nvidia.com/gpu": "2"})
    asked = ExtenderPreemptionArgs(urgent, node_name_to_meta_victims={"a": MetaVictims((MetaPod(low.metadata.uid),))})
    victims = (await world.extender.preempt(asked)).node_name_to_meta_victims
    assert victims["a"].pods == (MetaPod(low.metadata.uid),)


async def test_who_is_nominated_may_preempt_where_kube_scheduler_itself_has_no_room(world: World) -> None:
    await world.add_node("a")
    low = await world.add_pod("low", HALF)
    assert await world.bind(low, "a") == ""
    pods = await queue(world, 3, priority=10)
    await nominated_at_last(world, pods[2])
    proposed = {"a": MetaVictims((MetaPod(low.metadata.uid),))}
    answer = await world.extender.preempt(ExtenderPreemptionArgs(pods[2], node_name_to_meta_victims=proposed))
    assert answer.node_name_to_meta_victims == proposed


async def test_a_more_important_pod_that_was_refused_is_woken_for_what_is_only_reserved(world: World) -> None:
    await world.add_node("a")
    old = await world.add_pod("old", 8000)
    assert await world.bind(old, "a") == ""
    urgent = await world.add_pod("urgent", 8000, priority=100)
    assert (await world.filter(urgent, "a")).node_names == []
    pods = await queue(world, 2)
    await world.client.delete(PODS, "old", "default", grace_period_seconds=0)
    await eventually(lambda: world.memory_used("a") == 0)
    pods.append(await world.add_pod("p2", HALF))
    await nominated_at_last(world, pods[2])
    await world.extender.retry_refused()
    assert ROOM_ANNOTATION in (await world.stored(urgent)).metadata.annotations


async def test_a_name_that_kube_scheduler_takes_back_takes_the_reservation_along(world: World) -> None:
    pods = await nominating(world)
    await world.client.patch_merge(PODS, "p2", {"status": {"nominatedNodeName": None}}, "default", subresource="status")
    await eventually(lambda: world.ledger.grant(pods[2].metadata.uid) is None, within_s=EARLY_RESERVATION_TTL_S / 2)


async def test_a_pod_that_was_asked_to_go_leaves_its_reservation(world: World) -> None:
    pods = await nominating(world)
    await world.client.patch_merge(PODS, "p2", {"metadata": {"finalizers": ["example.com/wait"]}}, "default")
    await world.client.delete(PODS, "p2", "default", grace_period_seconds=0)
    await eventually(lambda: world.ledger.grant(pods[2].metadata.uid) is None, within_s=EARLY_RESERVATION_TTL_S / 2)
    assert (await world.stored(pods[2])).metadata.deletion_timestamp


def test_nothing_is_kept_of_pods_that_are_gone_though_nobody_is_nominated() -> None:
    container = Container("c", ResourceRequirements({"nvidia.com/gpu": "1"}))
    spec = PodSpec(scheduler_name=SCHEDULER_NAME, containers=(container,))
    idle = EarlyNominations(MagicMock(), ClusterCache(MagicMock()), *[MagicMock()] * 4)
    for number in range(4 * early_nominations.MAX_NOMINATED_AHEAD):
        pod = Pod(ObjectMeta(f"p{number}", "default", str(number)), spec)
        idle.put_pod(pod)
        idle.remove_pod(pod)
    kept = sum(len(held) for held in vars(idle).values() if isinstance(held, list | set | dict))
    assert 0 < kept <= 2 * early_nominations.MAX_NOMINATED_AHEAD


async def test_what_is_on_the_book_is_not_kept_once_more_for_who_is_named(world: World) -> None:
    await world.add_node("a")
    named = await world.add_pod("named", HALF)
    await world.client.patch_merge(
        PODS, "named", {"status": {"nominatedNodeName": "a"}}, "default", subresource="status"
    )
    await eventually(lambda: world.cache.nominations.node_of(named.metadata.uid) == "a")
    world.ledger.reserve(a_grant(named.metadata.uid, "a", "a-0", HALF, "named"))
    assert (await world.filter(await world.add_pod("other", HALF), "a")).node_names == ["a"]


async def test_pods_that_waited_before_a_replica_became_active_are_left_to_kube_scheduler(api: ApiServer) -> None:
    async with replica(api) as before:
        await before.add_node("a", cards=8)
        old = [await before.add_pod(f"old{number}", HALF) for number in range(4)]
    async with ahead_of(api) as world:
        pods = await queue(world, 4)
        assert await nominated_at_last(world, pods[3]) == "a"
        assert {await nominated(world, pod) for pod in old} == {""}
