"""Whoever makes pods without end that fit nowhere takes no turn from more important pods, nor from other namespaces."""

from types import SimpleNamespace

from purser.core.model import PodRequest
from purser.core.names import ROOM_ANNOTATION
from purser.kube.resources import PODS
from purser.scheduler.preemption import preemptor
from purser.scheduler.waiting import keep_most_important
from tests.unit.scheduler.extender_world import eventually, replica, server


def waiting(*pods):
    requests = [PodRequest(uid, namespace, uid, (), priority=priority) for uid, namespace, priority in pods]
    return {request.uid: SimpleNamespace(request=request) for request in requests}


def test_the_least_important_of_the_fullest_namespace_goes_first():
    pods = waiting(("a", "x", 0), ("b", "y", 0), ("c", "y", 0), ("d", "y", 1), ("e", "y", 1))
    kept = []
    while pods:
        keep_most_important(pods, len(pods) - 1)
        kept.append("".join(pods))
    assert kept == ["acde", "cde", "de", "e", ""]


async def refused_in_a_flood(world):
    """A pod that fills node ``n``, and one that is more important and waits with many others."""
    low = await world.add_pod("low", 3000)
    await world.add_node("n", memory=3000)
    assert await world.bind(low, "n") == ""
    high = await world.add_pod("high", priority=5)
    await world.filter(high, "n")
    for number in range(6):
        await world.filter(await world.add_pod(f"flood-{number}"), "n")
    return low, high


async def test_a_flood_of_refused_pods_keeps_no_important_one_from_preempting(monkeypatch):
    monkeypatch.setattr("purser.scheduler.waiting.MAX_WAITING", 4)
    async with server() as api, replica(api) as world:
        _, high = await refused_in_a_flood(world)
        await eventually(lambda: world.cache.budgets.are_known)
        world.clock.ahead_s += preemptor.PREEMPTION_DELAY_S
        await world.extender.retry_refused()
        assert (await world.stored(high)).status.nominated_node_name == "n"


async def test_nor_from_being_woken_when_there_is_room(monkeypatch):
    monkeypatch.setattr("purser.scheduler.waiting.MAX_WAITING", 4)
    async with server() as api, replica(api) as world:
        low, high = await refused_in_a_flood(world)
        await world.client.delete(PODS, "low", "default", grace_period_seconds=0)
        await eventually(lambda: world.ledger.grant(low.metadata.uid) is None)
        await world.extender.retry_refused()
        assert ROOM_ANNOTATION in (await world.stored(high)).metadata.annotations


async def test_a_pod_on_which_the_search_for_victims_fails_ends_nothing(monkeypatch):
    async with server() as api, replica(api) as world:
        low = await world.add_pod("low", 3000)
        await world.add_node("n", memory=3000)
        assert await world.bind(low, "n") == ""
        await eventually(lambda: world.cache.budgets.are_known)
        pods = [await world.add_pod(name, priority=priority) for name, priority in (("bad", 6), ("good", 5))]
        for pod in pods:
            await world.filter(pod, "n")
        see_to = preemptor.Preemptor._process

        async def failing(self, refused):
            if refused.request.name == "bad":
                raise LookupError("whatever it is")
            return await see_to(self, refused)

        monkeypatch.setattr(preemptor.Preemptor, "_process", failing)
        world.clock.ahead_s += preemptor.PREEMPTION_DELAY_S
        await world.extender.retry_refused()
        assert (await world.stored(pods[1])).status.nominated_node_name == "n"


async def test_a_pod_of_another_scheduler_keeps_no_room_whatever_its_status_says():
    async with server() as api, replica(api) as world:
        await world.add_node("n", memory=1000)
        honest = await world.add_pod("honest")
        limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}
        container = {"name": "c", "image": "i", "resources": {"limits": limits}}
        body = {"metadata": {"name": "x"}, "spec": {"schedulerName": "nobody", "containers": [container]}}
        pod = await world.client.create(PODS, body, "default")
        nominated = {"status": {"nominatedNodeName": "n"}}
        await world.client.patch_merge(PODS, "x", nominated, "default", subresource="status")
        await eventually(
            lambda: (known := world.cache.pod_by_uid(pod.metadata.uid)) and known.status.nominated_node_name
        )
        assert (await world.filter(honest, "n")).node_names == ["n"]
