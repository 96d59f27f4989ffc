"""The live scheduler goes by the policies that the simulator compares: the default, and those that pods name."""

import contextlib

import pytest
from prometheus_client import context_managers
from tests.unit.scheduler.extender_world import World, eventually, replica, server

from purser.core.model import GpuPolicy, NodePolicy
from purser.core.names import ASKED_ANNOTATION
from purser.core.placement import Authority, PolicySettings
from purser.core.placement.asked import read_asked_shape
from purser.core.placement.shape import PodShape
from purser.kube.resources import EVENTS, NODES
from purser.scheduler.cache import readings
from purser.scheduler.extender_api import ExtenderArgs
from purser.scheduler.metrics import SchedulerMetrics
from purser.scheduler.webhook import rules

NODE, GPU = "purser.dev/node-policy", "purser.dev/gpu-policy"


@contextlib.asynccontextmanager
async def world_under(policy: PolicySettings):
    async with server() as api, replica(api, policy=policy) as world:
        yield world


async def best_of(world: World, pod, *names: str) -> set[str]:
    await world.filter(pod, *names)
    scores = await world.extender.prioritize(ExtenderArgs(pod, list(names)))
    top = max(score.score for score in scores)
    return {score.host for score in scores if score.score == top}


async def test_the_default_packs_shares_and_says_why_in_an_event():
    async with world_under(PolicySettings()) as world:
        for name in ("a", "b"):
            await world.add_node(name, cards=2)
        assert await world.bind(await world.add_pod("first", 2000), "b") == ""
        pod = await world.add_pod("second", 2000)
        assert await best_of(world, pod, "a", "b") == {"b"}
        assert await world.bind(pod, "b") == ""
        used = [uuid for uuid, usage in world.ledger.usage("b").items() if usage.slots]
        assert len(used) == 1
        said = [message for message in await world.event_messages() if message.startswith("Granted GPU")]
        assert len(said) == 2
        assert all(" on node b: " in message for message in said)
        granted = [event for event in (await world.client.list(EVENTS, "default")).items if event.reason == "Granted"]
        asked = [read_asked_shape(event.metadata.annotations[ASKED_ANNOTATION]) for event in granted]
        assert asked == [PodShape(gpu_count=1, gpu_memory_mib=2000)] * 2
        assert all(message.endswith("; enforcement: none (advisory)") for message in said)


@pytest.mark.parametrize(
    ("words", "best"),
    [
        ("binpack", {"used"}),
        ("spread", {"idle"}),
        ("best-fit", {"used"}),
        ("packing", {"used"}),
        ("spread=5,binpack=1", {"idle"}),
        ("fragmentation", {"used"}),
    ],
)
async def test_a_pod_names_its_own_policy_for_nodes(words: str, best: set[str]):
    async with world_under(PolicySettings()) as world:
        await world.add_node("idle", cards=1)
        await world.add_node("used", cards=1)
        assert await world.bind(await world.add_pod("before", 4000), "used") == ""
        assert await best_of(world, await world.add_pod("p", 4000, annotations={NODE: words}), "idle", "used") == best


@pytest.mark.parametrize(
    ("words", "card"), [("binpack", "n-0"), ("spread", "n-1"), ("best-fit", "n-0"), ("mutex,best-fit", "n-1")]
)
async def test_a_pod_names_its_own_policy_for_gpus(words: str, card: str):
    async with world_under(PolicySettings()) as world:
        await world.add_node("n", cards=2)
        first = await world.add_pod("first", 2000, annotations={"nvidia.com/use-gpuuuid": "n-0"})
        assert await world.bind(first, "n") == ""
        pod = await world.add_pod("p", 2000, annotations={GPU: words})
        assert await world.bind(pod, "n") == ""
        assert (await world.grant_on(pod)).of("c").shares[0].uuid == card


async def test_a_node_that_seems_to_lack_cpu_comes_last_and_is_not_refused():
    """kube-scheduler has filtered by CPU, and knows of pods that have gone before any watch tells."""
    policy = PolicySettings(NodePolicy.BEST_FIT, (GpuPolicy.BEST_FIT,), Authority.SHARED)
    async with world_under(policy) as world:
        for name, cpu in (("small", "1"), ("large", "64")):
            await world.add_node(name)
            await world.client.patch_merge(NODES, name, {"status": {"allocatable": {"cpu": cpu}}}, subresource="status")

        await eventually(lambda: world.cache.fleet.free_resources("small").cpu_free_milli == 1000)
        pod = await world.add_pod("p", 1000, cpu="4")
        result = await world.filter(pod, "small", "large")
        assert result.node_names == ["small", "large"]
        scores = {
            score.host: score.score for score in await world.extender.prioritize(ExtenderArgs(pod, ["small", "large"]))
        }
        assert scores == {"small": 0, "large": 10}


async def test_every_stage_of_an_answer_is_measured():
    async with world_under(PolicySettings()) as world:
        await world.add_node("n")
        await best_of(world, await world.add_pod("p"), "n")
        exposition = world.metrics.exposition().decode()
        for verb, stage in (("filter", "parse"), ("filter", "evaluate"), ("prioritize", "rank")):
            line = f'purser_scheduler_stage_seconds_count{{stage="{stage}",verb="{verb}"}} 1.0'
            assert line in exposition


def test_a_stage_that_fails_is_measured_too():
    metrics = SchedulerMetrics()
    with pytest.raises(ValueError, match="broken"), metrics.stage("filter", "decode"):
        raise ValueError("broken")
    assert b'stage_seconds_count{stage="decode",verb="filter"} 1.0' in metrics.exposition()


async def test_a_pod_is_parsed_and_judged_within_the_stage_that_reports_it(monkeypatch):
    ticks = [0.0]

    def judged(pod, each):
        ticks[0] += 1.0
        return rules.first_objection(pod, each)

    monkeypatch.setattr(context_managers, "default_timer", lambda: ticks[0])
    async with server() as api, replica(api) as world:
        await world.add_node("n")
        pod = await world.add_pod("p")
        world.cache.readings.forget(pod.metadata.uid)
        monkeypatch.setattr(readings, "first_objection", judged)
        await world.filter(pod, "n")
        line = 'purser_scheduler_stage_seconds_sum{stage="parse",verb="filter"} 1.0'
        assert line in world.metrics.exposition().decode()
