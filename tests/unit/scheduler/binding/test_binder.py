"""Binding: atomic, repeatable, and honest about answers that were lost. Crashes cost nothing and give nothing away."""

import asyncio
from types import SimpleNamespace

import pytest
from tests.unit.scheduler.extender_world import eventually, replica, server

from purser.adapters.pods import pod_spec
from purser.core.dialects import parse
from purser.core.fleet import Fleet, FreeResources
from purser.core.grant.signing import verify
from purser.core.ledger import LedgerError
from purser.core.model import (
    ContainerGrant,
    ContainerKind,
    Device,
    DeviceMode,
    DeviceShare,
    Grant,
    GrantState,
    NodeInventory,
)
from purser.core.names import GRANT_ANNOTATION
from purser.kube import ApiUnavailableError, Client, ServerError
from purser.kube.resources import NODES, PODS
from purser.scheduler.binding.binder import granted_sentence
from purser.scheduler.binding.unsettled import LOST_BINDING_TIMEOUT_S
from purser.scheduler.extender_api import ExtenderBindingArgs
from purser.scheduler.reasons import BindFailure


class Faulty(Client):
    """A client whose Bindings can be held up, lost on the way there, or lost on the way back."""

    before: Exception | BaseException | None = None
    after: Exception | BaseException | None = None
    gate: asyncio.Event | None = None
    posted = 0

    async def bind(self, *args, **kwargs):
        self.posted += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.before is not None:
            raise self.before
        await super().bind(*args, **kwargs)
        if self.after is not None:
            raise self.after


LOST = ApiUnavailableError("timed out", outcome_unknown=True)


@pytest.fixture
async def world():
    async with server() as api, replica(api, Faulty) as found:
        yield found


@pytest.fixture
async def pod(world):
    """It is not bound yet; the node ``n1`` has room for the pod."""
    await world.add_node("n1")
    return await world.add_pod("p")


async def test_node_and_grant_appear_in_one_write(world):
    await world.add_node("n1")
    pod = await world.add_pod("p", **{"nvidia.com/gpucores": "30"})
    assert await world.bind(pod, "n1") == ""
    stored = await world.stored(pod)
    assert stored.spec.node_name == "n1"
    grant = verify(stored.metadata.annotations, pod_uid=pod.metadata.uid, node="n1", keys=world.keys.public)
    assert grant == world.ledger.grant(pod.metadata.uid)
    (share,) = grant.of("c").shares
    assert (share.uuid, share.memory_mib, share.cores_percent) == ("n1-0", 1000, 30)
    assert stored.metadata.annotations["hami.io/vgpu-node"] == "n1"


async def test_a_bind_done_twice_is_a_success_and_changes_nothing(world):
    await world.add_node("n1")
    await world.add_node("n2")
    pod = await world.add_pod("p")
    assert [await world.bind(pod, "n1"), await world.bind(pod, "n1")] == ["", ""]
    await eventually(lambda: world.cache.pod_by_uid(pod.metadata.uid).spec.node_name == "n1")
    assert await world.bind(pod, "n1") == ""
    assert world.client.posted == 1
    assert "already bound to node n1" in await world.bind(pod, "n2")
    assert world.bind_failures() == {BindFailure.ALREADY_BOUND}
    assert (world.memory_used("n1"), world.memory_used("n2")) == (1000, 0)


async def test_two_binds_at_once_are_one(world, pod):
    assert await asyncio.gather(*(world.bind(pod, "n1") for _ in range(5))) == [""] * 5
    assert world.client.posted == 1


async def test_pods_that_race_for_the_last_share_do_not_both_get_it(world):
    await world.add_node("n1", memory=1500)
    pods = [await world.add_pod(name) for name in "abc"]
    errors = await asyncio.gather(*(world.bind(pod, "n1") for pod in pods))
    assert sorted(error == "" for error in errors) == [False, False, True]
    assert any("1/1 CardInsufficientMemory" in error for error in errors)
    assert world.memory_used("n1") == 1000


