"""Grants taken off running pods while no webhook looks, or through `pods/status`: no card is given twice, none is lost,
and nobody can close a node's cards with pods that hold nothing."""

import msgspec
import pytest

from purser.core.grant.disputes import HeldPod, HeldReason, NodeDisputes, RefusedPod, text_of
from purser.core.names import DISPUTES_ANNOTATION, GRANT_ANNOTATION, GRANT_SIGNATURE_ANNOTATION
from purser.kube.resources import NODES, PODS
from tests.unit.scheduler.extender_world import eventually, replica, server


async def tell(world, node, *held, **told):
    """What the node's agent says, as it says it."""
    message = NodeDisputes(node, tuple(held), **told)
    text = None if message.is_empty else text_of(message)
    await world.client.patch_merge(NODES, node, {"metadata": {"annotations": {DISPUTES_ANNOTATION: text}}})


async def set_status(world, name, **status):
    await world.client.patch_merge(PODS, name, {"status": status}, "default", subresource="status")


async def start(world, name):
    await set_status(world, name, phase="Running", startTime="2030-01-01T00:00:00Z")


async def deface(world, name):
    gone = dict.fromkeys((GRANT_ANNOTATION, GRANT_SIGNATURE_ANNOTATION))
    await world.client.patch_merge(PODS, name, {"metadata": {"annotations": gone}}, "default", subresource="status")


def held_by(pod, grant=None, *uuids):
    containers = grant.containers if grant else ()
    why = HeldReason.GRANT_MISSING if grant else HeldReason.NEVER_GRANTED
    return HeldPod("default", pod.metadata.name, pod.metadata.uid, why, containers, uuids)


async def fits(world, pod, node="n1"):
    return (await world.filter(pod, node)).node_names == [node]


async def test_a_restarted_scheduler_counts_what_the_agent_says_of_defaced_pods():
    async with server() as api:
        async with replica(api) as world:
            await world.add_node("n1", cards=2)
            pods = [await world.add_pod(name, 6000) for name in "ab"]
            for pod in pods:
                assert await world.bind(pod, "n1") == ""
                await start(world, pod.metadata.name)
            usage = dict(world.ledger.usage("n1"))
            words = [held_by(pod, await world.grant_on(pod)) for pod in pods]
            for pod in pods:
                await deface(world, pod.metadata.name)
            await tell(world, "n1", *words)
            assert dict(world.ledger.usage("n1")) == usage
        async with replica(api) as world:
            assert dict(world.ledger.usage("n1")) == usage
            assert not await fits(world, await world.add_pod("large", 6000))
            assert await fits(world, await world.add_pod("small", 2000))  # what is left of a card is not lost
            await world.client.delete(PODS, "a", "default", grace_period_seconds=0)
            await eventually(lambda: len(world.ledger.usage("n1")) == 1)
            assert await world.bind(await world.add_pod("next", 6000), "n1") == ""
            await world.client.delete(PODS, "b", "default", grace_period_seconds=0)
            await tell(world, "n1")
            await eventually(lambda: world.memory_used("n1") == 6000 and not world.cache.disputes.closed("n1"))


async def test_until_the_agent_reports_what_a_running_pod_holds_its_node_takes_nothing():
    async with server() as api:
        async with replica(api) as world:
            await world.add_node("n1", cards=2)
            await world.add_node("n2")
            pod = await world.add_pod("a")
            assert await world.bind(pod, "n1") == ""
            grant = await world.grant_on(pod)
            await start(world, "a")
            await deface(world, "a")
        async with replica(api) as world:
            waiting = await world.add_pod("w")
            assert (await world.filter(waiting, "n1", "n2")).node_names == ["n2"]
            answer = await world.filter(waiting, "n1")
            assert "disputed" in answer.failed_and_unresolvable_nodes["n1"]
            assert "pod default/a runs without a valid grant" in world.cache.disputes.closed("n1")["n1-0"]
            assert "2/2 GpuHolderUnknown" in await world.bind(waiting, "n1")
            await tell(world, "n1", held_by(pod, grant))
            await eventually(lambda: world.cache.disputes.closed("n1") == {})
            assert world.memory_used("n1") == 1000
            assert await fits(world, waiting)


async def test_a_pod_that_the_agent_has_seen_to_hold_nothing_counts_for_nothing():
    async with server() as api, replica(api) as world:
        await world.add_node("n1")
        idle = await world.add_pod("idle")
        await world.client.bind("default", "idle", idle.metadata.uid, "n1", {})
        await start(world, "idle")
        await eventually(lambda: len(world.cache.disputes.closed("n1")) == 1)
        await tell(world, "n1", held_by(idle))
        await eventually(lambda: world.cache.disputes.closed("n1") == {})
        assert await fits(world, await world.add_pod("w"))


