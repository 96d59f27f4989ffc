"""The pod garbage collector: pods of nodes that are gone go too, for no kubelet is left to end them."""

from purser.kube.client import Client
from purser.kube.errors import ConflictError, NotFoundError
from purser.kube.informer import Informer
from purser.kube.resources import PODS, Raw, key_of
from purser.kube.workqueue import WorkQueue, run_workers


async def run(client: Client, nodes: Informer[Raw], pods: Informer[Raw]) -> None:
    """Until cancelled."""
    queue: WorkQueue[str] = WorkQueue()
    nodes.add_handler(on_delete=lambda node: queue.add(key_of(node)))

    async def collect(node: str) -> None:
        if node in nodes.store:
            return
        for pod in list(pods.store.values()):
            if pod["spec"].get("nodeName") == node:
                await _delete(client, pod)

    await run_workers(queue, collect)


async def _delete(client: Client, pod: Raw) -> None:
    metadata = pod["metadata"]
    try:
        await client.delete(PODS, metadata["name"], metadata["namespace"], uid=metadata["uid"], grace_period_seconds=0)
    except (NotFoundError, ConflictError):
        return
