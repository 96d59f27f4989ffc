"""The nodes and pods of a sample as Kubernetes has them, so that both sides count exactly alike."""

import msgspec

from purser.core.fleet.facts import FleetNodeFacts
from purser.core.model import Device, NodeInventory
from purser.core.names import GPU_RESOURCE, INVENTORY_ANNOTATION, SCHEDULER_NAME
from purser.core.node.amounts import listed_amounts
from purser.core.placement.shape import PodShape
from purser.kube.client import Client
from purser.kube.objects import Pod
from purser.kube.resources import NODES, PODS

NAMESPACE = "default"


def device_uuid(node: str, place: int) -> str:
    return f"GPU-{node}-{place}"


async def add_node(client: Client, node: FleetNodeFacts) -> None:
    """A node that exists only in the API, with the inventory that an agent would publish."""
    devices = tuple(
        Device(device_uuid(node.name, place), place, gpu.model, gpu.memory_mib, slots=gpu.slots)
        for place, gpu in enumerate(node.gpus)
    )
    inventory = NodeInventory(node.name, devices)
    amounts = {
        "cpu": f"{node.cpu_free_milli}m",
        "memory": f"{node.memory_free_mib}Mi",
        "pods": str(node.pods_free),
        GPU_RESOURCE: str(sum(gpu.slots for gpu in node.gpus)),
        **{resource: str(amount) for resource, amount in listed_amounts(inventory, ()).items()},
    }
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "hollow"}
    annotations = {INVENTORY_ANNOTATION: msgspec.json.encode(inventory).decode()}
    await client.create(NODES, {"metadata": {"name": node.name, "annotations": annotations}})
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    await client.patch_merge(NODES, node.name, {"status": status}, subresource="status")


async def add_pod(client: Client, name: str, shape: PodShape) -> Pod:
    """A pod of this shape, in HAMi's words, for Purser's scheduler."""
    limits = {
        "cpu": f"{shape.cpu_milli}m",
        "memory": f"{shape.memory_mib}Mi",
        GPU_RESOURCE: str(shape.gpu_count),
        "nvidia.com/gpumem": str(shape.gpu_memory_mib),
    }
    models = {"nvidia.com/use-gputype": ",".join(shape.models)} if shape.models else {}
    container = {"name": "main", "image": "i", "resources": {"limits": limits}}
    spec = {"schedulerName": SCHEDULER_NAME, "containers": [container]}
    return await client.create(PODS, {"metadata": {"name": name, "annotations": models}, "spec": spec}, NAMESPACE)


async def end_pod(client: Client, name: str) -> None:
    """What kubelet writes once the containers have ended."""
    await client.patch_merge(PODS, name, {"status": {"phase": "Succeeded"}}, NAMESPACE, subresource="status")