@pytest.mark.parametrize("recreated", [False, True], ids=["deleted", "another of the same name"])
async def test_a_pod_that_is_gone_is_a_clean_error(world, pod, recreated):
    await world.client.delete(PODS, "p", "default", grace_period_seconds=0)
    if recreated:
        await world.add_pod("p")
    assert "is gone" in await world.bind(pod, "n1")
    assert world.bind_failures() == {BindFailure.POD_DELETED}
    assert world.memory_used("n1") == 0


async def test_a_pod_that_goes_while_its_binding_is_on_the_way_leaves_nothing_behind(world, pod):
    world.client.gate = asyncio.Event()
    attempt = asyncio.create_task(world.bind(pod, "n1"))
    await eventually(lambda: world.state_of(pod) is GrantState.RESERVED)
    await world.client.delete(PODS, "p", "default", grace_period_seconds=0)
    world.client.gate.set()
    assert "rejected" in await attempt
    assert world.memory_used("n1") == 0


async def test_a_pod_on_its_way_takes_of_its_node_beside_gpus_and_gives_back_what_came_to_nothing(world):
    await world.add_node("n1")
    size = {"cpu": "8", "memory": "64Gi", "pods": "110"}
    await world.client.patch_merge(NODES, "n1", {"status": {"allocatable": size}}, subresource="status")
    await eventually(lambda: world.cache.fleet.free_resources("n1").pods_free == 110)
    pod = await world.add_pod("p", cpu="2")
    world.client.gate = asyncio.Event()
    attempt = asyncio.create_task(world.bind(pod, "n1"))
    await eventually(lambda: world.cache.fleet.free_resources("n1") == FreeResources(6000, 64 * 1024, 109))
    world.client.before = ApiUnavailableError("refused", outcome_unknown=False)
    world.client.gate.set()
    assert "refused" in await attempt
    assert world.cache.fleet.free_resources("n1") == FreeResources(8000, 64 * 1024, 110)


@pytest.mark.parametrize("node", ["unknown", "n1"])
async def test_nodes_that_cannot_hold_the_pod_are_errors(world, node):
    await world.add_node("n1", memory=500)
    error = await world.bind(await world.add_pod("p"), node)
    assert ("has no inventory" if node == "unknown" else "CardInsufficientMemory") in error
    assert world.bind_failures() == {BindFailure.NO_INVENTORY if node == "unknown" else BindFailure.NO_LONGER_FITS}


async def test_what_the_ledger_refuses_is_not_bound(world, pod, monkeypatch):
    def refuse(grant):
        raise LedgerError("another grant has the GPU")

    monkeypatch.setattr(world.ledger, "reserve", refuse)
    assert "another grant has the GPU" in await world.bind(pod, "n1")
    assert world.bind_failures() == {BindFailure.LEDGER_REFUSED}


@pytest.mark.parametrize(
    ("annotations", "says", "reason"),
    [
        ({}, "another component bound the pod without a grant", BindFailure.BOUND_WITHOUT_GRANT),
        ({GRANT_ANNOTATION: "{}"}, "bound with an invalid grant", BindFailure.BOUND_WITH_INVALID_GRANT),
    ],
)
async def test_a_pod_that_another_component_bound_is_not_taken_for_one_of_its_own(
    world, pod, annotations, says, reason
):
    await world.client.bind("default", "p", pod.metadata.uid, "n1", annotations)
    await eventually(lambda: world.cache.pod_by_uid(pod.metadata.uid).spec.node_name == "n1")
    assert says in await world.bind(pod, "n1")
    assert world.bind_failures() == {reason}


async def test_a_pod_that_asks_for_no_gpu_in_our_words_is_bound_without_a_grant(world):
    await world.add_node("n1")
    pod = await world.add_pod("plain", memory=None, **{"nvidia.com/gpu": "0"})
    assert parse(pod_spec(pod)) is None
    assert await world.bind(pod, "n1") == ""
    assert GRANT_ANNOTATION not in (await world.stored(pod)).metadata.annotations


