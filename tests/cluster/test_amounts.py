"""Nodes list the amounts that pods ask for: what kube-scheduler and kubelet make of it.

Where nobody lists them, a share that waits for a node rests for five minutes whatever happens (Kubernetes 1.32 and
newer), and never fits once a DeviceClass has the resource's name (1.36).
"""

import asyncio
import json
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from purser.core.kubernetes.quantities import quantity_ceil
from purser.core.names import SCHEDULER_NAME
from purser.core.node.amounts import AMOUNTS, listed_amounts
from purser.kube.errors import NotFoundError
from purser.kube.resource_quotas import RESOURCE_QUOTAS
from purser.kube.resources import NODES
from tests.cluster.purser_processes import PURSER, Purser
from tests.cluster.real_scenarios import RealScenarioCluster, scenario_cluster
from tests.scenarios.actions import (
    check_environment,
    create,
    delete,
    eventually,
    inventory,
    no_gpu_is_left,
    offers,
    pods,
    running,
    without_volatile,
)
from tests.scenarios.pods import container, pod, share, whole
from tests.scenarios.suite import SLOTS

AT_ONCE_S = 60
"""Far less than the five minutes after which kube-scheduler tries every pod again, far more than it takes."""

VOLCANO = {"volcano.sh/gpu-memory": "2000"}
KAIS: dict[str, Any] = {"annotations": {"gpu-memory": "3000"}, "schedulerName": SCHEDULER_NAME}
"""Of which the webhook makes limits, and the API server ``3k``."""
PRIORITY = "nvidia.com/priority"


@pytest.fixture
async def cluster(purser: Purser) -> AsyncIterator[RealScenarioCluster]:
    async with scenario_cluster(purser) as cluster:
        await amounts_are_listed(cluster)
        yield cluster


async def amounts_are_listed(cluster: RealScenarioCluster) -> None:
    wanted = listed_amounts(await inventory(cluster), ())

    async def probe() -> bool:
        status = (await cluster.client.get(NODES, cluster.gpu_node)).status
        for listed in (status.capacity, status.allocatable):
            found = {name: quantity_ceil(listed[name]) for name in AMOUNTS if name in listed}
            assert found == wanted
        return True

    await eventually(cluster, "the node lists the amounts", probe)


async def forget_amounts(cluster: RealScenarioCluster) -> None:
    """As if the node had registered for the first time."""
    gone: dict[str, None] = dict.fromkeys(AMOUNTS)
    patch = {"status": {"capacity": gone, "allocatable": gone}}
    await cluster.client.patch_merge(NODES, cluster.gpu_node, patch, subresource="status")


async def registered(cluster: RealScenarioCluster) -> None:
    async def probe() -> bool:
        with suppress(NotFoundError):
            return bool(await cluster.client.get(NODES, cluster.gpu_node))
        return False

    await eventually(cluster, "kubelet has registered its node", probe)


async def waiting(cluster: RealScenarioCluster, count: int) -> None:
    async def probe() -> bool:
        conditions = [c for each in await pods(cluster) for c in each["status"].get("conditions") or ()]
        return sum(c["type"] == "PodScheduled" and c["status"] == "False" for c in conditions) == count

    await eventually(cluster, "kube-scheduler has tried all of them", probe)


async def all_run_once_the_agent_is_back(cluster: RealScenarioCluster, purser: Purser, *, forgotten: bool) -> float:
    """Seconds from the agent's readiness until pods of all words run that came while it was away."""
    await cluster.kill_agent(cluster.gpu_node)
    await no_gpu_is_left(cluster)
    if forgotten:
        await forget_amounts(cluster)
    shares = {**share(2000, 10), PRIORITY: "1"}
    manifests = [
        pod(cluster, "hami", shares),
        pod(cluster, "volcano", VOLCANO),
        pod(cluster, "kai", None, **KAIS),
        pod(cluster, "whole", whole()),
    ]
    await create(cluster, *manifests)
    await waiting(cluster, len(manifests))
    await cluster.start_agent(cluster.gpu_node)
    await asyncio.to_thread(purser.wait_agent)
    began = time.monotonic()
    found = await running(cluster, ["hami", "volcano", "kai", "whole"])
    took_s = time.monotonic() - began
    assert (await check_environment(cluster, found["kai"]))["GPU_PORTION"] == "0.08"  # of 40900 MiB
    print(f"running {took_s:.1f} s after the agent was ready")
    return took_s


@pytest.mark.parametrize("forgotten", [False, True], ids=["listed", "of a new node"])
async def test_pods_that_came_while_the_agent_was_away_run_once_it_is_back(
    cluster: RealScenarioCluster, purser: Purser, forgotten: bool
) -> None:
    assert await all_run_once_the_agent_is_back(cluster, purser, forgotten=forgotten) < AT_ONCE_S
    await amounts_are_listed(cluster)


