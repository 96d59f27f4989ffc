"""What kube-scheduler gets: all nodes that fit, reasons for the others, scores, victims, and events for people."""

import pytest
from msgspec.structs import replace
from tests.unit.scheduler.extender_world import BINPACK, eventually, replica, server

from purser.core.model import GrantState
from purser.core.placement import Authority
from purser.kube.resources import PODS
from purser.scheduler.extender_api import (
    ExtenderArgs,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    MetaPod,
    MetaVictims,
)

TERM = {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}
PREFERRED = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [TERM]}}
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}


async def test_filter_can_return_every_node_that_fits_and_a_reason_for_every_other():
    async with server() as api, replica(api, policy=replace(BINPACK, nodes_to_score=0)) as world:
        for name, memory in (("large-1", 8000), ("large-2", 8000), ("busy", 1500), ("small", 500)):
            await world.add_node(name, memory=memory)
        assert await world.bind(await world.add_pod("other"), "busy") == ""
        pod = await world.add_pod("p")
        written = api.resource_version
        result = await world.filter(pod, "large-1", "large-2", "busy", "small", "cpu-only")
        assert result.node_names == ["large-1", "large-2"]
        assert result.failed_nodes == {"busy": "1/1 CardInsufficientMemory"}
        assert result.failed_and_unresolvable_nodes == {
            "small": "1/1 CardInsufficientMemory",
            "cpu-only": "node unregistered",
        }
        assert api.resource_version == written


async def test_no_message_to_a_pod_names_the_pod_of_another_namespace_that_holds_a_disputed_gpu():
    async with server() as api, replica(api) as world:
        await world.add_node("n")
        pod = await world.add_pod("p")
        why = "pod tenant-b/secret-0 holds the GPU without a valid grant"
        world.cache.fleet.set_disputes("n", {"n-0": why})
        world.extender.pending.put_pod(pod)
        result = await world.filter(pod, "n")
        assert result.failed_nodes == {
            "n": "node(s) had no suitable GPU: 1 GPU on 1 node is disputed (see the node's condition PurserGpuDisputed)"
        }
        (waiting,) = (each.message for _, each in world.extender.pending.pods())
        bound = await world.bind(pod, "n")
        assert "GpuHolderUnknown" in bound
        told = (waiting, bound, *result.failed_and_unresolvable_nodes.values(), *await world.event_messages())
        assert not [each for each in told if "secret" in each or "tenant-b" in each]


async def test_nor_does_the_reason_of_a_node_beside_others_that_fit():
    async with server() as api, replica(api, policy=replace(BINPACK, nodes_to_score=0)) as world:
        for name in ("free-1", "free-2", "n"):
            await world.add_node(name)
        world.cache.fleet.set_disputes("n", {"n-0": "pod tenant-b/secret-0 holds the GPU without a valid grant"})
        result = await world.filter(await world.add_pod("p"), "free-1", "free-2", "n")
        assert result.failed_and_unresolvable_nodes == {"n": "1/1 GpuHolderUnknown"}


@pytest.mark.parametrize(
    ("policy", "spec", "told"),
    [
        (replace(BINPACK, nodes_to_score=2), {}, ["b", "d"]),
        (replace(BINPACK, nodes_to_score=3), {}, ["a", "b", "d"]),
        (replace(BINPACK, nodes_to_score=2), {"affinity": PREFERRED}, ["a", "b", "c", "d"]),
        (replace(BINPACK, nodes_to_score=2), {"topologySpreadConstraints": [SPREAD]}, ["a", "b", "c", "d"]),
        (replace(BINPACK, authority=Authority.EXCLUSIVE), {"affinity": PREFERRED}, ["d"]),
    ],
    ids=["the best", "the first among equals", "all for an affinity", "all for a spread", "the best alone"],
)
async def test_kube_scheduler_gets_the_best_nodes_and_no_reasons_where_a_pod_fits(policy, spec, told):
    async with server() as api, replica(api, policy=policy) as world:
        for name in ("a", "b", "c", "d", "small"):
            await world.add_node(name, memory=500 if name == "small" else 8000)
        for name, node, memory in (("x", "b", 1000), ("y", "d", 2000)):
            await world.bind(await world.add_pod(name, memory), node)
        pod = await world.add_pod("p", spec=spec)
        result = await world.filter(pod, "a", "b", "c", "d", "small")
        assert result == ExtenderFilterResult(told)
        scores = {s.host: s.score for s in await world.extender.prioritize(ExtenderArgs(pod, told))}
        assert max(scores, key=scores.get) == "d"