async def test_nobody_closes_a_node_with_pods_that_kubelet_never_took():
    async with server() as api, replica(api) as world:
        await world.add_node("n1")
        for number in range(20):
            pod = await world.add_pod(f"hostile-{number}")
            await world.client.bind("default", pod.metadata.name, pod.metadata.uid, "n1", {})
        await eventually(lambda: len(world.cache.bound_grants.ungranted) == 20)
        assert world.cache.disputes.closed("n1") == {}
        assert await world.bind(await world.add_pod("honest", 8000), "n1") == ""


@pytest.mark.parametrize(
    "fields",
    [
        {"annotations": {"purser.dev/init-resources": "{"}},
        {"limits": {"nvidia.com/gpumem": "1000"}},
        {"limits": {"volcano.sh/gpu-number": "1"}},
        {"annotations": {GRANT_ANNOTATION: "{"}},
    ],
    ids=str,
)
async def test_nobody_closes_a_node_with_pods_that_kubelet_gives_no_devices(fields):
    async with server() as api, replica(api) as world:
        await world.add_node("n1")
        metadata = {"name": "odd", "annotations": fields.get("annotations", {})}
        resources = {"limits": fields.get("limits", {})}
        spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "i", "resources": resources}]}
        await world.client.create(PODS, {"metadata": metadata, "spec": spec}, "default")
        await start(world, "odd")
        honest = await world.add_pod("honest")
        await eventually(lambda: world.cache.pod("default", "odd").status.phase == "Running")
        assert await fits(world, honest)
        assert world.cache.disputes.closed("n1") == {}


async def test_a_gpu_that_a_stranger_holds_is_closed_and_pending_pods_say_why():
    async with server() as api, replica(api) as world:
        await world.add_node("n1", cards=2)
        old = await world.add_pod("old")
        await world.client.bind("default", "old", old.metadata.uid, "n1", {})
        await start(world, "old")
        await tell(world, "n1", held_by(old, None, "n1-0"))
        await eventually(lambda: list(world.cache.disputes.closed("n1")) == ["n1-0"])
        pods = [await world.add_pod(name, 8000) for name in "pq"]
        assert await world.bind(pods[0], "n1") == ""
        assert {uuid for part in (await world.grant_on(pods[0])).containers for uuid in part.uuids} == {"n1-1"}
        refused = (await world.filter(pods[1], "n1")).failed_nodes["n1"]
        assert "1 GPU on 1 node is disputed (see the node's condition PurserGpuDisputed)" in refused
        (why,) = world.cache.disputes.closed("n1").values()
        assert why == "pod default/old holds the GPU without a valid grant"
        assert b"purser_scheduler_disputed_gpus 1.0" in world.metrics.exposition()
        await world.client.delete(PODS, "old", "default", grace_period_seconds=0)  # the agent's word may come later
        await eventually(lambda: world.cache.disputes.closed("n1") == {})
        assert await world.bind(pods[1], "n1") == ""


REFUSAL = "Allocate failed due to rpc error: code = FailedPrecondition desc = pod: device n1-0 of node n1: 2 pods"
NO_SLOT = (
    "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 1, Available: 0"
)
REJECTED = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": REFUSAL}


async def reject(world, name, node="n1", message=REFUSAL):
    pod = await world.add_pod(name)
    assert await world.bind(pod, node) == ""
    await set_status(world, name, **{**REJECTED, "message": message})
    await eventually(lambda: world.state_of(pod) is None)
    return pod


async def test_what_else_kubelet_rejects_a_pod_for_closes_no_gpu():
    async with server() as api, replica(api) as world:
        await world.add_node("n1")
        for number, message in enumerate(("not enough cpus available to satisfy request", "Pod ns/p has no grant", "")):
            await reject(world, f"p{number}", message=message)
            assert world.cache.disputes.closed("n1") == {}
        await reject(world, "q", message=NO_SLOT)
        assert list(world.cache.disputes.closed("n1")) == ["n1-0"]


async def test_a_rejected_pod_closes_its_gpu_until_the_agents_next_good_word():
    async with server() as api, replica(api) as world:
        await world.add_node("n1")
        pod = await reject(world, "p")
        waiting = await world.add_pod("w")
        assert not await fits(world, waiting)
        assert "the node rejected pod default/p" in world.cache.disputes.closed("n1")["n1-0"]
        refusal = RefusedPod("default", "p", pod.metadata.uid, "DeviceOvercommitted", ("n1-0",), ("other/x",))
        await tell(world, "n1", refused=(refusal,))
        await eventually(lambda: "pod other/x holds the GPU" in world.cache.disputes.closed("n1").get("n1-0", ""))
        assert not await fits(world, waiting)
        await tell(world, "n1")
        await eventually(lambda: world.cache.disputes.closed("n1") == {})
        assert await world.bind(waiting, "n1") == ""


