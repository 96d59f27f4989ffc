"""A plan carried out against an API server: what ends it well, and every surprise that stops it."""

import asyncio

import pytest
from tests.unit.adapters.small_cluster import BUDGETS, LABELS, small_cluster
from tests.unit.operator.embedded import eventually

from purser.adapters.applying import PlanRun, PlanStoppedError
from purser.adapters.cordoning import cordon_gpus, uncordon_gpus
from purser.adapters.occupancy import EvictionRules, read_occupancy
from purser.core.planning import RoomRequest, plan
from purser.kube.resources import EVENTS, NODES

RULES = EvictionRules()


@pytest.fixture
async def cluster(tmp_path):
    async with small_cluster(tmp_path) as cluster:
        await cluster.pod("p", "n1")
        yield cluster


async def planned(cluster, said=None, step_timeout_s=30.0):
    """A run of the plan to free both GPUs of n1, for p goes to n2."""
    occupancy, _ = await read_occupancy(cluster.client, RULES)
    made = plan(occupancy, RoomRequest(2))
    assert [(step.pod, step.to) for step in made.steps] == [("default/p", "n2")]
    say = (lambda line: None) if said is None else said.append
    return PlanRun(cluster.client, occupancy, made, RULES, step_timeout_s=step_timeout_s, say=say)


async def stops(run, *says):
    """Why it stopped."""
    with pytest.raises(PlanStoppedError) as why:
        async with asyncio.timeout(20):
            await run.run()
    assert all(each in str(why.value) for each in says), why.value
    assert run.left_cordoned() == []


async def meanwhile(run, *says, after):
    """The same, with what happens once it runs."""
    task = asyncio.create_task(stops(run, *says))
    await after
    await task


@pytest.mark.parametrize(("node", "says"), [("n2", "on node n2"), ("n3", "on node n3 instead of n2")])
async def test_a_step_ends_when_the_replacement_runs_and_cordons_are_taken_back(cluster, node, says):
    said = []
    run = await planned(cluster, said)
    await cordon_gpus(cluster.client, "n3", ["n3-0"]) if node == "n2" else None
    task = asyncio.create_task(run.run())
    await cluster.is_asked_to_leave("p")
    assert await cluster.cordoned() == "n1-0,n1-1"
    await cluster.pod("q")  # its controller does not wait
    await cluster.end("p")
    await cluster.end("q")
    await cluster.pod("r", node)
    async with asyncio.timeout(20):
        await task
    assert said == [f"1/1: default/p evicted; default/r runs {says}"]
    assert (await cluster.cordoned(), await cluster.cordoned("n3")) == ("", "n3-0" if node == "n2" else "")
    [event] = [each for each in (await cluster.client.list(EVENTS, "default")).items if each.reason == "EvictedByPlan"]
    assert (event.involved_object.name, "2 GPUs on node n1" in event.message) == ("p", True)


async def test_nobody_is_evicted_when_the_pod_is_another_one_by_now(cluster):
    run = await planned(cluster)
    await cluster.end("p")
    await cluster.pod("p", "n1")
    await stops(run, "default/p no longer exists, or was replaced")
    assert run.summary() == "Of 1 step: no pod was evicted. Not evicted: default/p"
    assert await cluster.cordoned() == ""


async def test_a_pod_of_others_in_the_room(cluster):
    run = await planned(cluster)
    await cluster.pod("x", "n1", gpu=1)
    await stops(run, "default/x holds GPUs on node n1")


async def test_the_place_of_a_replacement_is_taken(cluster):
    run = await planned(cluster)
    for number, node in enumerate(("n2", "n3")):
        await cluster.pod(f"x{number}", node)
    await stops(run, "the replacement of pod default/p no longer has room")


async def test_gpus_that_somebody_else_has_cordoned_stay_so(cluster):
    run = await planned(cluster)
    await cordon_gpus(cluster.client, "n1", ["n1-1"])
    await stops(run, "cordoned by another client: n1-1")
    assert await cluster.cordoned() == "n1-1"


async def test_a_replacement_that_fails(cluster):
    run = await planned(cluster)

    async def happens():
        await cluster.is_asked_to_leave("p")
        await cluster.end("p")
        await cluster.pod("q", "n2", phase="Failed")

    await meanwhile(run, "replacement default/q failed", after=happens())
    assert run.summary() == "Of 1 step: default/p is being evicted, but the eviction is not complete"


@pytest.mark.parametrize("case", ["terminating", "not replaced", "not bound", "not running"])
async def test_a_step_that_takes_too_long_says_what_it_waits_for(cluster, case):
    run = await planned(cluster, step_timeout_s=1)

    async def happens():
        await cluster.is_asked_to_leave("p")
        if case != "terminating":
            await cluster.end("p")
        if case.startswith("not bound"):
            await cluster.pod("q")
        if case == "not running":
            await cluster.pod("q", "n2", phase="Pending")

    says = {
        "terminating": "pod default/p is still terminating",
        "not replaced": "nothing has replaced pod default/p",
        "not bound": "replacement default/q is not bound",
        "not running": "replacement default/q is not running yet on node n2",
    }
    await meanwhile(run, f"after 1 s, {says[case]}", after=happens())
    assert await cluster.cordoned() == ""


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("node gone", "node n1 no longer exists"),
        ("node cordoned", "node n1 is cordoned or not ready"),
        ("uncordoned", "another client uncordoned GPUs on node n1: n1-0, n1-1"),
        ("unhealthy", "GPUs on node n1 are unhealthy or no longer exist: n1-0"),
    ],
)
async def test_what_happens_to_the_room_while_it_waits(cluster, case, says):
    run = await planned(cluster)

    async def happens():
        await cluster.is_asked_to_leave("p")
        client = cluster.client
        match case:
            case "node gone":
                await client.delete(NODES, "n1")
            case "node cordoned":
                await client.patch_merge(NODES, "n1", {"spec": {"unschedulable": True}})
            case "uncordoned":
                await uncordon_gpus(client, "n1", ["n1-0", "n1-1"])
            case "unhealthy":
                await cluster.sicken("n1")

    await meanwhile(run, says, after=happens())


async def test_a_budget_is_waited_for_and_never_forced(cluster):
    budget = {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": LABELS}, "maxUnavailable": 1}}
    await cluster.client.create(BUDGETS, budget, "default")
    await cluster.allow(1)
    run, late = await planned(cluster), await planned(cluster, step_timeout_s=1)
    await cluster.allow(0)
    await stops(late, "after 1 s, PodDisruptionBudget default/b does not allow the eviction of pod default/p")
    task = asyncio.create_task(run.run())
    await eventually(cluster.cordoned)
    await cluster.allow(1)
    await cluster.is_asked_to_leave("p")
    task.cancel()
    await asyncio.wait({task})
    assert await cluster.cordoned() == ""
    assert run.summary() == "Of 1 step: default/p is being evicted, but the eviction is not complete"
