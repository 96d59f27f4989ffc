"""The state document of a replica."""

import asyncio

import msgspec
import pytest
from tests.unit.scheduler.extender_world import eventually, replica, server

from purser.core.names import AGENT_AWAY, CORDONED_GPUS_ANNOTATION
from purser.core.state import ClusterState, Rollout, StateAsk, StateGpuHealth, StateReplica
from purser.kube import SystemClock
from purser.kube.client import ObjectList
from purser.kube.objects import Node, ObjectMeta
from purser.kube.resources import NODES, PODS
from purser.scheduler.read_api import RolloutPage, rollout_page
from purser.scheduler.read_api.documents import MIN_DOCUMENT_AGE_S
from purser.scheduler.read_api.page import StatePage

REPLICA = StateReplica("pod-1", True, "pod-1")


def body(document):
    assert document.length == sum(map(len, document.pieces))
    return b"".join(document.pieces)


async def test_a_document_has_nodes_grants_and_what_waits_and_why(world):
    world.extender.attach(world.pods)
    await world.add_node("n2", memory=4000)
    await world.add_node("n1", cards=2)
    await world.client.patch_merge(
        NODES,
        "n2",
        {"spec": {"unschedulable": True}, "metadata": {"annotations": {CORDONED_GPUS_ANNOTATION: "n2-0"}}},
    )
    held = await world.add_pod("held", memory=2000, **{"nvidia.com/gpucores": "30"})
    assert await world.bind(held, "n1") == ""
    taken_at = {"status": {"phase": "Running", "startTime": "2027-01-15T08:00:00Z"}}
    await world.client.patch_merge(PODS, "held", taken_at, "default", subresource="status")
    await eventually(lambda: world.cache.pod_by_uid(held.metadata.uid).status.start_time)
    large = await world.add_pod("large", memory=9000, priority=7)
    answer = await world.filter(large, "n1", "n2")
    await world.add_pod("new", memory=100)
    world.extender.pending.advised(large.metadata.uid, "it asked for less")
    odd = await world.add_pod("odd", memory="16Gi")
    await world.filter(odd, "n1")

    page = StatePage(world.cache, world.extender.pending, lambda: REPLICA, world.clock)
    made = await page.current()
    state = msgspec.json.decode(body(made), type=ClusterState)
    assert msgspec.json.encode(state) == body(made), "the types say otherwise, or in another order"
    assert (state.api_version, state.replica, state.sequence) == ("v1", REPLICA, 1)
    assert [(each.name, each.cordoned) for each in state.nodes] == [("n1", False), ("n2", True)]
    free, taken = sorted(state.nodes[0].gpus, key=lambda each: each.memory_held_mib)
    assert (free.pods, taken.pods, taken.memory_held_mib, taken.cores_held_percent) == (0, 1, 2000, 30)
    assert [each.health for each in state.nodes[1].gpus] == [StateGpuHealth.CORDONED]
    (grant,) = state.grants
    assert (grant.pod, grant.node, grant.containers[0].shares[0].gpu) == ("held", "n1", taken.uuid)
    assert grant.containers[0].kind == "app"
    assert (grant.created, grant.started) == (held.metadata.creation_timestamp, "2027-01-15T08:00:00Z")
    by_name = {each.pod: each for each in state.waiting}
    assert set(by_name) == {"large", "new", "odd"}
    waits = by_name["large"]
    assert (waits.reason, waits.priority, waits.gpus) == ("CardInsufficientMemory", 7, 1)
    assert waits.since.endswith("Z")
    assert [by_name[name].asks for name in ("large", "odd")] == [StateAsk("nvidia.com/gpu", False, 9000), None]
    assert {waits.message} == set(answer.failed_nodes.values()), "the words of the event"
    assert sum(each.nodes for each in waits.reasons) == 2
    assert [by_name[name].suggestion for name in ("large", "new", "odd")] == ["it asked for less", "", ""]
    assert by_name["new"].message == "purser-scheduler has said nothing about the pod yet"
    assert by_name["odd"].reason == "InvalidRequest"
    assert "16Gi" in by_name["odd"].message