async def test_where_no_word_comes_a_gpu_opens_after_a_rest_that_grows():
    async with server() as api, replica(api) as world:
        await world.add_node("n1")
        for number, rest_s in enumerate((5, 10, 20)):
            await reject(world, f"p{number}")
            world.clock.ahead_s += rest_s - 1
            world.cache.disputes.tick()
            assert world.cache.disputes.closed("n1")
            world.clock.ahead_s += 1
            world.cache.disputes.tick()
            assert not world.cache.disputes.closed("n1")


async def test_pods_that_had_the_gpu_before_it_was_closed_make_no_rest_longer():
    async with server() as api, replica(api) as world:
        await world.add_node("n1")
        pods = [await world.add_pod(f"p{number}") for number in range(4)]
        for pod in pods:
            assert await world.bind(pod, "n1") == ""
        for pod in pods:
            await set_status(world, pod.metadata.name, **REJECTED)
            await eventually(lambda pod=pod: world.state_of(pod) is None)
            world.clock.ahead_s += 1
        world.cache.disputes.tick()
        assert world.cache.disputes.closed("n1")
        world.clock.ahead_s += 4
        world.cache.disputes.tick()
        assert not world.cache.disputes.closed("n1")


async def test_a_word_that_came_before_the_rejection_was_heard_of_counts_as_well():
    async with server() as api, replica(api) as world:
        await world.add_node("n1")
        pod = await world.add_pod("p")
        assert await world.bind(pod, "n1") == ""
        refusal = RefusedPod("default", "p", pod.metadata.uid, "DeviceUnhealthy", ("n1-0",))
        await tell(world, "n1", refused=(refusal,))
        await eventually(lambda: world.cache.disputes.closed("n1"))
        await tell(world, "n1")
        await eventually(lambda: not world.cache.disputes.closed("n1"))
        await set_status(world, "p", **REJECTED)
        await eventually(lambda: world.state_of(pod) is None)
        assert world.cache.disputes.closed("n1") == {}


def said(world):
    return world.nodes.store["n1"].metadata.annotations.get(DISPUTES_ANNOTATION)


async def test_a_word_that_makes_no_sense_opens_nothing_and_closes_nothing():
    values = ["{", "[]", '{"node":"n2"}', '{"node":"n1","held":[1]}', "[" * 50_000]
    async with server() as api, replica(api) as world:
        await world.add_node("n1")
        for number, value in enumerate(values):
            await world.client.patch_merge(NODES, "n1", {"metadata": {"annotations": {DISPUTES_ANNOTATION: value}}})
            await eventually(lambda value=value: said(world) == value)
            assert await world.bind(await world.add_pod(f"p{number}"), "n1") == ""


async def test_no_word_makes_room_or_charges_another_namespace():
    async with server() as api, replica(api) as world:
        await world.add_node("n1")
        pod = await world.add_pod("p")
        assert await world.bind(pod, "n1") == ""
        (part,) = (await world.grant_on(pod)).containers
        lie = msgspec.structs.replace(part, shares=(msgspec.structs.replace(part.shares[0], memory_mib=-8000),))
        thief = await world.add_pod("thief")
        await world.client.bind("default", "thief", thief.metadata.uid, "n1", {})
        await start(world, "thief")
        await tell(world, "n1", HeldPod("other", "x", thief.metadata.uid, HeldReason.GRANT_MISSING, (lie,)))
        await eventually(lambda: DISPUTES_ANNOTATION in world.nodes.store["n1"].metadata.annotations)
        assert world.memory_used("n1") == 1000
        await tell(world, "n1", HeldPod("other", "x", thief.metadata.uid, HeldReason.GRANT_MISSING, (part,)))
        await eventually(lambda: world.memory_used("n1") == 2000)
        assert world.ledger.namespace_usage("other").memory_mib == 0


async def test_no_word_of_another_nodes_agent_opens_a_gpu():
    async with server() as api, replica(api) as world:
        for node in ("n1", "n2"):
            await world.add_node(node)
        pod = await world.add_pod("p")
        assert await world.bind(pod, "n1") == ""
        await tell(world, "n2", refused=(RefusedPod("default", "p", pod.metadata.uid, "x", ("n2-0",)),))
        await eventually(lambda: world.cache.disputes.closed("n2"))
        await set_status(world, "p", **REJECTED)
        await eventually(lambda: world.state_of(pod) is None)
        assert list(world.cache.disputes.closed("n1")) == ["n1-0"]