async def test_prioritize_prefers_the_fuller_node_over_the_whole_range(world):
    for name in ("a", "b", "c"):
        await world.add_node(name)
    for name, node, memory in (("x", "b", 1000), ("y", "c", 2000)):
        await world.bind(await world.add_pod(name, memory), node)
    pod = await world.add_pod("p")
    await world.filter(pod, "a", "b", "c")
    asked = ["a", "b", "c"]
    scores = {s.host: s.score for s in await world.extender.prioritize(ExtenderArgs(pod, asked))}
    assert scores == {"a": 0, "b": 5, "c": 10}
    narrowed = await world.extender.prioritize(ExtenderArgs(pod, ["a", "b"]))
    assert {s.host: s.score for s in narrowed} == {"a": 0, "b": 10}


async def test_prioritize_without_a_filter_before_judges_by_itself(world):
    await world.add_node("a")
    pod = await world.add_pod("p")
    scores = await world.extender.prioritize(ExtenderArgs(pod, ["a", "unknown"]))
    assert {s.host: s.score for s in scores} == {"a": 10, "unknown": 0}


async def test_a_pod_that_asks_for_no_device_fits_everywhere(world):
    pod = await world.add_pod("plain", memory=None)
    assert (await world.filter(pod, "a", "b")).node_names == ["a", "b"]
    assert {s.score for s in await world.extender.prioritize(ExtenderArgs(pod, ["a", "b"]))} == {0}


async def test_a_malformed_pod_fits_nowhere_and_gets_the_reason(world):
    pod = await world.add_pod("p", annotations={"purser.dev/gpu-policy": "nonsense"})
    result = await world.filter(pod, "a")
    assert "nonsense" in result.failed_and_unresolvable_nodes["a"]
    assert result.failed_nodes == result.failed_and_unresolvable_nodes


@pytest.mark.parametrize(
    ("labels", "container", "words"),
    [
        (
            {"purser.dev/webhook": "ignore"},
            {},
            "label purser.dev/webhook=ignore excludes the pod from Purser's webhook",
        ),
        ({"hami.io/webhook": "ignore"}, {}, "label hami.io/webhook=ignore excludes the pod from Purser's webhook"),
        ({}, {"securityContext": {"privileged": True}}, "privileged"),
    ],
    ids=["purser's label", "hami's label", "privileged in a namespace that the webhook does not see"],
)
async def test_a_pod_that_no_webhook_looked_at_is_held_to_its_rules(world, labels, container, words):
    await world.add_node("a")
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}
    containers = [{"name": "c", "image": "i", "resources": {"limits": limits}, **container}]
    spec = {"schedulerName": "purser-scheduler", "containers": containers}
    pod = await world.client.create(PODS, {"metadata": {"name": "p", "labels": labels}, "spec": spec}, "default")
    result = await world.filter(pod, "a")
    assert result.node_names == []
    assert words in result.failed_nodes["a"]


async def test_no_message_to_kube_scheduler_has_a_percent_sign(world):
    """It takes its own message for a format, and its event would say ``%!o(MISSING)compute``."""
    await world.add_node("a", memory=8192)
    assert await world.bind(await world.add_pod("other", memory=1000, **{"nvidia.com/gpucores": "60"}), "a") == ""
    result = await world.filter(await world.add_pod("p", memory=1000, **{"nvidia.com/gpucores": "70"}), "a")
    why = "node(s) had no suitable GPU: 1 GPU on 1 node has less than 70 percent of compute free (most: 40 percent)"
    assert result.failed_nodes == {"a": why}


async def test_when_nothing_fits_every_node_has_the_same_sentence_for_kube_scheduler(world):
    for name in ("a", "b"):
        await world.add_node(name, cards=8, memory=8192)
    pod = await world.add_pod("p", memory=10240)
    result = await world.filter(pod, "a", "b", "cpu-only")
    why = (
        "node(s) had no suitable GPU: 16 GPUs on 2 nodes are too small for 10240 MiB (largest: 8192 MiB); "
        "1 node has no inventory: no agent runs there, or it has not written one"
    )
    assert result.failed_nodes == dict.fromkeys(("a", "b", "cpu-only"), why)
    assert await world.event_messages() == []
    assert 'reason="CardInsufficientMemory"} 2.0' in world.metrics.exposition().decode()


