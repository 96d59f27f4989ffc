"""Volcano's scheduler binds, with its annotations on the Binding, and kubelet's pods get their GPUs from Purser's agent
once Purser's scheduler has signed their grants."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.cluster.kubernetes import RealCluster
from tests.cluster.purser_processes import Purser
from tests.cluster.real_scenarios import scenario_cluster
from tests.lab.volcano import INDEX, MEMORY, NUMBER, SCHEDULER, Volcano
from tests.scenarios.actions import create, running
from tests.scenarios.pods import pod


@pytest.fixture(scope="module")
def purser(real_cluster: RealCluster) -> Iterator[Purser]:
    running = Purser(real_cluster, scheduler_options=[f"--serve-scheduler-name={SCHEDULER}"])
    try:
        running.start()
        yield running
    finally:
        running.stop()


async def test_volcano_places_and_the_agent_serves(purser: Purser) -> None:
    async with scenario_cluster(purser) as cluster:
        volcano = asyncio.create_task(Volcano(cluster.client).run())
        limits = {"a": {MEMORY: "6000"}, "b": {MEMORY: "6000"}, "c": {NUMBER: "1"}}
        for name, its in limits.items():
            await create(cluster, pod(cluster, name, its, schedulerName=SCHEDULER))
            await running(cluster, [name])
        found = await running(cluster, list(limits))
        for name, each in found.items():
            visible = (await cluster.container_env(name, "main"))["NVIDIA_VISIBLE_DEVICES"]
            assert each["spec"]["schedulerName"] == SCHEDULER
            assert visible == cluster.uuids[int(each["metadata"]["annotations"][INDEX])]
        assert len({each["metadata"]["annotations"][INDEX] for each in found.values()}) == 2
        volcano.cancel()
