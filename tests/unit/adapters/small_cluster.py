"""A cluster of an API server alone; the test is kube-scheduler, kubelet and the controllers."""

from contextlib import asynccontextmanager

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.unit.kube.servers import api_server
from tests.unit.operator.embedded import eventually

from purser.core.grant.signing import sign
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Grant, NodeInventory
from purser.core.names import CORDONED_GPUS_ANNOTATION, INVENTORY_ANNOTATION
from purser.kube.resources import NODES, PODS, untyped_resource

REPLICA_SETS = untyped_resource("apps", "v1", "replicasets", "ReplicaSet")
BUDGETS = untyped_resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
KEY = Ed25519PrivateKey.generate()
LABELS = {"app": "o"}


class SmallCluster:
    """Nodes n1 with two GPUs of 1000 MiB, n2 and n3 with one; pods ask for 600 MiB of one."""

    def __init__(self, client):
        self.client = client
        self.owner = {}

    async def set_up(self):
        for name, gpus in (("n1", 2), ("n2", 1), ("n3", 1)):
            metadata = {"name": name, "annotations": {INVENTORY_ANNOTATION: _inventory(name, gpus)}}
            await self.client.create(NODES, {"metadata": metadata, "status": {"allocatable": {"cpu": "4"}}})
        template = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        spec = {"replicas": 1, "selector": {"matchLabels": LABELS}, "template": template}
        made = await self.client.create(REPLICA_SETS, {"metadata": {"name": "o"}, "spec": spec}, "default")
        uid = made["metadata"]["uid"]
        self.owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": uid, "controller": True}

    async def pod(self, name, node="", gpu=0, phase="Running"):
        """A pod of the ReplicaSet, with a grant on a GPU of the node where one is named."""
        limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "600"}
        spec = {"containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}]}
        metadata = {"name": name, "namespace": "default", "labels": LABELS, "ownerReferences": [self.owner]}
        pod = await self.client.create(PODS, {"metadata": metadata, "spec": spec})
        if node:
            part = ContainerGrant("c", ContainerKind.APP, (DeviceShare(f"{node}-{gpu}", 600, 0),))
            grant = Grant(pod.metadata.uid, "default", name, node, (part,))
            await self.client.bind("default", name, grant.pod_uid, node, sign(grant, KEY))
            ready = {"type": "Ready", "status": "True"}
            patch = {"status": {"phase": phase, "conditions": [ready]}}
            await self.client.patch_merge(PODS, name, patch, "default", subresource="status")
        return pod.metadata.uid

    async def is_asked_to_leave(self, name):
        """Return once the pod's eviction was asked for."""

        async def is_asked():
            return (await self.client.get(PODS, name, "default")).metadata.deletion_timestamp

        await eventually(is_asked)

    async def end(self, name):
        """What kubelet does in the end."""
        await self.client.delete(PODS, name, "default", grace_period_seconds=0)

    async def allow(self, number):
        """A budget over the ReplicaSet's pods."""
        status = {"disruptionsAllowed": number, "observedGeneration": 1, "expectedPods": 1}
        await self.client.patch_merge(BUDGETS, "b", {"status": status}, "default", subresource="status")

    async def sicken(self, node):
        """Its first GPU fails."""
        patch = {"metadata": {"annotations": {INVENTORY_ANNOTATION: _inventory(node, 2, healthy=False)}}}
        await self.client.patch_merge(NODES, node, patch)

    async def cordoned(self, node="n1"):
        """What is cordoned of it."""
        annotations = (await self.client.get(NODES, node)).metadata.annotations
        return annotations.get(CORDONED_GPUS_ANNOTATION, "")


def _inventory(node, gpus, *, healthy=True):
    devices = tuple(Device(f"{node}-{i}", i, "T4", 1000, slots=4, healthy=healthy or i > 0) for i in range(gpus))
    return msgspec.json.encode(NodeInventory(node, devices)).decode()


@asynccontextmanager
async def small_cluster(folder):
    """One that is ready."""
    async with api_server(folder / "kubeconfig", tls=False) as (_, client):
        cluster = SmallCluster(client)
        await cluster.set_up()
        yield cluster
