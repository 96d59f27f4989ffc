"""Emulated nodes under the operator: their agents come with the ClusterPolicy's device plugin, and go with it."""

import asyncio
import time

from purser.kube.resources import NODES
from purser.lab.cluster import Lab
from purser.lab.settings import LabSettings, node_choices
from purser.operator.policy import CLUSTER_POLICIES

POLICIES = CLUSTER_POLICIES.raw()


async def test_a_nodes_agent_runs_where_the_operators_device_plugin_does(quiet_logs):
    async with Lab(LabSettings(node_choices(["t4-4"]), operator=True, probe_interval_s=0.1)) as lab:
        async with asyncio.timeout(60):
            await lab.ready()
        assert not lab.nodes["t4-4-0"].agent.is_running
        await lab.client.create(POLICIES, {"metadata": {"name": "gpus"}})
        await offers(lab, 40)
        await lab.client.patch_merge(POLICIES, "gpus", {"spec": {"devicePlugin": {"enabled": False}}})
        await offers(lab, 0)


async def offers(lab, count):
    deadline = time.monotonic() + 60
    while True:
        node = await lab.client.get(NODES, "t4-4-0")
        found = int(node.status.allocatable.get("nvidia.com/gpu", 0))
        if found == count:
            return
        assert time.monotonic() < deadline, f"{found} are offered, not {count}"
        await asyncio.sleep(0.05)