async def test_a_quota_that_is_used_up_is_a_reason_that_no_preemption_helps():
    from purser.kube.resource_quotas import RESOURCE_QUOTAS

    async with server() as api, replica(api) as world:
        await world.add_node("a")
        hard = {"limits.nvidia.com/gpumem": "500"}
        of_quota = "limits.nvidia.com/gpumem="
        await world.client.create(
            RESOURCE_QUOTAS, {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": hard}}
        )
        await eventually(lambda: world.cache.quota_remaining("default").memory_mib == 500)
        result = await world.filter(await world.add_pod("p"), "a")
        assert result.failed_and_unresolvable_nodes == {
            "a": f"exceeded quota: q, requested: {of_quota}1000, used: {of_quota}0, limited: {of_quota}500"
        }
        assert not await world.bind(await world.add_pod("small", memory=400), "a")
        whole = await world.filter(await world.add_pod("whole", memory=None, **{"nvidia.com/gpu": "1"}), "a")
        assert whole.failed_and_unresolvable_nodes == {
            "a": f"exceeded quota: q, requested: {of_quota}8000, used: {of_quota}400, limited: {of_quota}500"
        }


async def test_a_pods_own_unsettled_reservation_does_not_stand_in_its_way():
    from tests.unit.scheduler.binding.test_binder import LOST, Faulty

    async with server() as api, replica(api, Faulty) as world:
        await world.add_node("a", memory=1500)
        pod = await world.add_pod("p")
        world.client.before = LOST
        await world.bind(pod, "a")
        assert world.state_of(pod) is GrantState.RESERVED
        assert (await world.filter(pod, "a")).node_names == ["a"]
        assert (await world.filter(await world.add_pod("q"), "a")).node_names == []


async def preempt(world, pod, node, *victims, violations=0):
    proposed = MetaVictims(tuple(MetaPod(v.metadata.uid) for v in victims), violations)
    result = await world.extender.preempt(ExtenderPreemptionArgs(pod, {node: proposed}))
    world.cache.nominations.forget(pod.metadata.uid)  # it was only asked, nobody goes
    answer = result.node_name_to_meta_victims.get(node)
    return None if answer is None else [pod.uid for pod in answer.pods]


async def test_victims_that_do_not_help_are_joined_by_the_least_important_that_do(world):
    """kube-scheduler counts slots; it takes a pod off one card while the memory is on another."""
    await world.add_node("n", cards=1, memory=3000)
    low, middle, equal = [
        await world.add_pod(name, 1000, priority=p) for name, p in (("low", 1), ("middle", 5), ("equal", 10))
    ]
    for pod in (low, middle, equal):
        assert await world.bind(pod, "n") == ""
    await eventually(lambda: all(world.cache.pod_by_uid(p.metadata.uid).spec.node_name for p in (low, middle)))
    one = await world.add_pod("one", 1000, priority=10)
    two = await world.add_pod("two", 2000, priority=10)
    three = await world.add_pod("three", 3000, priority=10)
    assert await preempt(world, one, "n") == [low.metadata.uid]
    assert await preempt(world, one, "n", middle) == [middle.metadata.uid]
    assert await preempt(world, two, "n", middle) == [middle.metadata.uid, low.metadata.uid]
    assert await preempt(world, three, "n", low, middle) is None


async def test_nobody_is_added_who_turns_out_not_to_be_needed():
    """The least important pod shares its card with one that may not be preempted: its going would free nothing."""
    whole = {"nvidia.com/gpucores": "100"}
    async with server() as api, replica(api) as world:
        await world.add_node("n", cards=2, memory=3000)
        low = await world.add_pod("low", 500, priority=1)
        neighbour = await world.add_pod("neighbour", 500, priority=10)
        large = await world.add_pod("large", 3000, priority=5, **whole)
        for pod in (low, neighbour, large):
            assert await world.bind(pod, "n") == ""
        alone = await world.add_pod("alone", 3000, priority=10, **whole)
        assert await preempt(world, alone, "n") == [large.metadata.uid]
        assert await preempt(world, alone, "n", low) == [large.metadata.uid, low.metadata.uid]


async def test_preemption_elsewhere_than_on_known_nodes_is_declined(world):
    assert await preempt(world, await world.add_pod("p", priority=1), "unknown") is None
