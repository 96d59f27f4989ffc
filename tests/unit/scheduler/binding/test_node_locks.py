"""Pods for other vendors' devices: bound behind the lock that their device plugins expect, with HAMi's annotations."""

import asyncio
from functools import partial
from unittest.mock import AsyncMock

import pytest
from tests.unit.scheduler.extender_world import eventually, replica, server

from purser.core.vendors.catalogue import families_of
from purser.core.vendors.family import NodeLock
from purser.core.vendors.locks import HeldLock, LockHolder, lock_text, read_lock
from purser.kube.resource_quotas import RESOURCE_QUOTAS
from purser.kube.resources import NODES, PODS
from purser.scheduler.reasons import BindFailure

DCU, DCU_MEM, DCU_CORES = "hygon.com/dcunum", "hygon.com/dcumem", "hygon.com/dcucores"
LOCK = "hami.io/mutex.lock"
REGISTERED = "DCU-a,4,32768,100,Z100L,0,true:DCU-b,4,32768,100,Z100L,1,true:"


dcu_replica = partial(replica, families=families_of(["Hygon DCU"]))


async def register_dcus(world, name="d1"):
    metadata = {"name": name, "annotations": {"hami.io/node-dcu-register": REGISTERED}}
    listed = {"capacity": {DCU: "8"}, "allocatable": {DCU: "8"}}
    await world.client.create(NODES, {"metadata": metadata})
    await world.client.patch_merge(NODES, name, {"status": listed}, subresource="status")


async def add_dcus(world, name="d1"):
    await register_dcus(world, name)
    await eventually(lambda: (node := world.cache.fleet.node(name)) and node.devices[0].device.healthy)


async def share(world, name, mib=1000):
    return await world.add_pod(name, None, **{DCU: "1", DCU_MEM: str(mib), DCU_CORES: "10"})


@pytest.fixture
async def world():
    """With the node ``d1`` and its two DCUs."""
    async with server() as api, dcu_replica(api) as found:
        await add_dcus(found)
        yield found


async def annotations_of(world, node):
    return (await world.client.get(NODES, node)).metadata.annotations


async def test_the_plugin_finds_lock_phase_and_devices(world):
    pod = await share(world, "p")
    assert (await world.filter(pod, "d1")).node_names == ["d1"]
    assert await world.bind(pod, "d1") == ""
    there = (await world.stored(pod)).metadata.annotations
    assert there["hami.io/dcu-devices-to-allocate"] == there["hami.io/dcu-devices-allocated"]
    assert there["hami.io/dcu-devices-to-allocate"].startswith("DCU-b,DCU,1000,10:")
    assert (there["hami.io/bind-phase"], there["hami.io/vgpu-node"]) == ("allocating", "d1")
    assert abs(int(there["hami.io/bind-time"]) - world.clock.now().timestamp()) < 60
    assert (await annotations_of(world, "d1"))[LOCK].endswith(",default,p")
    (event,) = await world.event_messages()
    assert event == "Granted device 1 on node d1; enforcement: vendor"


async def test_what_a_node_registers_of_a_family_that_is_not_named_is_nothing():
    async with server() as api, replica(api, families=families_of(["AMD"])) as world:
        await register_dcus(world)
        pod = await share(world, "p")
        await eventually(lambda: (node := world.cache.node("d1")) and node.status.allocatable)
        assert world.cache.fleet.node("d1") is None
        assert (await world.filter(pod, "d1", "d2")).node_names == ["d1", "d2"]
        assert "does not request GPUs" in await world.bind(pod, "d1")
        assert LOCK not in await annotations_of(world, "d1")


async def test_the_next_pod_waits_until_the_plugin_has_served_this_one(world):
    first, second = await share(world, "first"), await share(world, "second")
    assert await world.bind(first, "d1") == ""
    assert "node d1 is locked until its device plugin has served pod default/first" in await world.bind(second, "d1")
    assert world.bind_failures() == {BindFailure.NODE_LOCKED}
    assert world.state_of(second) is None
    await world.client.patch_merge(NODES, "d1", {"metadata": {"annotations": {LOCK: None}}})
    assert await world.bind(second, "d1") == ""


async def test_the_lock_of_a_pod_that_is_gone_is_no_lock(world):
    first, second = await share(world, "first"), await share(world, "second")
    assert await world.bind(first, "d1") == ""
    await world.client.delete(PODS, "first", "default", grace_period_seconds=0)
    assert await world.bind(second, "d1") == ""


async def test_a_refused_binding_leaves_no_lock(world):
    pod = await share(world, "p")
    await world.client.bind("default", "p", pod.metadata.uid, "elsewhere", {})
    await world.bind(pod, "d1")
    assert LOCK not in await annotations_of(world, "d1")