async def test_a_binding_that_never_left_releases_at_once(world, pod):
    world.client.before = ApiUnavailableError("connection refused")
    assert "refused" in await world.bind(pod, "n1")
    assert world.state_of(pod) is None


@pytest.mark.parametrize(
    "error", [LOST, ServerError(504, "Timeout", "request did not complete")], ids=["no answer", "a 504"]
)
async def test_an_answer_that_was_lost_is_asked_for(world, pod, error):
    world.client.after = error
    assert await world.bind(pod, "n1") == ""
    assert world.state_of(pod) is GrantState.BOUND
    assert await world.grant_on(pod) == world.ledger.grant(pod.metadata.uid)


async def test_a_binding_that_may_still_be_carried_out_keeps_its_share(world):
    await world.add_node("n1", memory=1500)
    pod, rival = await world.add_pod("p"), await world.add_pod("rival")
    world.client.before = LOST
    assert "not know yet" in await world.bind(pod, "n1")
    assert world.bind_failures() == {BindFailure.OUTCOME_UNKNOWN}
    world.client.before = None
    assert "CardInsufficientMemory" in await world.bind(rival, "n1")
    await world.extender._binder.resolve()
    assert world.state_of(pod) is GrantState.RESERVED
    world.clock.ahead_s = LOST_BINDING_TIMEOUT_S + 1
    await world.extender._binder.resolve()
    assert world.state_of(pod) is None
    assert await world.bind(rival, "n1") == ""


async def test_a_retry_posts_the_same_grant_again(world):
    await world.add_node("n1")
    await world.add_node("n2")
    pod = await world.add_pod("p")
    world.client.before = LOST
    await world.bind(pod, "n1")
    reserved = world.ledger.grant(pod.metadata.uid)
    world.client.before = None
    assert "not know yet whether the pod was bound to node n1" in await world.bind(pod, "n2")
    assert await world.bind(pod, "n1") == ""
    assert await world.grant_on(pod) == reserved


async def test_a_refusal_does_not_release_what_an_earlier_lost_write_may_still_take(world, pod):
    for error in (LOST, ApiUnavailableError("connection refused")):
        world.client.before = error
        await world.bind(pod, "n1")
        assert world.state_of(pod) is GrantState.RESERVED


async def test_a_lost_binding_of_a_pod_that_is_gone_is_released(world, pod):
    world.client.before = LOST
    await world.bind(pod, "n1")
    await world.client.delete(PODS, "p", "default", grace_period_seconds=0)
    await world.extender._binder.resolve()
    assert world.memory_used("n1") == 0


async def test_a_late_binding_is_taken_up_where_it_is_seen_first(world, pod):
    world.client.after = LOST
    world.api.intercept(refuse_reading_of("p"))
    assert "not know yet" in await world.bind(pod, "n1")
    await eventually(lambda: world.state_of(pod) is GrantState.BOUND)  # the informer's watch tells
    world.api.intercept(None)
    await world.extender._binder.resolve()
    assert world.memory_used("n1") == 1000


async def test_a_pod_that_came_and_went_unseen_leaves_nothing_on_the_book(world):
    """Its watch is cut off, and the next list does not have the pod any more: no informer ever tells of its end."""
    await world.add_node("n1")
    await world.extender._gate.wait_until_open()  # its list comes first
    world.pods._apply = lambda event: None  # type: ignore[method-assign]
    pod = await world.add_pod("p", wait=False)
    assert await world.bind(pod, "n1") == ""
    await world.extender._binder.resolve()
    assert world.state_of(pod) is GrantState.BOUND
    await world.client.delete(PODS, "p", "default", grace_period_seconds=0)
    await world.pods.wait_for_relist()
    await world.extender._binder.resolve()
    assert world.state_of(pod) is None
    assert not world.extender._binder._unsettled.grants()