async def test_shares_and_whole_gpus_run_beside_a_device_class_of_the_same_name(
    cluster: RealScenarioCluster, purser: Purser
) -> None:
    real = purser.cluster
    if real.version < (1, 36):
        pytest.skip("before 1.36 no DeviceClass stands for an extended resource by default")
    device_class = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu.example.com"},
        "spec": {"extendedResourceName": "nvidia.com/gpu", "selectors": [{"cel": {"expression": "true"}}]},
    }
    await asyncio.to_thread(real.create, device_class)
    try:
        assert await all_run_once_the_agent_is_back(cluster, purser, forgotten=True) < AT_ONCE_S
    finally:
        await asyncio.to_thread(real.delete, "deviceclass", "gpu.example.com")


async def test_kubelet_admits_amounts_in_init_containers_and_keeps_them_over_its_restart(
    cluster: RealScenarioCluster,
) -> None:
    limits = {**share(3000, 10), PRIORITY: "1"}
    init = container(cluster, limits, name="load", command=["true"])
    body = pod(cluster, "p", share(2000, 10), init_containers=[init])
    await create(cluster, body)
    before = (await running(cluster, ["p"]))["p"]
    asked = before["spec"]["initContainers"][0]["resources"]["limits"]
    assert {name: quantity_ceil(text) for name, text in asked.items()} == {n: int(t) for n, t in limits.items()}
    await cluster.restart_kubelet(cluster.gpu_node)
    await amounts_are_listed(cluster)
    await offers(cluster, SLOTS)
    after = await running(cluster, ["p"])
    assert without_volatile(after["p"]) == without_volatile(before)


@pytest.mark.parametrize("how", ["deleted", "recreated"])
async def test_a_node_that_registers_again_lists_them_again(
    cluster: RealScenarioCluster, purser: Purser, how: str
) -> None:
    real = purser.cluster
    await cluster.kill_agent(real.node_name)
    if how == "deleted":
        await cluster.client.delete(NODES, real.node_name)
    else:  # kubelet may take the node for another machine, and zero its extended resources
        (real.device_plugin_dir / "kubelet_internal_checkpoint").unlink()
    await cluster.restart_kubelet(real.node_name)
    await registered(cluster)
    if how == "deleted":  # otherwise what was offered before was seen to stay (1.36.3)
        await offers(cluster, 0)
    # The agent's token went with a Node that was deleted, as that of a pod there does.
    await asyncio.to_thread(purser.renew_agent_account)
    await cluster.start_agent(real.node_name)
    await asyncio.to_thread(purser.wait_agent)
    await offers(cluster, SLOTS)
    await amounts_are_listed(cluster)
    await create(cluster, pod(cluster, "p", share(2000, 10)))
    await running(cluster, ["p"])
    await delete(cluster, "p")


async def test_kube_scheduler_counts_what_is_left_and_says_so(cluster: RealScenarioCluster) -> None:
    """Whoever asks for more than all cards of a node have is refused without asking anybody else."""
    await create(cluster, pod(cluster, "p", {**share(1000, 0), "nvidia.com/gpumem": str(512 * 1024)}))

    async def probe() -> bool:
        [found] = await pods(cluster)
        told = " ".join(c.get("message", "") for c in found["status"].get("conditions") or ())
        assert "Insufficient nvidia.com/gpumem" in told, told
        return True

    await eventually(cluster, "kube-scheduler says what is short", probe)


async def test_a_quota_says_how_much_is_used_of_the_limits_that_purser_keeps(
    cluster: RealScenarioCluster, purser: Purser
) -> None:
    """`kubectl describe quota` and `purser get namespaces` agree, and the API server counts its own limit beside it."""
    hard = {"limits.nvidia.com/gpumem": "100k", "limits.nvidia.com/gpucores": "300", "requests.nvidia.com/gpu": "9"}
    body = {"metadata": {"name": "gpus"}, "spec": {"hard": hard}}
    await cluster.client.create(RESOURCE_QUOTAS, body, cluster.namespace)

    async def uses(memory: int, cores: int, count: int) -> None:
        async def probe() -> bool:
            shown = await asyncio.to_thread(
                purser.cluster.kubectl, "describe", "quota", "gpus", f"-n{cluster.namespace}"
            )
            rows = (line.split() for line in shown.splitlines())
            used = {row[0]: quantity_ceil(row[1]) for row in rows if row and row[0] in hard}
            wanted = {"limits.nvidia.com/gpumem": memory, "limits.nvidia.com/gpucores": cores}
            assert used == wanted | {"requests.nvidia.com/gpu": count}, shown
            return True

        await eventually(cluster, "the quota says what is used", probe)
        command = [str(PURSER), "get", "namespaces", "-ojson", f"--kubeconfig={purser.cluster.kubeconfig}"]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True)
        [found] = [each for each in json.loads(done.stdout) if each["namespace"] == cluster.namespace]
        assert found["held"] == {"memory_mib": memory, "cores_percent": cores}

    try:
        await uses(0, 0, 0)
        await create(cluster, pod(cluster, "a", share(2000, 10)), pod(cluster, "b", share(3000, 20, 2)))
        await running(cluster, ["a", "b"])
        await uses(8000, 50, 3)
        await delete(cluster, "b")
        await uses(2000, 10, 1)
    finally:
        await cluster.client.delete(RESOURCE_QUOTAS, "gpus", cluster.namespace)
