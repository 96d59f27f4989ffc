"""Pods on a GPU that stays unhealthy, evicted through the real API server with the chart's permissions. By hand: the
agent waits for a minute before it evicts."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from purser.agent.reasons import AgentReason
from purser.kube.resources import untyped_resource
from tests.cluster.kubernetes import RealCluster
from tests.cluster.purser_processes import Purser
from tests.cluster.real_scenarios import RealScenarioCluster, scenario_cluster
from tests.scenarios.actions import cards, event, eventually, is_running, pods, reports_unhealthy
from tests.scenarios.pods import OWNERS, owner, whole
from tests.tiers import TIER, Tier

pytestmark = [
    pytest.mark.skipif(TIER is not Tier.SOAK, reason="minutes of patience: PURSER_TIER=soak"),
    pytest.mark.timeout(900),
]

BUDGETS = untyped_resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")


@pytest.fixture
async def cluster(real_cluster: RealCluster) -> AsyncIterator[RealScenarioCluster]:
    options, values = ("--evict-from-unhealthy-gpus",), {"evictFromUnhealthyGpus": True}
    purser = Purser(real_cluster, options, agent_values=values)
    try:
        await asyncio.to_thread(purser.start)
        async with scenario_cluster(purser) as cluster:
            yield cluster
    finally:
        await asyncio.to_thread(purser.stop)


async def test_a_pod_moves_to_a_healthy_gpu_once_its_budget_allows(cluster: RealScenarioCluster) -> None:
    await cluster.client.create(OWNERS["Deployment"], owner(cluster, "Deployment", "d", whole()), cluster.namespace)
    budget = {"metadata": {"name": "d"}, "spec": {"minAvailable": 1, "selector": {}}}
    await cluster.client.create(BUDGETS, budget, cluster.namespace)

    async def one_runs() -> dict | None:
        found = [each for each in await pods(cluster) if is_running(each)]
        return found[0] if len(found) == 1 else None

    before = await eventually(cluster, "the pod runs", one_runs)
    [uuid] = cards(before)
    await cluster.lose_gpu(cluster.gpu_node, cluster.uuids.index(uuid))
    await reports_unhealthy(cluster, {uuid})
    await asyncio.sleep(100)
    assert [each["metadata"]["name"] for each in await pods(cluster)] == [before["metadata"]["name"]], "the budget"
    await cluster.client.delete(BUDGETS, "d", cluster.namespace)
    await event(cluster, before["metadata"]["name"], AgentReason.EVICTED_FROM_UNHEALTHY_GPU, "is unhealthy")

    async def another_runs() -> dict | None:
        found = await one_runs()
        return found if found and found["metadata"]["uid"] != before["metadata"]["uid"] else None

    after = await eventually(cluster, "its replacement runs", another_runs)
    assert cards(after) and uuid not in cards(after)