def refuse_reading_of(name):
    from aiohttp import web

    async def intercept(request):
        if request.method == "GET" and request.path.endswith(f"/pods/{name}"):
            return web.json_response(
                {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"}, status=403
            )
        return None

    return intercept


@pytest.mark.parametrize("carried_out", [False, True], ids=["before the post", "before the answer"])
async def test_a_scheduler_killed_while_binding_finds_the_truth_when_it_restarts(carried_out):
    async with server() as api:
        async with replica(api, Faulty) as world:
            await world.add_node("n1", memory=1500)
            pod = await world.add_pod("p")
            setattr(world.client, "after" if carried_out else "before", asyncio.CancelledError())
            with pytest.raises(asyncio.CancelledError):
                await world.bind(pod, "n1")
            assert world.state_of(pod) is not None
        async with replica(api) as world:
            assert world.memory_used("n1") == (1000 if carried_out else 0)
            assert (await world.bind(pod, "n1")) == ""
            assert world.memory_used("n1") == 1000
            assert await world.grant_on(pod) == world.ledger.grant(pod.metadata.uid)


async def test_a_caller_that_gives_up_does_not_cut_the_attempt(world, pod):
    world.client.gate = asyncio.Event()
    attempt = asyncio.create_task(world.bind(pod, "n1"))
    await eventually(lambda: world.client.posted == 1)
    attempt.cancel()
    await asyncio.gather(attempt, return_exceptions=True)
    world.client.gate.set()
    await world.extender.drain()
    assert (await world.stored(pod)).spec.node_name == "n1"
    assert world.state_of(pod) is GrantState.BOUND


async def test_a_replica_that_is_not_active_does_not_bind():
    async with server() as api, replica(api, may_bind=lambda: False) as world:
        await world.add_node("n1")
        pod = await world.add_pod("p")
        assert "not active" in await world.bind(pod, "n1")
        assert world.bind_failures() == {BindFailure.NOT_LEADING}
        assert (await world.filter(pod, "n1")).error != ""
        assert world.state_of(pod) is None


async def test_a_replica_that_becomes_active_first_reads_what_the_other_left():
    """Its watch is held up, so that only a consistent list can tell it."""
    active = {"one": True, "two": False}
    async with (
        server() as api,
        replica(api, may_bind=lambda: active["one"]) as one,
        replica(api, may_bind=lambda: active["two"]) as two,
    ):
        await one.add_node("n1", memory=1500)
        first, second = await one.add_pod("a"), await one.add_pod("b")
        await eventually(lambda: two.cache.pod_by_uid(second.metadata.uid) is not None)
        two.pods._apply = lambda event: None  # type: ignore[method-assign]
        assert await one.bind(first, "n1") == ""
        active.update(one=False, two=True)
        two.extender.leadership_changed(True)
        assert "CardInsufficientMemory" in await two.bind(second, "n1")
        assert "not active" in await one.bind(second, "n1")


async def test_the_gate_waits_for_an_api_server_and_says_so(world, pod):
    world.extender._gate._timeout_s = 0.05
    never = asyncio.Event()
    world.extender._gate._catch_up = never.wait
    error = await world.extender.bind(ExtenderBindingArgs("p", "default", pod.metadata.uid, "n1"))
    assert "is still reading the cluster" in error.error
    await world.extender._gate.close()


def test_the_event_says_what_an_old_driver_shows_of_several_mig_devices():
    devices = tuple(Device(f"m{at}", at, "A100", 4864, mode=DeviceMode.MIG, parent="g") for at in range(2))
    fleet = Fleet()
    fleet.set_inventory(NodeInventory("n", devices, driver_version="535.161.08"))
    shares = tuple(DeviceShare(device.uuid, 4864, 100) for device in devices)
    grant = Grant("p", "ns", "p", "n", (ContainerGrant("main", ContainerKind.APP, shares),))
    said = granted_sentence(SimpleNamespace(fleet=fleet), grant)
    assert "; with driver 535.161.08, CUDA shows each process in container main only one MIG device" in said