async def test_of_a_pod_that_kube_scheduler_itself_refuses_its_last_message_is_told(world):
    world.extender.attach(world.pods)
    await world.add_node("n1")
    pod = await world.add_pod("picky", memory=100)
    page = StatePage(world.cache, world.extender.pending, lambda: REPLICA, world.clock)

    async def told():
        world.clock.ahead_s += 100 * MIN_DOCUMENT_AGE_S
        (waits,) = msgspec.json.decode(body(await page.current()), type=ClusterState).waiting
        return waits.reason, waits.message

    async def say(message):
        conditions = [
            {"type": "Ready", "status": "False", "message": "not this"},
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message},
        ]
        await world.client.patch_merge(
            PODS, "picky", {"status": {"conditions": conditions}}, "default", subresource="status"
        )
        await eventually(lambda: dict(world.extender.pending.pods())[pod.metadata.uid].last_message == message)

    assert await told() == ("KubeScheduler", "purser-scheduler has said nothing about the pod yet")
    for message in ("0/1 nodes are available: 1 Insufficient cpu.", "0/2 nodes are available: 2 Insufficient cpu."):
        await say(message)
        assert await told() == ("KubeScheduler", f"last message from purser-scheduler: {message}")
    world.extender.pending.judged(pod.metadata.uid, {})
    fact = "Purser did not reject the pod when kube-scheduler last asked"
    assert await told() == ("KubeScheduler", f"{fact}; last message from purser-scheduler: {message}")
    world.extender.pending.judged(pod.metadata.uid, {"CardInsufficientMemory": 1}, "of Purser's own")
    assert await told() == ("CardInsufficientMemory", "of Purser's own")
    world.extender.pending.forget_reasons()
    refused = "0/2 nodes are available: 2 GPUs are too small. preemption: none."
    await say(refused)
    assert (await told())[1] == f"last message from purser-scheduler: {refused}", "it may have been Purser's refusal"


async def test_a_pod_with_scheduling_gates_waits_for_these_until_they_are_removed(world):
    world.extender.attach(world.pods)
    pod = await world.add_pod("gated", memory=100, spec={"schedulingGates": [{"name": "example.com/quota"}]})
    page = StatePage(world.cache, world.extender.pending, lambda: REPLICA, world.clock)

    async def told():
        world.clock.ahead_s += 100 * MIN_DOCUMENT_AGE_S
        (waits,) = msgspec.json.decode(body(await page.current()), type=ClusterState).waiting
        return waits.reason, waits.message

    assert await told() == ("SchedulingGated", "its scheduling gates have not been removed: example.com/quota")
    world.extender.pending.forget_reasons()
    (totals,) = world.extender.pending.totals().values()
    assert totals.pods == {"SchedulingGated": 1}, "of the metric of waiting pods"
    await world.client.patch_merge(PODS, "gated", {"spec": {"schedulingGates": None}}, "default")
    await eventually(lambda: not dict(world.extender.pending.pods())[pod.metadata.uid].gated)
    reason, message = await told()
    assert reason == "KubeScheduler"
    assert message.startswith("last message from purser-scheduler: ")


async def test_a_replica_that_places_no_pods_gives_no_reasons_and_says_who_does():
    leads = True
    async with server() as api, replica(api, may_bind=lambda: leads) as world:
        world.extender.attach(world.pods)
        await world.add_node("n1")
        large = await world.add_pod("large", memory=9000)
        await world.add_pod("new", memory=100)
        await world.filter(large, "n1")
        world.extender.pending.advised(large.metadata.uid, "it asked for less")

        def replica_now():
            return StateReplica("pod-1", world.extender.places_pods, "pod-2")

        page = StatePage(world.cache, world.extender.pending, replica_now, world.clock)

        async def told():
            world.clock.ahead_s += 100 * MIN_DOCUMENT_AGE_S
            state = msgspec.json.decode(body(await page.current()), type=ClusterState)
            assert any(each.suggestion for each in state.waiting) == leads
            return state.notes, {each.pod: (each.reason, bool(each.message), each.reasons) for each in state.waiting}

        notes, why = await told()
        assert (notes, why["large"][0], why["new"][:2]) == ((), "CardInsufficientMemory", ("KubeScheduler", True))
        leads = False
        nothing = dict.fromkeys(("large", "new"), ("", False, ()))
        assert await told() == (
            ("pod-1 is not the leader, so it does not place pods or know why they wait; the leader is pod-2",),
            nothing,
        )


@pytest.mark.parametrize("has_turn_between", [True, False])
async def test_reasons_end_with_the_leadership_that_found_them(has_turn_between):
    leads = True
    async with server() as api, replica(api, may_bind=lambda: leads) as world:
        world.extender.attach(world.pods)
        await world.add_node("n1")
        large = await world.add_pod("large", memory=9000)
        await world.filter(large, "n1")
        (totals,) = world.extender.pending.totals().values()
        assert totals.pods == {"CardInsufficientMemory": 1}
        leads = False
        world.extender.leadership_changed(False)
        if has_turn_between:
            await world.extender.retry_refused()
        else:
            leads = True
            world.extender.leadership_changed(True)
            assert await world.extender._is_active()
        (totals,) = world.extender.pending.totals().values()
        assert (totals.pods, totals.gpus) == ({"KubeScheduler": 1}, 1), "of the metric of waiting pods"