async def test_a_pod_that_was_bound_past_purser_closes_its_familys_devices_until_it_ends(world):
    other = await world.add_pod("other", None, spec={"nodeName": "d1", "schedulerName": "hami"}, **{DCU: "1"})
    running = {"status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}}
    await world.client.patch_merge(PODS, "other", running, "default", subresource="status")
    await eventually(lambda: world.cache.disputes.closed("d1").keys() == {"DCU-a", "DCU-b"})
    assert other.metadata.uid in world.cache.bound_grants.ungranted
    pod = await share(world, "p")
    assert not (await world.filter(pod, "d1")).node_names
    await world.client.delete(PODS, "other", "default", grace_period_seconds=0)
    await eventually(lambda: not world.cache.disputes.closed("d1"))
    assert await world.bind(pod, "d1") == ""


async def locked(world, owner, ago_s=0.0, node="d1"):
    text = lock_text(BOTH[0], world.clock.now().timestamp() - ago_s, owner)
    await world.client.patch_merge(NODES, node, {"metadata": {"annotations": {LOCK: text}}})
    return text


async def test_nothing_that_stands_in_a_lock_keeps_a_grant_that_is_not_bound(world, monkeypatch):
    pod = await share(world, "p")
    await locked(world, LockHolder("", "p"))
    assert await world.bind(pod, "d1") == ""
    other = await share(world, "other")
    take = AsyncMock(side_effect=ValueError("a bug"))
    monkeypatch.setattr(world.extender._binder._locks, "take", take)
    with pytest.raises(ValueError, match="a bug"):
        await world.bind(other, "d1")
    assert world.state_of(other) is None


async def test_a_lock_that_is_about_to_end_is_taken_again(world):
    for name, ago_s in (("old", 200.0), ("new", 100.0)):
        pod = await share(world, name)
        before = await locked(world, LockHolder("default", name), ago_s)
        assert await world.bind(pod, "d1") == ""
        assert ((await annotations_of(world, "d1"))[LOCK] == before) is (name == "new")


async def test_who_leads_no_more_once_the_node_is_locked_binds_nothing(monkeypatch):
    leads = True
    async with server() as api, dcu_replica(api, may_bind=lambda: leads) as world:
        await add_dcus(world)
        pod, locks = await share(world, "p"), world.extender._binder._locks
        take = locks.take

        async def slow(*args):
            nonlocal leads
            await take(*args)
            leads = False

        monkeypatch.setattr(locks, "take", slow)
        assert "not active" in await world.bind(pod, "d1")
        assert world.state_of(pod) is None
        assert not (await world.stored(pod)).spec.node_name
        assert LOCK in await annotations_of(world, "d1")  # of the replica that goes on


async def test_a_grant_whose_devices_left_while_the_node_was_locked_is_not_bound(world, monkeypatch):
    pod, locks = await share(world, "p"), world.extender._binder._locks
    take = locks.take

    async def slow(*args):
        await take(*args)
        await world.client.patch_merge(NODES, "d1", {"metadata": {"annotations": {"hami.io/node-dcu-register": None}}})
        await eventually(lambda: world.cache.fleet.node("d1") is None)

    monkeypatch.setattr(locks, "take", slow)
    assert "no longer has the devices that were chosen for the pod" in await world.bind(pod, "d1")
    assert world.state_of(pod) is None
    assert LOCK not in await annotations_of(world, "d1")


async def test_all_that_locks_a_node_has_one_deadline(monkeypatch):
    monkeypatch.setattr("purser.scheduler.binding.node_locks.LOCK_TIMEOUT_S", 0.01)
    async with server() as api, dcu_replica(api) as world:
        await add_dcus(world)
        pod = await share(world, "p")
        monkeypatch.setattr(world.extender._binder._locks, "_try_lock", lambda *args: asyncio.Event().wait())
        assert "did not answer within 0.01 s" in await world.bind(pod, "d1")
        assert world.state_of(pod) is None


async def test_each_family_has_a_quota_of_its_own():
    hard = {"limits.nvidia.com/gpumem": "500", "limits.hygon.com/dcumem": "1500"}
    async with server() as api, dcu_replica(api) as world:
        await add_dcus(world)
        await world.client.create(
            RESOURCE_QUOTAS, {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": hard}}
        )
        await eventually(lambda: world.cache.quota_limits("default", DCU).memory_mib == 1500)
        first, second = await share(world, "first"), await share(world, "second")
        assert await world.bind(first, "d1") == ""
        assert world.cache.quota_remaining("default").memory_mib == 500
        refused = await world.filter(second, "d1")
        assert not refused.node_names
        (why,) = refused.failed_nodes.values()
        assert "limits.hygon.com/dcumem" in why or "quota" in why


OWNER = LockHolder("team", "job")
BOTH = [NodeLock("x", 300), NodeLock("x", 120, names_pod=False)]


@pytest.mark.parametrize("lock", BOTH, ids=["names its pod", "time alone"])
def test_a_lock_ends_with_its_time(lock):
    text = lock_text(lock, 1_000_000, OWNER)
    expected = OWNER if lock.names_pod else LockHolder()
    assert read_lock(lock, text, 1_000_000 + lock.seconds - 1) == HeldLock(expected, lock.seconds - 1)
    assert read_lock(lock, text, 1_000_000 + lock.seconds) is None
    assert read_lock(lock, text, 1_000_000 - lock.seconds) is None


AT, AT_S = "2026-08-21T10:00:00Z", 1787306400.0


@pytest.mark.parametrize(
    "text", [None, "", "soon", ",team,job", f"{AT},,job", f"{AT},team", f"{AT},team,", f"{AT},team,../x", f"{AT},a,b,c"]
)
def test_what_makes_no_sense_is_no_lock(text):
    assert read_lock(BOTH[0], text, AT_S) is None


def test_hamis_own_lock_is_read():
    assert read_lock(BOTH[0], f"{AT},ns,pod", AT_S + 1) == HeldLock(LockHolder("ns", "pod"), 1)
    assert read_lock(BOTH[0], AT, AT_S + 1) == HeldLock(LockHolder(), 1)
