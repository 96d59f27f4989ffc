"""Many nodes join: how often the operator writes for each, and that it writes nothing once all is done.

Two hundred: what each node costs does not depend on the others. benchmarks/operator_scale.py measures times.
"""

import asyncio
from collections import Counter

import pytest

from purser.core.names import DEFAULT_NAMESPACE
from purser.kube.client import Client
from purser.kube.config import ClusterConfig
from purser.kube.resources import NAMESPACES, NODES
from purser.lab.apiserver import ApiServer
from purser.lab.controllers.manager import run_controllers
from purser.lab.hollow import HollowFleet, HollowNodes, manifests
from purser.lab.operatorpart import run_operator
from purser.operator.chart_hooks import define
from purser.operator.policy import CLUSTER_POLICIES
from tests import waiting
from tests.unit.operator.embedded_cluster import make_round

POLICIES = CLUSTER_POLICIES.raw()
COUNT = 200
pytestmark = [pytest.mark.gate, pytest.mark.timeout(720)]
WRITES_PER_NODE = 8
"""One as it is found, and one for each operand that becomes ready; the rest is room for what comes between."""
POLICY = {
    "metadata": {"name": "gpus"},
    "spec": {"gfd": {"enabled": False}, "dcgmExporter": {"enabled": False}, "migManager": {"enabled": False}},
}


async def test_each_node_that_joins_costs_a_few_writes_and_none_once_it_is_complete(tmp_path, quiet_logs):
    writes = Counter()

    async def note(request):
        is_counted = "/leases" not in request.path and "/events" not in request.path
        if request.headers.get("User-Agent") == "purser-operator" and request.method != "GET" and is_counted:
            writes[request.method, request.path] += 1

    async with ApiServer() as server:
        config = ClusterConfig.load(server.write_kubeconfig(tmp_path / "kubeconfig"))
        server.intercept(note)
        async with Client(config) as client, asyncio.TaskGroup() as group:
            await client.create(NAMESPACES, {"metadata": {"name": DEFAULT_NAMESPACE}})
            await define(client)
            await client.create(POLICIES, POLICY)
            stop, port = asyncio.Event(), asyncio.get_running_loop().create_future()
            fleet = HollowFleet(client, binds_daemon_pods=True)
            group.create_task(run_operator(config, stop, port.set_result, rounds_apart_s=0.1))
            tasks = [group.create_task(run_controllers(client)), group.create_task(fleet.run())]
            for node in manifests(HollowNodes(name="gpu", count=COUNT)):
                await client.create(NODES, node)
            await complete(client)
            of_nodes = Counter({path: count for (_, path), count in writes.items() if "/nodes/" in path})
            writes.clear()
            await client.patch_merge(NODES, "gpu-0", {"metadata": {"labels": {"somebody": "else"}}})
            for _ in range(2):  # the second begins after the change that brings the first
                await make_round(client, await port, "gpus")
            stop.set()
            for task in tasks:
                task.cancel()
    assert len(of_nodes) == COUNT
    assert max(of_nodes.values()) <= WRITES_PER_NODE
    assert writes == {}


async def complete(client):
    while True:
        found = (await client.get(POLICIES, "gpus")).get("status") or {}
        if found.get("state") == "ready" and found["nodes"]["ready"] == COUNT:
            return
        assert not waiting.is_over(), f"not complete in time: {found.get('nodes')}"
        await asyncio.sleep(0.1)
