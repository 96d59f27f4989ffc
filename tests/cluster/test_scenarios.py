"""The scenarios on a real Kubernetes: what must be seen by whoever uses Purser."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator

import pytest

from purser.kube.errors import ApiError
from purser.kube.resources import EVENTS, NODES
from purser.lab.driver import SimulatedDriver
from purser.lab.driver.node_mig import mig_states, set_mig
from purser.scheduler.webhook.configurations import REQUIRED_WEBHOOK
from tests.cluster.purser_processes import Purser
from tests.cluster.real_scenarios import RealScenarioCluster, scenario_cluster
from tests.scenarios.actions import create, delete, eventually, grant_of, inventory, is_running, pods, running
from tests.scenarios.pods import OWNERS, owner, pod, whole
from tests.scenarios.suite import *  # noqa: F403

HALF = "nvidia.com/mig-3g.20gb"


@pytest.fixture
async def cluster(purser: Purser) -> AsyncIterator[RealScenarioCluster]:
    async with scenario_cluster(purser) as cluster:
        yield cluster


@pytest.fixture
def hollow_count() -> int:
    """kube-scheduler would look at half of them, did its profile not say all."""
    return 300


async def test_kubectl_prints_the_warning_about_more_devices_than_any_node_has(
    cluster: RealScenarioCluster, purser: Purser
) -> None:
    real = purser.cluster
    body = json.dumps(pod(cluster, "giant", whole(9)))
    command = [real.binaries.path("kubectl"), f"--kubeconfig={real.kubeconfig}", "create", "-f", "-"]
    result = await asyncio.to_thread(subprocess.run, command, input=body, capture_output=True, text=True)
    assert result.returncode == 0
    assert "Warning: a container requests 9 GPUs, but the largest node has 8" in result.stderr


@pytest.fixture
async def on_demand(cluster: RealScenarioCluster, purser: Purser) -> AsyncIterator[SimulatedDriver]:
    """The first GPU of the node is cut on demand."""
    agent, driver = purser.agent, purser.driver

    async def restart_in_mode(arguments: list[str], *, enabled: bool) -> None:
        await asyncio.to_thread(agent.stop)
        set_mig(driver.folder, 0, enabled=enabled)
        agent.argv = arguments
        await asyncio.to_thread(agent.start)
        await asyncio.to_thread(purser.wait_agent)

        async def listed() -> bool:
            first, *_ = (await inventory(cluster)).devices
            node = await cluster.client.get(NODES, cluster.gpu_node)
            return bool(first.mig_kind) is enabled and (node.status.allocatable.get(HALF, "0") == "2") is enabled

        await eventually(cluster, f"the GPU is cut on demand: {enabled}", listed)

    before = agent.argv
    await restart_in_mode([*before, "--mig-strategy=on-demand"], enabled=True)
    yield driver
    await eventually(cluster, "all instances are gone", lambda: _is_uncut(driver))
    await restart_in_mode(before, enabled=False)


async def _is_uncut(driver: SimulatedDriver) -> bool:
    return not mig_states(driver.folder)[0].instances


async def test_pods_get_the_gpu_instances_that_the_agent_creates_for_them(
    cluster: RealScenarioCluster, on_demand: SimulatedDriver
) -> None:
    await create(cluster, pod(cluster, "half", {HALF: "1"}), pod(cluster, "small", {"nvidia.com/mig-1g.5gb": "2"}))
    found = await running(cluster, ["half", "small"])
    named = [(await cluster.container_env(name, "main"))["NVIDIA_VISIBLE_DEVICES"].split(",") for name in found]
    assert sorted(map(len, named)) == [1, 2]
    assert all(uuid.startswith("MIG-") for uuids in named for uuid in uuids)
    shares = [share for each in found.values() for part in grant_of(each).containers for share in part.shares]
    there = mig_states(on_demand.folder)[0].instances.values()
    assert sorted(share.mig.start for share in shares) == sorted(each.start for each in there)
    await delete(cluster, *found)


async def test_pods_that_are_bound_while_kubelet_is_away_get_the_devices_of_pods_that_ended_before(
    cluster: RealScenarioCluster, purser: Purser
) -> None:
    """kubelet takes what its checkpoint has for taken until it has admitted all pods that were bound by then, and it
    writes its checkpoint with each list and each Allocate alone. (1.20 refuses them anyway: it does not wait for the
    plugin to register.)"""
    real = purser.cluster
    await create(cluster, pod(cluster, "before", whole(8)))
    await running(cluster, ["before"])
    await delete(cluster, "before")
    await cluster.wait_for_empty_checkpoint()
    await asyncio.to_thread(real.kill_kubelet)
    try:
        await create(cluster, pod(cluster, "after", whole(8)))

        async def bound() -> bool:
            return [bool(each["spec"].get("nodeName")) for each in await pods(cluster)] == [True]

        await eventually(cluster, "the pod is bound", bound)
    finally:
        await asyncio.to_thread(real.start_kubelet)
    await running(cluster, ["after"])
    await delete(cluster, "after")


async def test_without_the_webhook_no_gpu_pod_is_created_that_cannot_wait_on_its_node(
    cluster: RealScenarioCluster,
) -> None:
    """kubelet asks no plugin about amounts, a Job counts pods that are deleted as failed, and nobody recreates a pod
    that has no controller. Controllers say so, and create their pods later."""
    gpushare = {"aliyun.com/gpu-mem": "2"}
    made = [("Deployment", "amounts", gpushare), ("Job", "job", whole()), ("Deployment", "plain", whole(0))]
    await cluster.kill_scheduler()
    try:
        for kind, name, limits in made:
            await cluster.client.create(OWNERS[kind], owner(cluster, kind, name, limits), cluster.namespace)
        with pytest.raises(ApiError, match=REQUIRED_WEBHOOK):
            await create(cluster, pod(cluster, "bare", whole()))

        async def refused() -> bool:
            events = (await cluster.client.list(EVENTS, cluster.namespace)).items
            said = [each for each in events if each.reason == "FailedCreate" and REQUIRED_WEBHOOK in each.message]
            return {each.involved_object.kind for each in said} == {"ReplicaSet", "Job"}

        await eventually(cluster, "the controllers say why they have no pods", refused)

        async def plain_runs() -> bool:
            return [is_running(each) for each in await pods(cluster)] == [True]

        await eventually(cluster, "who asks for no GPU notices nothing", plain_runs)
    finally:
        await cluster.start_scheduler()

    async def all_run() -> bool:
        return sum(map(is_running, await pods(cluster))) == len(made)

    await eventually(cluster, "all run", all_run)
    [job] = (await cluster.client.list(OWNERS["Job"], cluster.namespace)).items
    assert not job["status"].get("failed")