async def test_a_document_is_made_once_for_all_who_ask_and_again_when_it_is_old(world):
    await world.add_node("n1")
    page = StatePage(world.cache, world.extender.pending, lambda: REPLICA, world.clock)
    first, second = await asyncio.gather(page.current(), page.current())
    assert first is second
    await world.add_node("n2")
    assert await page.current() is first
    world.clock.ahead_s += 100 * MIN_DOCUMENT_AGE_S
    later = await page.current()
    assert later.tag != first.tag
    assert msgspec.json.decode(body(later), type=ClusterState).sequence == 2
    world.clock.ahead_s += 100 * MIN_DOCUMENT_AGE_S
    assert (await page.current()) is later, "nothing has changed"


async def test_what_is_asked_meanwhile_goes_first(world):
    for number in range(40):
        await world.add_node(f"n{number}")
    page = StatePage(world.cache, world.extender.pending, lambda: REPLICA, world.clock)
    making = asyncio.ensure_future(page.current())
    turns = 0
    while not making.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 5


class Policies:
    """An API server with two policies; it answers when the test lets it."""

    def __init__(self):
        self.lists = 0
        self.may_answer = asyncio.Event()

    async def list(self, resource):
        self.lists += 1
        await self.may_answer.wait()
        items = [{"metadata": {"name": name}, "status": {"state": "ready"}} for name in ("b", "a")]
        return ObjectList(items, "1")


async def test_the_rollout_is_a_document_in_small_pieces():
    gates = {"nvidia.com/gpu.deploy.driver": "true"}
    nodes = [Node(metadata=ObjectMeta(name=name, labels=gates)) for name in ("n10", "n9")]
    policies = Policies()
    policies.may_answer.set()
    page = RolloutPage(policies, lambda: nodes, SystemClock())
    made, again = await asyncio.gather(page.current(), page.current())
    assert made is again and policies.lists == 1
    found = msgspec.json.decode(body(made), type=Rollout)
    assert msgspec.json.encode(found) == body(made), "the types say otherwise, or in another order"
    assert [each.name for each in found.policies] == ["a", "b"]
    assert [each.name for each in found.nodes] == ["n10", "n9"]
    assert all(piece.count(b'"gates"') <= 1 for piece in made.pieces)


async def test_an_api_server_that_does_not_list_policies_keeps_nobody_waiting(monkeypatch):
    monkeypatch.setattr(rollout_page, "LIST_TIMEOUT_S", 0.01)
    policies = Policies()
    page = RolloutPage(policies, lambda: (), SystemClock())
    async with asyncio.timeout(10):
        left = asyncio.ensure_future(page.current())
        await asyncio.sleep(0)
        left.cancel()
        found = msgspec.json.decode(body(await page.current()), type=Rollout)
    assert (found.policies, policies.lists) == ((), 1)
    assert found.problems == ("ClusterPolicies cannot be listed: no answer within 0.01 s",)


async def test_gpus_of_which_kubelet_lists_none_take_no_pods(world):
    """As after the agent was killed: it could say nothing, and kubelet keeps the resource with 0."""
    await world.add_node("n1", cards=2)
    await world.client.patch_merge(NODES, "n1", {"metadata": {"annotations": {CORDONED_GPUS_ANNOTATION: "n1-0"}}})
    await eventually(lambda: world.cache.fleet.node("n1").devices[0].cordoned)
    page = StatePage(world.cache, world.extender.pending, lambda: REPLICA, world.clock)

    async def healths(amount):
        amounts = {"nvidia.com/gpu": amount}
        await world.client.patch_merge(NODES, "n1", {"status": {"allocatable": amounts}}, subresource="status")
        await eventually(lambda: world.cache.node("n1").status.allocatable == amounts)
        world.clock.ahead_s += 100 * MIN_DOCUMENT_AGE_S
        (node,) = msgspec.json.decode(body(await page.current()), type=ClusterState).nodes
        return [(each.health, each.reason) for each in node.gpus]

    cordoned, healthy = (StateGpuHealth.CORDONED, ""), (StateGpuHealth.HEALTHY, "")
    assert await healths("20") == [cordoned, healthy]
    assert await healths("0") == [cordoned, (StateGpuHealth.UNHEALTHY, AGENT_AWAY)]
    assert await healths("20") == [cordoned, healthy]
