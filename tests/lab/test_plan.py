"""`purser plan free --apply` on the lab: plans of all sorts end with the room that they promised."""

import json
import os
import random

import pytest

from purser.adapters.snapshot import read_fleet
from purser.core.names import GPU_POLICY_ANNOTATION, NODE_POLICY_ANNOTATION
from purser.kube.resources import EVENTS, PODS, untyped_resource
from purser.lab.cluster import Lab
from purser.lab.settings import LabSettings, node_choices
from tests import waiting
from tests.scenarios.actions import eventually
from tests.tiers import TIER, Tier
from tests.unit.cli.typed import apart

from .lab_cluster import LabCluster, check_invariants

pytestmark = pytest.mark.gate

REPLICA_SETS = untyped_resource("apps", "v1", "replicasets", "ReplicaSet")
BUDGETS = untyped_resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
ROUNDS = int(os.environ.get("PURSER_PLANS", "60" if TIER is Tier.SOAK else "5"))
"""Plans that are carried out, one after the other; hundreds by hand."""
SEED = int(os.environ.get("PURSER_PLANS_SEED", "1"))
MOST = 10
"""ReplicaSets: as many always find room on twelve GPUs."""


class Crowd:
    """Pods of ReplicaSets that come and go at random."""

    def __init__(self, client, cluster, seed):
        self.random = random.Random(seed)
        self._client, self._cluster = client, cluster
        self._names = []
        self._number = 0

    async def _come(self):
        self._number += 1
        name, policy = f"s{self._number}", self.random.choice(["spread", "spread", "binpack"])
        memory, gpus = self.random.choice([2000, 3000, 4000]), self.random.choice([1, 1, 2])
        limits = {"nvidia.com/gpu": str(gpus), "nvidia.com/gpumem": str(memory)}
        policies = {NODE_POLICY_ANNOTATION: policy, GPU_POLICY_ANNOTATION: policy}
        container = {"name": "c", "image": "busybox", "resources": {"limits": limits}}
        labels = {"app": name}
        template = {"metadata": {"labels": labels, "annotations": policies}, "spec": {"containers": [container]}}
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        await self._client.create(REPLICA_SETS, {"metadata": {"name": name}, "spec": spec}, "default")
        if self.random.random() < 0.3:
            budget = {"selector": {"matchLabels": labels}, "maxUnavailable": 1}
            await self._client.create(BUDGETS, {"metadata": {"name": name}, "spec": budget}, "default")
        self._names.append(name)

    async def change(self):
        for _ in range(self.random.randrange(3, 6)):
            await self._come()
        while len(self._names) > MOST:
            name = self._names.pop(self.random.randrange(len(self._names)))
            await self._client.delete(REPLICA_SETS, name, "default", propagation="Background")
        await self.settled()

    async def settled(self):
        async def all_run():
            found = (await self._client.list(PODS, "default")).items
            here = [pod for pod in found if pod.status.phase == "Running" and not pod.metadata.deletion_timestamp]
            return len(here) == len(found) == len(self._names)

        await eventually(self._cluster, "all pods run", all_run)


@pytest.mark.timeout(max(300, 40 * ROUNDS))
async def test_each_plan_ends_with_its_room():
    settings = LabSettings(node_choices(["t4-4:3"]), probe_interval_s=0.1)
    async with Lab(settings) as lab, waiting.limit():
        await lab.ready()
        client, cluster = lab.client, LabCluster(lab, "default")
        crowd, evicted = Crowd(client, cluster, SEED), 0

        async def is_running():
            return (await client.get(PODS, "wanted", "default")).status.phase == "Running"

        async def is_gone():
            return "wanted" not in {pod.metadata.name for pod in (await client.list(PODS, "default")).items}

        for _ in range(ROUNDS):
            await crowd.change()
            gpus = 4
            words = ("plan", "free", "--gpus", gpus, "--apply", "--yes", f"--kubeconfig={lab.kubeconfig}", "-o", "json")
            code, out, err = await apart(*words)
            assert code == 0, err
            made = json.loads(out)
            evicted += len(made["steps"])
            [room] = made["rooms"]
            fleet, problems = await read_fleet(client)
            node = fleet.node(room["node"])
            freed = [state for state in node.devices if state.device.uuid in room["uuids"]]
            assert not problems and len(freed) == gpus
            assert all(not state.closed and state.usage.slots == 0 for state in freed)
            limits = {"nvidia.com/gpu": str(gpus)}
            container = {"name": "c", "image": "busybox", "resources": {"limits": limits}}
            spec = {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": room["node"]}}
            await client.create(PODS, {"metadata": {"name": "wanted", "namespace": "default"}, "spec": spec})
            await eventually(cluster, "the pod that room was made for runs", is_running)
            await client.delete(PODS, "wanted", "default")
            await eventually(cluster, "it is gone", is_gone)
            await crowd.settled()
        told = [each for each in (await client.list(EVENTS, "default")).items if each.reason == "EvictedByPlan"]
        print(f"{ROUNDS} plans, {evicted} evictions")
        assert evicted >= ROUNDS and len(told) == evicted
        await check_invariants(lab)
