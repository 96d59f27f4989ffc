"""Nodes that exist only in the API: for scenarios about many nodes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from purser.core.model import Device, NodeInventory
from purser.core.names import INVENTORY_ANNOTATION
from purser.core.node.amounts import listed_amounts
from purser.kube.client import Client
from purser.kube.resources import NODES

LABEL = "purser.dev/hollow"
_AT_ONCE = 32
_SLOTS = 10


@asynccontextmanager
async def hollow_nodes(client: Client, count: int) -> AsyncIterator[tuple[str, ...]]:
    """Create nodes, all with a card of 4 GiB but the last, which has one of 80 GiB; delete them afterwards."""
    names = tuple(f"hollow-{place:05d}" for place in range(count))
    gate = asyncio.Semaphore(_AT_ONCE)

    async def make(name: str) -> None:
        async with gate:
            await _make(client, name, 80 * 1024 if name == names[-1] else 4 * 1024)

    async def remove(name: str) -> None:
        async with gate:
            await client.delete(NODES, name)

    try:
        await asyncio.gather(*map(make, names))
        yield names
    finally:
        await asyncio.gather(*map(remove, names), return_exceptions=True)


async def _make(client: Client, name: str, memory_mib: int) -> None:
    card = Device(uuid=f"GPU-{name}", index=0, model="Hollow", memory_mib=memory_mib, slots=_SLOTS)
    inventory = NodeInventory(node=name, devices=(card,))
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": str(_SLOTS)}
    amounts |= {resource: str(amount) for resource, amount in listed_amounts(inventory, ()).items()}
    await client.create(
        NODES,
        {
            "metadata": {
                "name": name,
                "labels": {LABEL: "true", "kubernetes.io/hostname": name},
                "annotations": {INVENTORY_ANNOTATION: msgspec.json.encode(inventory).decode()},
            }
        },
    )
    status = {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "hollow"}],
    }
    await client.patch_merge(NODES, name, {"status": status}, subresource="status")
